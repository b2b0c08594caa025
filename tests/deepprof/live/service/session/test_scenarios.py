"""Simulated jobs through a session: the same iterations as offline, and totals that can be counted independently."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

import deepprof
from deepprof.collectors.trace import Trace
from deepprof.live.service.session import RankSession
from deepprof.live.service.views import DeviceView
from deepprof.live.wire.declarations import find_figures
from deepprof.metrics.spans import Spans, covered, union
from deepprof.metrics.streams import is_collective
from deepprof.simulation import SCENARIOS, simulate, write
from tests.deepprof.live.service.session.feeding import batches_of, feed
from tests.widening import slow_unless

ALONE = sorted(name for name, scenario in SCENARIOS.items() if scenario.ranks != "several")
METRICS = {name: each.metric for name, each in find_figures(DeviceView).items() if each.metric is not None}
COUNTERS = [name for name, metric in METRICS.items() if metric.type == "counter" and not metric.labels]
QUICK = {"healthy", "graph-growth", "recapture", "accumulation", "inference", "communication-hidden"}  # each its shape


def make(scenario: str, folder: Path, iterations: int = 12) -> Trace:
    write(simulate(scenario, iterations=iterations, seed=1), folder / "job.json")
    return deepprof.read(folder / "job.json")


@pytest.mark.parametrize("scenario", slow_unless(QUICK.__contains__, ALONE))
def test_a_simulated_job_gives_the_iterations_of_the_analysis(scenario: str, tmp_path: Path) -> None:
    trace = make(scenario, tmp_path)
    wanted = deepprof.analyze(trace).iterations.filter("complete")
    given = feed(RankSession(), batches_of(trace, 1000)).rows.filter("complete")
    same = ["device", "stream", "start_ns", "end_ns", "iteration_ns", "interval_ns", "busy_ns", "events"]
    assert given.select(same).equals(wanted.select(same))


def spans(rows: pl.DataFrame) -> Spans:
    return union(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())


def test_totals_are_those_of_the_trace(tmp_path: Path) -> None:
    trace = make("communication-bound", tmp_path)
    session = RankSession()
    rows = feed(session, batches_of(trace, 700)).rows
    (view,) = session.devices
    events = trace.device_events.with_columns(name=trace.names.gather(trace.device_events["name_id"]))
    events = events.filter(pl.col("activity") != "sync")
    kernels, copies = events.filter(pl.col("activity") == "kernel"), events.filter(pl.col("activity") == "memcpy")
    working, copying = spans(kernels), spans(copies)
    hidden = int(covered(working, copying.starts, copying.ends).sum())
    assert view.events_total == events.height
    assert view.busy_ns_total == spans(events).total_ns
    assert view.compute_ns_total == spans(kernels.filter(~is_collective())).total_ns < working.total_ns
    assert view.copy_ns_total == copying.total_ns > 0
    assert view.copy_exposed_ns_total == copying.total_ns - hidden
    sums = copies.group_by(pl.col("copy_kind").cast(pl.String)).agg(pl.col("nbytes").sum()).rows()
    assert view.copied_nbytes == {kind: nbytes for kind, nbytes in sums if nbytes}
    times = rows["iteration_ns"].drop_nulls()
    assert view.duration_sum_ns == times.sum()
    assert sum(view.duration_counts) == len(times)
    assert view.iterations == rows.height
    assert view.incomplete_total == (~rows["complete"]).sum()
    assert view.interval_ns_total == rows["interval_ns"].drop_nulls().sum()
    copied = (rows["interval_ns"] * rows["overlap_ratio"]).drop_nulls().sum()
    assert view.interval_copy_ns_total == pytest.approx(copied, abs=rows.height)
    assert view.median_iteration_ns == round(times.median())  # type: ignore[arg-type]
    assert view.state == "locked"
    assert [loop.iterations for loop in view.loops] == [rows.height]
    assert rows["index"].to_list() == list(range(rows.height))


def test_totals_never_fall(tmp_path: Path) -> None:
    session = RankSession()
    before: dict[str, int] = {}
    for batch in batches_of(make("copy-bound", tmp_path), 50):
        session.take(batch)
        session.advance()
        for view in session.devices:
            now = {name: getattr(view, name) for name in COUNTERS}
            assert all(now[name] >= value for name, value in before.items())
            before = now
    assert before["copy_exposed_ns_total"] > 0


def test_changes_of_the_iteration_and_slow_ones_are_counted(tmp_path: Path) -> None:
    session = RankSession()
    outcome = feed(session, batches_of(make("graph-growth", tmp_path, 40), 500))
    (view,) = session.devices
    periods = [event.period for event in outcome.events if event.kind == "drift"]
    first = next(event.period for event in outcome.events if event.kind == "lock")
    assert view.growth_total == sum(b > a for a, b in pairwise([first, *periods])) > 3
    assert view.resets == 0
    assert view.period == periods[-1] > first


def test_slow_iterations_of_a_starving_job_are_noticed(tmp_path: Path) -> None:
    trace = make("starvation", tmp_path, 40)
    outcome = feed(RankSession(), batches_of(trace, 500))
    slow = [event.time_ns for event in outcome.events if event.kind == "slow"]
    rows = outcome.rows
    usual = rows["iteration_ns"].median()
    assert slow
    assert set(slow) <= set(rows.filter(pl.col("iteration_ns") > 1.8 * usual)["start_ns"])
