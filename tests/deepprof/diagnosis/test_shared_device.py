"""`shared-device`: what an iteration loses to another process, claimed once, and silence where nothing shows it."""

from __future__ import annotations

import polars as pl
import pytest
from msgspec.structs import replace

from deepprof.analysis import analyze
from deepprof.collectors.trace import Process, Trace
from deepprof.diagnosis.causes import rank
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.rules.shared_device import ADVICE, LINK, claim_parts, shared_device
from deepprof.metrics.breakdown.costs import Cost
from deepprof.metrics.loop import Loop
from deepprof.metrics.sharing.losses import LOSSES
from deepprof.metrics.sharing.shares import Neighbour, ShareOfDevice, find_headroom
from tests.deepprof.builders import build_finding
from tests.loops import MS, make_loop
from tests.tables import event, make_trace

TIMES = [20.0] * 4 + [40.0] * 6


def losses(
    *, turns: float = 0, slowed: float = 0, copies: float = 0, copies_slowed: float = 0, touched: int = 6
) -> pl.DataFrame:
    """Return the losses of ten iterations, of which the last `touched` lose this many ms."""
    lost = {"turns_ns": turns, "slowed_ns": slowed, "copies_ns": copies, "copies_slowed_ns": copies_slowed}
    rows = [
        {"index": i, "iteration_ns": round(ms * MS), "together_ns": round(10 * MS) if i >= 10 - touched else 0}
        | {name: round(value * MS) if i >= 10 - touched else 0 for name, value in lost.items()}
        for i, ms in enumerate(TIMES)
    ]
    table = pl.DataFrame([{**row, "lost_ns": sum(row[name] for name in lost)} for row in rows])
    return table.with_columns(stretch_ns=pl.lit(0), rest_ns=pl.lit(0)).select(LOSSES.names()).cast(dict(LOSSES))


def share(table: pl.DataFrame, **more: object) -> ShareOfDevice:
    level = more.get("alone_ns", 20 * MS)
    fixed: dict[str, object] = {
        "rank": 0,
        "device": 0,
        "stream": 7,
        "pid": 11,
        "name": None,
        "busy_ns": 1,
        "manner": "in turn",
        "neighbours": (Neighbour(3, 0, 2 * MS), Neighbour(5, 0, 7 * MS)),
        "alone_ns": level,
        "alone_iterations": 4,
        "together_ns": 40 * MS,
        "together_iterations": 6,
        "headroom_ns": find_headroom(table, level) if table.height else None,  # type: ignore[arg-type]
        "proven": True,
    }
    return ShareOfDevice(losses=table, **(fixed | more))  # type: ignore[arg-type]


def judge(given: ShareOfDevice, *found: Finding, loop: Loop | None = None) -> list[Finding]:
    return list(shared_device([given], [loop or make_loop(TIMES)], found))


def other(rule: str, ms: float = 5.0, **more: object) -> Finding:
    place: dict[str, object] = {"rank": 0, "device": 0, "stream": 7, "confidence": 1.0, "severity": "warning"}
    return build_finding(rule=rule, headroom_ns_per_iteration=round(ms * MS), **place | more)


def test_what_is_lost_is_a_mean_over_all_iterations() -> None:
    (found,) = judge(share(losses(turns=15, slowed=2)))
    assert (found.rule, found.severity) == ("shared-device", "critical")
    assert found.headroom_ns_per_iteration == round(17 * MS * 6 / 10)
    assert found.evidence["share_ratio"] == pytest.approx(10.2 / 32, abs=1e-4)
    assert found.evidence["lost_together_ns"] == 17 * MS
    assert (found.evidence["processes"], found.evidence["other_rank"], found.evidence["manner"]) == (3, 5, "in turn")
    assert (found.rank, found.device, found.stream, found.iterations) == (0, 0, 7, (0, 9))
    assert "in 6 of 10 iterations they have work there" in found.summary
    assert "An iteration takes 40.0 ms then, and 20.0 ms otherwise." in found.summary
    assert found.advice == ADVICE["in turn"]


def test_it_is_no_more_than_iterations_are_longer() -> None:
    """A wait that hides behind the host's costs nothing."""
    (found,) = judge(share(losses(turns=30)))
    assert found.headroom_ns_per_iteration == (32 - 20) * MS
    assert judge(share(losses(turns=30), alone_ns=31 * MS, headroom_ns=1 * MS)) == []


@pytest.mark.parametrize(("ms", "severity"), [(4.2, None), (4.4, "warning"), (15.9, "warning"), (16.1, "critical")])
def test_from_8_percent_it_is_a_warning_and_from_30_critical(ms: float, severity: str | None) -> None:
    assert [f.severity for f in judge(share(losses(turns=ms)))] == ([severity] if severity else [])


