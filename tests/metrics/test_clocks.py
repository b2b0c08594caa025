"""Host and device on one clock: the offset is found where the trace shows it, else nothing is moved."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from deepprof.collectors.clocks import shift
from deepprof.collectors.trace import FAILED_ALLOCATIONS, MEMORY_EVENTS, SEGMENTS, Accounting, Trace
from deepprof.metrics.clocks import measure_lead, on_one_clock
from tests.tables import Row, event, launch, make_trace, span, table

US, MS = 1_000, 1_000_000
BEGIN = 50 * MS
NAMES = ("kernel", "cudaLaunchKernel", "cudaStreamSynchronize", "range")


def starving(lead: int = 0, count: int = 40, *, waits: bool = False, thread: int = 1) -> Trace:
    """Return a job in which the device idles until each launch; its clock is `lead` ahead of the host's."""
    kernels: list[Row] = []
    calls: list[Row] = []
    for number in range(count):
        called = BEGIN + number * 200 * US
        begin = called + (7 + number % 3) * US
        kernels.append(event(0, begin + lead, begin + 60 * US + lead, correlation=number))
        calls.append(launch(number, called, called + 5 * US, name=1))
        if waits:
            calls.append(launch(1000 + number, called + 6 * US, begin + 65 * US, name=2) | {"thread": thread})
    return make_trace(kernels, calls, [span(3, 0, MS), span(3, 5, 6, side="device")], NAMES)


@given(lead=st.integers(-15 * MS, 15 * MS), waits=st.booleans())
def test_the_offset_is_found_to_a_few_microseconds_or_is_harmless(lead: int, waits: bool) -> None:
    found = measure_lead(starving(lead, waits=waits))
    if -9 * US <= lead <= 33 * US:
        assert found == 0  # no launch after its kernel, and no latency that a device may not have
    else:
        assert abs(found - lead) <= 8 * US


@pytest.mark.parametrize("lead", [-3 * MS, 2 * MS])
def test_the_host_is_moved_and_nothing_else(lead: int) -> None:
    trace = starving(lead)
    moved = on_one_clock(trace)
    by = measure_lead(trace)
    assert moved.device_events.equals(trace.device_events)
    assert (moved.host_events["start_ns"] - trace.host_events["start_ns"]).unique().to_list() == [by]
    assert (moved.host_events["end_ns"] - trace.host_events["end_ns"]).unique().to_list() == [by]
    sides = moved.annotations.rows_by_key("side", named=True, unique=True)
    assert sides["host"]["start_ns"] == by
    assert sides["host"]["end_ns"] == MS + by
    assert sides["device"]["start_ns"] == 5
    assert moved.notes[-1].startswith(f"the device's clock is {abs(by) // US} µs {'ahead of' if by > 0 else 'behind'}")
    assert measure_lead(moved) == 0


def test_the_allocators_records_are_moved_with_the_host() -> None:
    trace = starving(2 * MS)
    tables = {
        "memory_events": table([{"time_ns": 5}], MEMORY_EVENTS),
        "segments": table([{"time_ns": 6, "device": 0, "stream": 0}], SEGMENTS),
        "failed_allocations": table([{"time_ns": 7, "device": 0}], FAILED_ALLOCATIONS),
    }
    kept = trace.accounting.kept + 3
    trace = replace(trace, accounting=Accounting(kept, kept), **tables)  # type: ignore[arg-type]
    moved, by = on_one_clock(trace), measure_lead(trace)
    assert [getattr(moved, name)["time_ns"].to_list() for name in tables] == [[at + by] for at in (5, 6, 7)]


def test_no_call_is_moved_before_the_clock_began() -> None:
    trace = starving(-3 * MS)
    early = shift(trace, MS - BEGIN)
    assert measure_lead(early) == measure_lead(trace) < -MS
    assert on_one_clock(early) is early


def test_clocks_that_agree_leave_the_trace_as_it_is() -> None:
    trace = starving()
    assert on_one_clock(trace) is trace


@pytest.mark.parametrize("count", range(8))
@pytest.mark.parametrize("lead", [-3 * MS, 2 * MS])
def test_a_few_launches_prove_nothing(count: int, lead: int) -> None:
    assert measure_lead(starving(lead, count)) == 0


def test_single_wrong_ids_do_not_move_the_clock() -> None:
    trace = starving(count=400)
    ids = np.arange(400)
    ids[[10, 300]] = 399, 398  # they were launched at the end, their kernels ran before
    kernels = trace.device_events.with_columns(correlation=ids.astype(np.uint64))
    assert measure_lead(make_trace(kernels.rows(named=True), trace.host_events.rows(named=True), (), NAMES)) == 0


def test_offsets_beyond_every_clock_are_mixed_up_ids() -> None:
    assert measure_lead(starving(-40 * MS)) == 0
    assert measure_lead(starving(40 * MS)) == 0


@pytest.mark.parametrize("longest", [21, 400])
@pytest.mark.parametrize("depth", [1, 50, 500])
def test_a_full_queue_is_no_clock_ahead(depth: int, longest: int) -> None:
    """The host is some kernels ahead; where all of them take equally long, latencies are equal too."""
    taken = np.random.default_rng(depth).integers(20, longest, 600) * US
    begin = np.append(0, np.cumsum(taken + US))[:-1] + 3 * MS
    called = np.append(np.arange(depth) * 8 * US, begin[: 600 - depth])
    kernels = [event(0, int(b), int(b + t), correlation=i) for i, (b, t) in enumerate(zip(begin, taken, strict=True))]
    calls = [launch(i, int(c), int(c) + 4 * US, name=1) for i, c in enumerate(called)]
    assert measure_lead(make_trace(kernels, calls, (), NAMES)) == 0


def test_waits_that_end_after_the_device_is_done_say_that_the_clocks_agree() -> None:
    """Every launch has its kernel wait 2 ms, and the host, which waits for it, agrees."""
    late = starving(2 * MS, waits=True)
    calls = [
        row | ({"end_ns": row["end_ns"] + 2 * MS} if row["name_id"] == 2 else {})
        for row in late.host_events.rows(named=True)
    ]
    kernels = late.device_events.rows(named=True)
    assert measure_lead(late) > MS
    assert measure_lead(make_trace(kernels, calls, (), NAMES)) == 0
    others = [row | ({"thread": 9} if row["name_id"] == 2 else {}) for row in calls]  # a watchdog's waits state nothing
    assert measure_lead(make_trace(kernels, others, (), NAMES)) > MS


def test_nothing_has_no_clock() -> None:
    assert measure_lead(make_trace()) == 0
    assert on_one_clock(make_trace([event(0, 0, 5)])).notes == ()
