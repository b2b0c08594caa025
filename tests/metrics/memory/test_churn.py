"""Calls for memory of the driver count for the device that their thread works for, of their process."""

from __future__ import annotations

import polars as pl
import pytest
from msgspec.structs import replace

from deepprof.collectors.trace import Trace
from deepprof.metrics.loop import Loop
from deepprof.metrics.memory.churn import measure_churn
from tests.deepprof.diagnosis.loops import Did, Job, compute

CALLS = [Did("cudaMalloc", 200, 220), Did("cudaFree", 400, 430)]
MANY = 8
SHIFT = 1_000_000  # of correlations


def make_job() -> tuple[Loop, Trace]:
    """A thread that launches on device 0 and calls for memory twice in every iteration."""
    return Job(1_000, [compute(900, launched=10)], CALLS, iterations=MANY).build()


def add(trace: Trace, host: pl.DataFrame, device: pl.DataFrame | None = None) -> Trace:
    """Return the trace with more rows."""
    events = trace.device_events if device is None else pl.concat([trace.device_events, device]).sort("start_ns")
    rows = pl.concat([trace.host_events, host]).sort("start_ns")
    kept = trace.accounting.kept + host.height + (0 if device is None else device.height)
    accounting = replace(trace.accounting, read=kept, kept=kept)
    return replace(trace, host_events=rows, device_events=events, accounting=accounting)


def call_of(trace: Trace) -> pl.DataFrame:
    return trace.host_events.filter(pl.col("correlation").is_null())


def test_calls_of_the_only_thread_count() -> None:
    loop, trace = make_job()
    found = measure_churn(loop, trace)
    assert found is not None
    assert (found.calls, found.time_ns, found.affected, found.iterations) == (2.0, 50_000.0, 4, 4)


def test_calls_of_another_process_do_not_count() -> None:
    loop, trace = make_job()
    other = call_of(trace).with_columns(process=pl.lit(2, pl.Int64), thread=pl.lit(9, pl.Int64))
    assert measure_churn(loop, add(trace, other)) == measure_churn(loop, trace)


@pytest.mark.parametrize("process", [1, 2])
def test_calls_of_a_thread_that_works_for_another_device_count_there(process: int) -> None:
    loop, trace = make_job()
    place = {"process": pl.lit(process, pl.Int64), "thread": pl.lit(9, pl.Int64)}
    once = call_of(trace).gather_every(2)  # the calls of cudaMalloc alone
    launches = trace.host_events.filter(pl.col("correlation").is_not_null())
    host = pl.concat([launches, once]).with_columns(**place, correlation=pl.col("correlation") + SHIFT).sort("start_ns")
    device = trace.device_events.with_columns(device=pl.lit(1, pl.UInt16), correlation=pl.col("correlation") + SHIFT)
    both = add(trace, host, device)
    assert measure_churn(loop, both) == measure_churn(loop, trace)
    other = measure_churn(replace(loop, device=1), both)
    assert other is not None
    assert (other.calls, other.time_ns) == (1.0, 20_000.0)


def test_a_thread_that_launches_nothing_works_for_the_only_device_of_its_process() -> None:
    loop, trace = make_job()
    moved = trace.host_events.with_columns(
        thread=pl.when(pl.col("correlation").is_null()).then(pl.lit(5, pl.Int64)).otherwise("thread")
    )
    found = measure_churn(loop, replace(trace, host_events=moved))
    assert found == measure_churn(loop, trace)


def test_of_several_devices_a_call_of_a_thread_that_launches_nothing_is_none_of_them() -> None:
    loop, trace = make_job()
    moved = trace.host_events.with_columns(
        thread=pl.when(pl.col("correlation").is_null()).then(pl.lit(5, pl.Int64)).otherwise("thread")
    )
    launches = trace.host_events.filter(pl.col("correlation").is_not_null())
    device = trace.device_events.with_columns(device=pl.lit(1, pl.UInt16), correlation=pl.col("correlation") + SHIFT)
    both = add(
        replace(trace, host_events=moved), launches.with_columns(correlation=pl.col("correlation") + SHIFT), device
    )
    found = measure_churn(loop, both)
    assert found is not None
    assert (found.calls, found.affected) == (0.0, 0)


def test_one_thread_that_serves_two_devices_in_turn() -> None:
    """A call is about the device of the launch before it on its thread: both calls follow the second launch here."""
    loop, trace = make_job()
    launches = trace.host_events.filter(pl.col("correlation").is_not_null())
    later = {name: pl.col(name) + 300_000 for name in ("start_ns", "end_ns")}  # between the two calls
    device = trace.device_events.with_columns(device=pl.lit(1, pl.UInt16), correlation=pl.col("correlation") + SHIFT)
    both = add(trace, launches.with_columns(**later, correlation=pl.col("correlation") + SHIFT), device)
    one, other = measure_churn(loop, both), measure_churn(replace(loop, device=1), both)
    assert one is not None
    assert other is not None
    assert (one.calls, one.time_ns) == (1.0, 20_000.0)  # cudaMalloc
    assert (other.calls, other.time_ns) == (1.0, 30_000.0)  # cudaFree


def test_without_launch_records_calls_count_for_the_only_device() -> None:
    loop, trace = Job(1_000, [compute(900, launched=None)], CALLS, iterations=MANY).build()
    found = measure_churn(loop, trace)
    assert found is not None
    assert found.calls == 2.0


def test_one_iteration_has_no_later_half() -> None:
    loop, trace = Job(1_000, [compute(900, launched=10)], CALLS, iterations=1).build()
    assert measure_churn(loop, trace) is None
