"""Lost records: no iteration, interval or overlap reaches over them."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from deepprof.collectors.trace import Trace
from deepprof.live.service.session import RankSession
from deepprof.live.wire import CheckedRecords
from tests.deepprof.live.service.session.feeding import Outcome, cut_at, make_trace, play

PERIOD = 40
TEMPLATE = np.random.default_rng(3).permutation(PERIOD)


def job(iterations: int, pause: int = 10_000) -> Trace:
    """Iterations with a pause after each, without which nothing distinguishes them from layers."""
    return make_trace(pl.concat(play(TEMPLATE, at=i * (40_000 + pause)) for i in range(iterations)), PERIOD)


def run(session: RankSession, batches: list[CheckedRecords], gap_before: int) -> pl.DataFrame:
    outcome = Outcome()
    for batch in batches:
        if batch.first == gap_before:
            session.gap(500)
        session.take(batch)
    session.end()
    outcome.add(session.advance())
    return outcome.rows


@pytest.mark.parametrize("at", [5, 600, 2000 + 7, 2000])
def test_no_iteration_reaches_over_a_gap(at: int) -> None:
    trace = job(100)
    session = RankSession()
    rows = run(session, cut_at(trace, [at]), at)
    edge = int(trace.device_events["start_ns"][at])
    over = rows.filter(pl.col("start_ns") < edge, pl.col("end_ns") > edge)
    assert over.height == 0
    before = rows.filter(pl.col("end_ns") <= edge)
    if before.height:
        assert before["interval_ns"][-1] is None
        assert before["iteration_ns"][-1] is None
    assert (before.height > 0) == (at > 8 * PERIOD)  # what arrived before a gap is mined when it comes
    assert rows.filter("complete").height >= (4000 - at) // PERIOD - 2
    (view,) = session.devices
    assert view.iterations == rows.height
    assert view.loop is not None
    assert view.period == PERIOD


def test_records_before_what_came_before_a_gap_are_dropped() -> None:
    trace = job(60)
    early, late = cut_at(trace, [1200])
    loose = CheckedRecords(0, 1200, early.tables, early.names, 0, -1)  # promises nothing
    again = CheckedRecords(1200, 1200, {"device_events": trace.device_events[1100:2300]}, (), 0, late.complete_until_ns)
    session = RankSession()
    session.take(loose)
    session.gap(None)
    session.take(again)
    session.end()
    session.advance()
    assert dict(session.dropped) == {"gap": 99}  # the one that begins with the last one before stays
    assert session.dropped_kinds == {"gap": {"kernel": 99}}


def test_gaps_without_records_are_no_trouble() -> None:
    session = RankSession()
    for _ in range(1000):
        session.gap(None)
    session.end()
    given = session.advance()
    assert given.iterations.height == 0
    assert session.devices == ()


def test_nothing_is_taken_after_the_end() -> None:
    session = RankSession()
    session.end()
    for call in (session.gap, session.end, lambda: session.take(CheckedRecords(0, 0, {}, (), 0, 0))):
        with pytest.raises(ValueError, match="ended"):
            call()


def test_late_records_are_dropped_and_counted() -> None:
    trace = job(60)
    session = RankSession()
    for batch in cut_at(trace, [1200]):
        session.take(batch)
    session.take(CheckedRecords(2400, 10, {"device_events": trace.device_events[:10]}, (), 0, 0))
    session.end()
    assert session.advance().iterations.height == 60
    assert dict(session.dropped) == {"late": 10}
    assert session.dropped_kinds == {"late": {"kernel": 10}}
    assert RankSession.restore(session.save()).dropped_kinds == session.dropped_kinds


@pytest.mark.parametrize("kernels", [0, 1, 5])
def test_too_little_is_no_loop(kernels: int) -> None:
    trace = make_trace(play(list(range(kernels))), PERIOD)
    session = RankSession()
    for batch in cut_at(trace, []) if kernels else []:
        session.take(batch)
    session.end()
    assert session.advance().iterations.height == 0
    assert [view.state for view in session.devices] == ["learning"] * (kernels > 0)


def test_an_iteration_is_given_when_the_next_but_one_begins() -> None:
    trace = job(100, pause=100_000_000)
    session, outcome = RankSession(), Outcome()
    for batch in cut_at(trace, range(0, 4000, 10)):
        session.take(batch)
        outcome.add(session.advance())
    given = outcome.rows.height
    assert 96 <= given < 100
    session.end()
    outcome.add(session.advance())
    assert outcome.rows["start_ns"].to_list() == [i * 100_040_000 for i in range(100)]


def test_a_slow_iteration_is_noticed() -> None:
    parts = [play(TEMPLATE, at=i * 50_000 + (i > 80) * 500_000) for i in range(100)]
    session, outcome = RankSession(), Outcome()
    for batch in cut_at(make_trace(pl.concat(parts), PERIOD), range(0, 4000, 130)):
        session.take(batch)
        outcome.add(session.advance())
    session.end()
    outcome.add(session.advance())
    slow = [event for event in outcome.events if event.kind == "slow"]
    assert [event.time_ns for event in slow] == [80 * 50_000]
    assert "0.6 ms, usually 0.1 ms" in slow[0].why
