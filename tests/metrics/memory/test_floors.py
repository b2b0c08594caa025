"""What iterations leave in use, against a walk over every event."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from deepprof.collectors.trace import MEMORY_EVENTS, Trace
from deepprof.metrics.memory.floors import find_floors, floors
from tests.loops import MS, make_loop
from tests.tables import Row, event, launch, make_trace, table


def with_memory(trace: Trace, rows: list[Row]) -> Trace:
    """Return the trace with memory events."""
    kept = trace.accounting.kept + len(rows)
    accounting = replace(trace.accounting, read=kept, kept=kept)
    return replace(trace, memory_events=table(rows, MEMORY_EVENTS), accounting=accounting)


def mark(time_ms: float, nbytes: int, total: int | None, device: int = 0) -> Row:
    return {"time_ns": round(time_ms * MS), "device": device, "nbytes": nbytes, "allocated_nbytes": total}


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 99)), max_size=30), st.sets(st.integers(0, 32), max_size=8)
)
def test_the_floor_is_the_least_that_a_walk_sees(events: list[tuple[int, int]], at: set[int]) -> None:
    events.sort(key=lambda e: e[0])
    times, in_use = (np.array([e[i] for e in events], np.int64) for i in (0, 1))
    begin = np.array(sorted(at), np.int64)
    least, known = floors(times, in_use, begin)
    assert len(least) == len(known) == max(0, len(begin) - 1)
    for i in range(len(least)):
        before = [v for t, v in events if t <= begin[i]]
        during = [v for t, v in events if begin[i] < t < begin[i + 1]]
        assert known[i] == bool(before)
        if before:
            assert least[i] == min([before[-1], *during])


def test_temporary_memory_does_not_count_wherever_it_lies() -> None:
    loop = make_loop([10.0] * 6)
    rows = [
        mark(0, 5, 100),
        *(m for i in range(7) for m in (mark(10 * i + 8, 900, 1000), mark(10 * i + 13, -900, 100))),
    ]
    found = find_floors(loop, with_memory(make_trace(), rows))
    assert found is not None
    assert found.absolute
    assert found.nbytes.tolist() == [100] * 6
    assert found.index.tolist() == [0, 1, 2, 3, 4, 5]


def test_iterations_begin_where_the_host_launches_them() -> None:
    loop = make_loop([10.0] * 6)
    starts = loop.iterations["start_ns"].to_list()
    kernels = [event(1, start, start + MS, correlation=i) for i, start in enumerate(starts)]
    calls = [launch(i, (i + 1) * MS, (i + 1) * MS + 10) for i in range(len(starts))]  # the host is far ahead
    rows = [mark(0.5, 100, 100), *(mark(1.5 + i, 50, 150 + 50 * i) for i in range(6))]
    found = find_floors(loop, with_memory(make_trace(kernels, calls), rows))
    assert found is not None
    assert found.nbytes.tolist() == [100, 150, 200, 250, 300, 350]


def test_without_totals_the_floor_counts_from_the_first_event() -> None:
    loop = make_loop([10.0] * 3)
    rows = [mark(-1, 7, None), mark(15, 5, None), mark(25, -2, None), mark(25, 99, None, device=1)]
    found = find_floors(loop, with_memory(make_trace(), rows))
    assert found is not None
    assert not found.absolute
    assert found.nbytes.tolist() == [7, 7, 10]


@pytest.mark.parametrize("times", [[], [10.0]])
def test_no_iteration_and_no_event(times: list[float]) -> None:
    assert find_floors(make_loop(times), make_trace()) is None
    found = find_floors(make_loop(times), with_memory(make_trace(), [mark(0, 1, 1)]))
    assert found is not None
    assert found.nbytes.tolist() == [1] * len(times)


def test_the_recorded_device_is_the_loops() -> None:
    assert find_floors(make_loop([10.0] * 3), with_memory(make_trace(), [mark(0, 1, 1, device=3)])) is None
