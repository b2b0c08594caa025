"""The chaos suite in short: nothing acknowledged is lost or doubled, no one honest gives up; losses would be seen."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.chaos.beside import overload
from benchmarks.chaos.counting import Count, tally
from benchmarks.chaos.fleet import Size
from benchmarks.chaos.ground import Ground
from benchmarks.chaos.hostile import CONTROL
from benchmarks.chaos.plan import Call, find_compiler
from benchmarks.chaos.scenarios import SCENARIOS
from benchmarks.chaos.table import make_table, tell_aim
from benchmarks.chaos.trial import Effort, Outcome, Scenario, attempt
from tests.deepprof.live.service.daemons import wait_for
from tests.patience import PATIENCE_S
from tests.widening import slow_unless

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="faults are injected by a library in C: no cc here")

SMALL = Size(senders=2, ranks=2, pace=20, records=20)
CROWD = Size(senders=4, ranks=2, pace=20, records=400, window_nbytes=640 << 10)  # which fills the queues of one token
EFFORT = Effort(seconds=0, seed=0, deadline_s=PATIENCE_S, patient=True)
SHORT = {each.name: each for each in SCENARIOS}
CHOSEN = (
    "daemon killed",
    "senders killed",
    "disk full",
    "killed when read-only",
    "EIO on fsync",
    "EIO on read",
    "clock jumps",
    "links fall silent",
    "impossible gaps",
    "readers that do not read",
    "another's name",
)
QUICK = {"daemon killed", "EIO on fsync"}
MARK, SENDERS = "CHAOS_TEST", 3


@pytest.mark.parametrize("name", slow_unless(QUICK.__contains__, CHOSEN))
def test_nothing_is_lost_or_doubled_and_nobody_has_gone(name: str) -> None:
    found = attempt(replace(SHORT[name], size=SMALL), EFFORT)
    assert found.acknowledged == found.sent > 0
    assert (found.count.lost, found.count.doubled, found.gone, found.problems) == (0, 0, 0, []), found.notes
    assert not found.is_bad
    assert found.count.held == found.sent
    assert name in make_table([found], "").markdown()


def test_nobody_goes_while_the_queues_are_full() -> None:
    found = attempt(replace(SHORT["more load than is taken"], disturb=overload(0.0), size=CROWD, policy={}), EFFORT)
    assert (found.count.lost, found.count.doubled, found.gone, found.problems) == (0, 0, 0, []), found.notes
    assert found.acknowledged == found.sent > 0


def miss(ground: Ground) -> str:
    with ground.plan.failing(Call.SYNC, errno.EIO, ground.daemon.folder / "elsewhere"):
        ground.await_progress()
    return "a fault where nobody goes"


def test_a_fault_that_nothing_has_met_is_told() -> None:
    found = attempt(Scenario("missed", miss, SMALL), EFFORT)
    assert found.is_bad
    assert "no call met the fault" in " ".join(found.problems)


def made(name: str, quiet_s: float | None, troubled_s: float | None) -> Outcome:
    """Return an outcome of which only the waits matter."""
    return Outcome(name, "", SMALL, 0, 0, Count(0, 0, 0, 0), 0, quiet_s, troubled_s, None, [], [], [])


def test_the_aim_is_told_row_by_row() -> None:
    found = [made("huge names", 1.0, 2.0), made("random bytes", 1.0, 2.1), made("half a preface", None, 1.0)]
    told = tell_aim([*found, made("daemon killed", 1.0, 9.0), made(CONTROL, 1.0, 9.0)])
    assert told == "it is (at most 2): huge names; it is not: random bytes (2.1); too few waits: half a preface"


def tear_the_journal(ground: Ground) -> str:
    ground.wait_for(lambda: all(durable for _, _, durable in ground.fleet.each()), "an acknowledgement of each")
    ground.daemon.kill()
    (segment,) = (ground.daemon.store / "journal").glob("*.seg")
    os.truncate(segment, 64)
    ground.daemon.start()
    return "a journal of which nothing is left"


def test_a_store_that_has_lost_records_is_told() -> None:
    found = attempt(Scenario("torn", tear_the_journal, SMALL), EFFORT)
    assert found.count.lost > 0
    assert found.gone == SMALL.streams  # the daemon has less than it had acknowledged, and they report it
    assert "its store was replaced" in " ".join(found.notes)


def test_records_are_counted_by_their_numbers() -> None:
    stored = [np.array([0, 1, 2], np.uint64), np.array([2, 3, 6], np.uint64)]
    assert tally(stored, 4) == (5, 0, 1)
    assert tally(stored, 6) == (5, 2, 1)
    assert tally([], 3) == (0, 3, 0)


def marked(mark: str) -> list[int]:
    """Return the processes that have inherited a mark."""
    return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/environ") if has(path, mark)]


def has(path: Path, mark: str) -> bool:
    with contextlib.suppress(OSError):  # it has just ended
        return f"{MARK}={mark}".encode() in path.read_bytes().split(b"\0")
    return False


SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)  # the last two unwind alike


@pytest.mark.parametrize("number", slow_unless(lambda number: number != signal.SIGINT, SIGNALS))
def test_an_interrupted_run_leaves_no_process(tmp_path: Path, number: int) -> None:
    environ = {**os.environ, MARK: str(tmp_path), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "benchmarks.chaos", "--only", "daemon paused", "--seconds", "60"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=environ, **quiet) as run:
        try:
            wait_for(lambda: list(tmp_path.glob("dp-*/board")) and len(marked(str(tmp_path))) > SENDERS, "senders")
        finally:
            run.send_signal(number)
    wait_for(lambda: not marked(str(tmp_path)), "all processes end")
    assert number == signal.SIGKILL or not list(tmp_path.glob("dp-*"))
