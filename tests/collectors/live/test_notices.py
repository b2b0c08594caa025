"""A notice wakes the worker when it is new: who comes upon the same thing at every range must not keep it awake."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from .building import FLAGS, INJECT, compiler, run
from .hooked import PROGRAMS


def test_what_is_known_wakes_nobody(tmp_path: Path) -> None:
    program = tmp_path / "notices"
    sources = [str(INJECT / "notices.c"), str(PROGRAMS / "notices.c")]
    run([compiler(), *FLAGS, f"-I{INJECT}", *sources, "-o", str(program)])
    said = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    assert said == "1 7:first 2 8:other 7:later 8:other"


def list_codes() -> Iterator[tuple[str, int]]:
    """The numbers of enumerations that state that they are notices; of some, only those before the word are."""
    for path in sorted(INJECT.glob("*.[ch]")):
        for name, body, after in re.findall(r"enum (\w*)\s*\{(.*?)\};([^\n]*)", path.read_text(), re.DOTALL):
            if name == "dp_notice_code" or "notice" in after:
                yield from ((path.name, int(number)) for number in re.findall(r"= (\d+)", body))
            yield from ((path.name, int(number)) for number in re.findall(r"= (\d+) /\* notice", body))


def test_each_notice_has_a_number_of_its_own() -> None:
    codes = list(list_codes())
    assert len(codes) > 30
    assert len({number for _, number in codes}) == len(codes), sorted(codes, key=lambda code: code[1])
    assert max(number for _, number in codes) < 64  # from there on they are the hooks'
