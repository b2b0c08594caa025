"""Memory in use over time, against a walk over every event."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from deepprof.metrics.memory.floors import find_floors
from deepprof.metrics.memory.use import measure_peaks, read_use, sum_up
from tests.loops import make_loop
from tests.metrics.memory.test_floors import mark, with_memory
from tests.tables import make_trace

MIB = 1 << 20


@given(st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 9)), min_size=1, max_size=60), st.integers(1, 40))
def test_stretches_have_what_a_walk_finds(events: list[tuple[int, int]], most: int) -> None:
    events.sort(key=lambda event: event[0])
    time, in_use = (np.array(column, np.int64) for column in zip(*events, strict=True))
    begins, low, high = sum_up(time, in_use, most)
    span = int(time[-1] - time[0]) + 1
    length = -(-span // most)
    many = -(-span // length)
    assert len(begins) == len(low) == len(high) == many <= most
    values: list[list[int]] = [[] for _ in range(many)]
    for at, value in events:
        values[(at - int(time[0])) // length].append(value)
    held: int | None = None
    for row, inside in enumerate(values):
        seen = inside + ([] if held is None else [held])
        moment = sum(at == time[0] for at, _ in events) - 1 if row == 0 else 0
        assert (low[row], high[row]) == (min(seen[moment:]), max(seen))
        held = inside[-1] if inside else held
    assert begins.tolist() == [row * length for row in range(many)]


def test_what_is_older_than_the_recording_is_in_use_from_its_begin_on() -> None:
    time, in_use = np.array([5, 5, 5, 7, 9], np.int64), np.array([100, 300, 700, 900, 500], np.int64)
    begins, low, high = sum_up(time, in_use, 2)
    assert (begins.tolist(), low.tolist(), high.tolist()) == ([0, 3], [700, 500], [900, 900])


def test_an_iteration_rises_to_its_peak_and_falls_again() -> None:
    marks = [mark(0, 100, 100)]
    for i in range(4):
        marks += [mark(10 * i + 2, 900, 1000), mark(10 * i + 6, -500, 500), mark(10 * i + 7, -400, 100)]
    trace, loop = with_memory(make_trace(), marks), make_loop([10.0] * 4)
    use = read_use(trace.memory_events, 0)
    assert use is not None
    assert (use.peak, use.reserved_nbytes, use.absolute) == (1, None, True)
    first = measure_peaks(use, loop, trace).row(0, named=True)
    assert (first["least_nbytes"], first["peak_nbytes"], first["peak_ns"]) == (100, 1000, 2_000_000)
    assert (first["ramp_up_ns"], first["high_ns"], first["ramp_down_ns"]) == (2_000_000, 4_000_000, 4_000_000)
    assert measure_peaks(use, loop, trace)["peak_nbytes"].to_list() == [1000] * 4


def test_no_events_one_event_and_one_iteration() -> None:
    assert read_use(make_trace().memory_events, 0) is None
    trace = with_memory(make_trace(), [mark(0, 5, None)])
    use = read_use(trace.memory_events, 0)
    assert use is not None
    assert (use.allocated_nbytes.tolist(), use.absolute) == ([5], False)
    assert measure_peaks(use, make_loop([10.0]), trace).rows() == [(0, 0, 5, 5, 0, None, 0, 10_000_000, 0)]
    assert measure_peaks(use, make_loop([]), trace).height == 0


def test_totals_of_two_processes_on_one_device_add_up() -> None:
    """Each states its own: what is in use is neither the one nor the other."""
    stated = [(1, 100), (2, 50), (1, 130), (2, 20), (1, 100)]
    rows = [
        mark(k, 1, total) | {"process": process, "reserved_nbytes": 200} for k, (process, total) in enumerate(stated)
    ]
    trace = with_memory(make_trace(), rows)
    use = read_use(trace.memory_events, 0)
    assert use is not None
    assert use.allocated_nbytes.tolist() == [150, 150, 180, 150, 120]
    assert use.reserved_nbytes is not None
    assert use.reserved_nbytes.tolist() == [400] * 5
    found = find_floors(make_loop([1.0] * 4), trace)
    assert found is not None
    assert found.nbytes.tolist() == [150, 150, 180, 150]
