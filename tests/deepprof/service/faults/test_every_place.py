"""An error at every place of the daemon where one can come from: no call, rank or chore takes the others along unheard.

Either the daemon goes on, says that it lives and serves an honest sender, or it ends and says why; and one that starts
on the same store has everything that was acknowledged, once.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deepprof.service.faults.not_passed import NOT_PASSED

SHARDS = 8
PATIENCE_S = 3000.0  # of a shard: what hangs at one place ends by itself
COMMAND = (sys.executable, "-m", "tests.deepprof.service.faults.every_place")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A socket's path must be short."""
    found = Path(tempfile.mkdtemp(prefix="dp-"))
    yield found
    shutil.rmtree(found, ignore_errors=True)


@pytest.fixture(scope="module")
def places() -> list[str]:
    """All of them, as the code has them now."""
    found = subprocess.run([*COMMAND, "--list"], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    return found.stdout.splitlines()


def try_shard(folder: Path, shard: int) -> dict[str, dict[str, Any]]:
    """Return what became of each place of a shard."""
    command = [*COMMAND, str(folder), str(shard), str(SHARDS)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert found.returncode == 0, found.stderr[-5000:]
    sys.stderr.write(found.stderr[-100_000:])  # where something hung
    return {tried["place"]: tried for tried in map(json.loads, found.stdout.splitlines())}


@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_an_error_at_any_place_ends_the_daemon_with_its_reason_or_one_call(
    folder: Path, places: list[str], shard: int
) -> None:
    tried = try_shard(folder, shard)
    assert sorted(tried) == places[shard::SHARDS]
    assert {place: each["problems"] for place, each in tried.items() if each["problems"]} == {}
    assert {each["how"] for each in tried.values()} <= {"served", "ended", "not passed"}
    passed = {place for place, each in tried.items() if each["how"] != "not passed"}
    assert tried.keys() - passed == NOT_PASSED.keys() & tried.keys()


def test_places_that_are_not_passed_are_places(places: list[str]) -> None:
    assert NOT_PASSED.keys() <= set(places)
    assert all(NOT_PASSED.values())


def test_the_places_are_those_of_the_code(places: list[str]) -> None:
    """One of each kind: awaits, loops and functions of threads, and what the event loop is given to call."""
    assert {
        "service.ingest:Stream.read: self.context.read()",
        "service.ingest:read_hello: asyncio.timeout(HELLO_S)",
        "service.query:QueryServicer.write_windows: messages",
        "service.worker:Worker._run: while not (self._is_idle(TICK_NS / 1000000000.0) and self._c",
        "service.writer:JournalWriter._write: called",
        "service.engine:Engine._settle: called",
    } <= set(places)
