"""The check of calling contexts on a stand-in, and what its verdicts rest on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gpu import contexts
from benchmarks.gpu.contexts import LaunchedWork, ToldContexts
from benchmarks.gpu.mock import REPLAYING
from benchmarks.gpu.programs import Plan
from benchmarks.gpu.reader import EventLog, Session
from benchmarks.gpu.rows import Verdict
from benchmarks.gpu.second_client import find_loaded
from benchmarks.gpu_overhead import CHECKS
from deepprof.collectors.live.packets import CONTEXT, CONTEXT_SUM, EVENT, HAS_CORRELATION, LAUNCH
from tests.benchmarks.conftest import failed

LAUNCHES = [f"--contexts {mode}: {loop}" for mode in contexts.MODES for loop in ("launch-bound", "training")]
TIMES = [f"--contexts {mode}: device time" for mode in contexts.MODES]


def test_contexts_that_are_right_pass(plan: Callable[[str], Plan]) -> None:
    rows = list(CHECKS["contexts"](plan("plain")))
    assert failed(rows) == []
    figures = {row.check: row.figure for row in rows}
    assert figures["--contexts python: functions"].startswith("56 of 56 records below")
    assert figures["--contexts operators: graph by launch"].startswith("8 launches for 8; 8 of 8 records")
    assert figures["contexts after its session"].startswith("no time of the device, as it says; 16 of 16 operators")


def test_a_torch_profiler_that_leaves_again_leaves_contexts_whole(plan: Callable[[str], Plan]) -> None:
    leaving = replace(plan("plain"), variables={"MOCK_TORCH_LEAVES": "1"})
    rows = list(CHECKS["contexts"](leaving))
    assert failed(rows) == []
    assert "the same for all 14 names" in next(row.figure for row in rows if row.check == "contexts after its session")


def test_launches_that_are_told_late_fail(plan: Callable[[str], Plan]) -> None:
    rows = list(CHECKS["contexts"](plan("late")))
    assert failed(rows) == [*LAUNCHES, "contexts before its session"]
    assert "add() in aten::Memcpy HtoD: ours 8, torch.profiler 0" in rows[0].figure


def test_launches_without_a_context_fail(plan: Callable[[str], Plan]) -> None:
    rows = list(CHECKS["contexts"](plan("unlinked")))
    expected = {*LAUNCHES, *TIMES, "--contexts python: functions", "contexts before its session"}
    assert set(failed(rows)) == expected
    assert rows[0].figure.startswith("28 records in a context, 28 in none; ")


def test_operators_that_are_told_no_more_after_a_session_fail(plan: Callable[[str], Plan]) -> None:
    rows = list(CHECKS["contexts"](plan("forgetful")))
    assert failed(rows) == ["contexts after its session"]


def test_a_torch_profiler_that_counts_otherwise_beside_contexts_fails(plan: Callable[[str], Plan]) -> None:
    assert failed(list(CHECKS["contexts"](plan("intruding")))) == ["torch.profiler beside contexts"]


# ---- what verdicts rest on ----


def make_session(launches: list[tuple[int, int]], events: list[tuple[int, int, int]]) -> Session:
    """Return a session with train.py(3): iterate > aten::mm > aten::empty, and aten::add next to them."""
    session = Session(EventLog(), names=["gemm", "train.py(3): iterate", "aten::mm", "aten::empty", "aten::add"])
    tree = [(1, 0, 2, 4, 0), (2, 1, 3, 0, 1), (3, 2, 4, 0, 1), (4, 0, 5, 0, 1)]
    session.contexts = [np.array(tree[:2], CONTEXT), np.array(tree[2:], CONTEXT)]
    session.launches = [np.array(launches, LAUNCH)]
    rows = np.zeros(len(events), EVENT)
    for row, (correlation, start_ns, end_ns) in zip(rows, events, strict=True):
        row["correlation"], row["start_ns"], row["end_ns"] = correlation, start_ns, end_ns
        row["name"], row["flags"] = 1, HAS_CORRELATION
    session.consumer.take(rows)  # type: ignore[union-attr]
    return session


def test_records_join_launches_by_their_numbers() -> None:
    session = make_session([(11, 2), (12, 3), (13, 4), (14, 4)], [(11, 0, 5), (13, 5, 9), (13, 9, 12), (99, 20, 30)])
    work = contexts.join(session, session.consumer.events)  # type: ignore[union-attr]
    assert work.counts == Counter({("kernel", "gemm in aten::mm"): 1, ("kernel", "gemm in aten::add"): 2})
    assert (work.joined, work.unjoined, work.iterating) == (3, 1, 1)
    assert (work.context_ns, work.record_ns) == (12, 22)
    assert contexts.judge_times("t", {"launch": work}).verdict is Verdict.FAILED
    assert contexts.judge_functions("t", work).verdict is Verdict.FAILED


def test_nothing_joins_nothing() -> None:
    session = make_session([], [])
    work = contexts.join(session, session.consumer.events)  # type: ignore[union-attr]
    assert work == LaunchedWork()
    assert contexts.judge_launches("t", Counter(), work).verdict is Verdict.FAILED
    assert contexts.judge_times("t", {"launch": work}).verdict is Verdict.FAILED
    assert ToldContexts.read(Session()) == ToldContexts([""], [False])


def test_a_launch_of_a_graph_is_one(tmp_path: Path) -> None:
    session = make_session([(11, 2), (12, 2)], [(11, 0, 5), (11, 5, 9), (12, 9, 12), (12, 12, 14)])
    session.names[2] = REPLAYING
    events = session.consumer.events  # type: ignore[union-attr]
    two, three = Plan(tmp_path, tmp_path, checks=2), Plan(tmp_path, tmp_path, checks=3)
    assert contexts.judge_replays("t", two, events, contexts.join(session, events)).verdict is Verdict.OK
    assert contexts.judge_replays("t", three, events, contexts.join(session, events)).verdict is Verdict.FAILED
    session.launches = [np.array([(11, 2), (12, 4)], LAUNCH)]
    row = contexts.judge_replays("t", two, events, contexts.join(session, events))
    assert (row.verdict, row.figure) == (Verdict.FAILED, "2 launches for 2; 2 of 4 records in the range around them")


@pytest.mark.parametrize(
    ("next_record", "notices", "verdict"),
    [(5, [], "ok"), (6, [], "FAILED"), (5, [f"{contexts.LOST}: some of the device's time has no context"], "FAILED")],
)
def test_what_is_lost_fails(next_record: int, notices: list[str], verdict: str) -> None:
    session = make_session([(11, 2)], [])
    session.next, session.records, session.ended, session.notices = next_record, 5, True, notices
    assert contexts.judge_losses("t", session).verdict == verdict
    session.launches = []
    assert contexts.judge_losses("t", session).verdict is Verdict.FAILED


def test_another_answer_than_documented_fails() -> None:
    assert contexts.judge_answer("t", 39, 39).verdict is Verdict.OK
    assert contexts.judge_answer("t", 0, 39).verdict is Verdict.FAILED


def test_contexts_without_time_of_the_device_must_say_so_and_go_on() -> None:
    session, expected = make_session([], [(11, 0, 5)]), {"launch": Counter({("kernel", "gemm in aten::mm"): 1})}
    work = {loop: contexts.join(session, session.consumer.events) for loop in contexts.LAUNCHING}  # type: ignore[union-attr]
    expected["train"] = expected["launch"]
    begun, other = (np.zeros(1, CONTEXT_SUM) for _ in range(2))
    begun["context"], other["context"] = 2, 4
    begun["count"] = other["count"] = 3
    assert contexts.judge_phase("after", session, work, expected, [begun]).verdict is Verdict.FAILED
    session.notices = [f"{contexts.NO_CALLBACKS}: contexts have no time of the device"]
    assert contexts.judge_phase("after", session, work, expected, [begun]).verdict is Verdict.OK
    assert contexts.judge_phase("after", session, work, expected, [other]).verdict is Verdict.FAILED
    assert contexts.judge_phase("before", session, work, expected, []).verdict is Verdict.FAILED


def test_a_library_that_is_not_loaded_is_not_found() -> None:
    assert find_loaded("libc.so")
    with pytest.raises(LookupError, match=r"loaded no libnothing\.so"):
        find_loaded("libnothing.so")
