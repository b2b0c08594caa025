"""A notice wakes the worker when it is new: who comes upon the same thing at every range must not keep it awake."""

import subprocess
from pathlib import Path

from .building import FLAGS, INJECT, compiler, run
from .hooked import PROGRAMS


def test_what_is_known_wakes_nobody(tmp_path: Path) -> None:
    program = tmp_path / "notices"
    sources = [str(INJECT / "notices.c"), str(PROGRAMS / "notices.c")]
    run([compiler(), *FLAGS, f"-I{INJECT}", *sources, "-o", str(program)])
    said = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    assert said == "1 7:first 2 8:other 7:later 8:other"
