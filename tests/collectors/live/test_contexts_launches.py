"""Which operator launched what, on the device of the mock: every launch is told with the context that it was in."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.collectors.live.building import FLAGS, HERE, SANITIZERS, build, compiler, run
from tests.collectors.live.hooked import PROGRAMS
from tests.collectors.live.listener import Heard, Listener
from tests.patience import PATIENCE_S, UNHURRIED

COUNT = 20_000
OPERATORS = ("aten::mm", "aten::add", "aten::relu")


def launch(tmp_path: Path, flavour: str, count: int, **more: str) -> Heard:
    built, program = build(flavour), tmp_path / "launched"
    sources = [str(PROGRAMS / "launched.c"), str(HERE / "device.c")]
    run([compiler(), *FLAGS, *SANITIZERS[flavour], *sources, "-o", str(program), "-ldl"])
    listener = Listener(tmp_path / "s").start()
    own = {"DEEPPROF_SOCKET": str(listener.path), "JOB_LIBRARY": str(built.library), "DEEPPROF_CUPTI": str(built.mock)}
    environment = os.environ | UNHURRIED | own | {"DEEPPROF_CONTEXTS": "operators", "MOCK_PATIENT": "1"} | more
    done = subprocess.run(
        [program, str(count)], check=False, capture_output=True, text=True, env=environment, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stderr) == (0, "")
    listener.wait(lambda _: listener.connections and listener.last.gone)
    listener.stop()
    return listener.last


@pytest.mark.parametrize("flavour", ["plain", "address", "thread"])
def test_every_launch_has_the_context_that_it_was_in(tmp_path: Path, flavour: str) -> None:
    count = COUNT if flavour == "plain" else 2000
    heard = launch(tmp_path, flavour, count)
    names = {int(row["id"]): heard.names[int(row["name"])] for row in heard.contexts}
    told = {int(row["correlation"]): names[int(row["context"])] for row in heard.launches}
    assert len(heard.launches) == len(told)
    assert told == {number + 1: OPERATORS[number % 4] for number in range(count) if number % 4 < len(OPERATORS)}
    assert len(heard.events) == count