def test_less_is_sure_without_iterations_alone_or_launch_records() -> None:
    confidence = [
        judge(share(losses(turns=15), **more))[0].confidence  # type: ignore[arg-type]
        for more in ({}, {"alone_ns": None}, {"proven": False}, {"alone_ns": None, "proven": False})
    ]
    assert confidence[0] > confidence[1] > confidence[2] > confidence[3]


def test_copies_that_another_rule_claims_are_not_claimed_twice() -> None:
    table = losses(turns=8, copies=2, copies_slowed=9)
    (alone,) = judge(share(table))
    (beside,) = judge(share(table), other("copy-bound"))
    assert alone.headroom_ns_per_iteration == round(19 * MS * 0.6)
    assert beside.headroom_ns_per_iteration == round(10 * MS * 0.6)
    assert beside.evidence["copies_slowed_ns_per_iteration"] == round(9 * MS * 0.6)
    (elsewhere,) = judge(share(table), other("copy-bound", stream=9))
    assert elsewhere.headroom_ns_per_iteration == alone.headroom_ns_per_iteration
    assert judge(share(losses(copies_slowed=20)), other("copy-bound")) == []


def test_idle_time_of_unknown_cause_is_not_claimed_twice() -> None:
    """Without launch records `host-bound` claims the idle time between iterations; kernels that last longer remain."""
    table = losses(turns=8, slowed=6)
    (found,) = judge(share(table, proven=False), other("host-bound"))
    assert found.headroom_ns_per_iteration == round(6 * MS * 0.6)
    (proven,) = judge(share(table), other("host-bound"))
    assert proven.headroom_ns_per_iteration == round(14 * MS * 0.6)


def test_advice_is_for_what_is_lost_most() -> None:
    assert judge(share(losses(turns=5, copies=9)))[0].advice == LINK
    assert judge(share(losses(turns=5, copies_slowed=9)))[0].advice == LINK
    assert judge(share(losses(slowed=9), manner="at once"))[0].advice == ADVICE["at once"]
    assert judge(share(losses(slowed=9), manner="not visible"))[0].advice == ADVICE["not visible"]


def test_iterations_that_another_process_makes_slow_are_explained_by_it() -> None:
    """The mean of all is less than what slow ones last longer; what those lose that it touched is not."""
    (found,) = judge(share(losses(turns=18, touched=2)))
    assert found.headroom_ns_per_iteration == round(18 * MS * 0.2)
    ranked = rank([found, other("drift", 20.0), other("slow-iterations", 30.0)])
    assert {f.rule: f.caused_by for f in ranked} == {
        "shared-device": None,
        "drift": "shared-device",
        "slow-iterations": None,
    }


def test_nothing_or_one_iteration_shows_nothing() -> None:
    assert judge(share(pl.DataFrame(schema=LOSSES))) == []
    assert judge(share(losses(turns=15).tail(1))) == []
    assert list(shared_device([share(losses(turns=15))], [], [])) == []
    assert list(shared_device([], [make_loop(TIMES)], [])) == []


def proven(trace: Trace, number: int) -> Trace:
    return replace(trace, rank=number, processes=(Process(number, devices=((0, "GPU-0"),)),))


@pytest.mark.parametrize("events", [[], [event(0, 5, 9)], [event(0, 5, 9), event(0, 10, 10)]])
@pytest.mark.parametrize("others", [[], [event(0, 5, 9)], [event(0, 0, 99, activity="sync")]])
def test_processes_that_do_next_to_nothing_are_no_finding(events: list, others: list) -> None:
    analysis = analyze([proven(make_trace(events), 0), proven(make_trace(others), 1)])
    assert analysis.findings == ()
    work = sum(any(row["activity"] == "kernel" for row in rows) for rows in (events, others))
    assert len(analysis.sharing) == (work == 2)
    for device in analysis.sharing:
        assert device.manner == "not visible"
        assert [process.headroom_ns for process in device.processes] == [None, None]


def test_slower_kernels_are_claimed_of_computing_and_turns_of_waiting() -> None:
    loop = make_loop([100] * 6, idle_shared_ns=10)  # and 90 of computing
    cost = Cost(30 * MS, 100 * MS, 1.0, 6, (0, 5))
    claims = claim_parts(loop, cost, {"turns_ns": 10 * MS, "slowed_ns": 20 * MS})
    assert claims == {"idle_shared_ns": 10 * MS, "compute_ns": 20 * MS}


def test_what_is_claimed_is_no_more_than_the_cost() -> None:
    loop = make_loop([100] * 6, idle_shared_ns=10)
    cost = Cost(15 * MS, 100 * MS, 1.0, 6, (0, 5))
    assert sum(claim_parts(loop, cost, {"turns_ns": 10 * MS, "slowed_ns": 20 * MS}).values()) == 15 * MS
