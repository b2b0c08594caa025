"""The shape of memory over iterations, against a walk over every nanosecond."""

from __future__ import annotations

from itertools import pairwise
from statistics import median

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.metrics.memory.memory_shapes import MEMORY_SHAPES, _cut_steps, _describe, measure_memory_shapes
from tests.loops import make_loop
from tests.metrics.series.test_memory import mark, with_memory
from tests.tables import make_trace


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), min_size=1, max_size=20),
    st.sets(st.integers(0, 42), min_size=2, max_size=6),
)
def test_windows_are_as_a_walk_over_every_moment_sees_them(events: list[tuple[int, int]], at: set[int]) -> None:
    events.sort(key=lambda each: each[0])
    times, in_use = (np.array([each[i] for each in events], np.int64) for i in (0, 1))
    begin = np.array(sorted(at), np.int64)
    steps = _cut_steps(times, in_use, begin)
    found = _describe(steps)
    expected = []
    for first, last in pairwise(begin.tolist()):
        if first < times[0]:
            continue
        held = [[v for t, v in events if t <= moment][-1] for moment in range(first, last)]
        peak, kept = max(held), min(held)
        reached = held.index(peak)
        left = max(k for k, value in enumerate(held) if 2 * value >= peak + kept) + 1
        expected.append((peak, kept, reached / (last - first), (left - reached) / (last - first)))
    columns = found.select("peak_nbytes", "kept_nbytes", "ramp_ratio", "tail_ratio").to_numpy()
    np.testing.assert_allclose(columns, np.array(expected).reshape(-1, 4))


def test_an_iteration_that_ramps_up_and_down() -> None:
    """Of 10 ms: 100 kept, 900 more from 2 ms on, the peak of 1,100 at 4 ms, half of the rise gone at 7 ms."""
    rows = [mark(-1, 100, 100)]
    for i in range(4):
        at = 10 * i
        rows += [mark(at + 2, 900, 1000), mark(at + 4, 100, 1100), mark(at + 7, -600, 500), mark(at + 9, -400, 100)]
    found = measure_memory_shapes(make_loop([10.0] * 3), with_memory(make_trace(), rows))
    assert found["iteration"].to_list() == [0, 1, 2]
    assert found.row(1) == pytest.approx((1, 1100, 100, 100 / 1100, 0.4, 0.3))


def test_without_totals_no_share_is_said() -> None:
    rows = [mark(-1, 7, None), mark(5, 5, None), mark(8, -5, None)]
    found = measure_memory_shapes(make_loop([10.0] * 2), with_memory(make_trace(), rows))
    assert found["peak_nbytes"].to_list() == [12, 7]
    assert found["kept_ratio"].to_list() == [None, None]


def test_what_began_before_the_first_event_is_not_told() -> None:
    found = measure_memory_shapes(make_loop([10.0] * 4), with_memory(make_trace(), [mark(15, 5, 5), mark(25, 1, 6)]))
    assert found["iteration"].to_list() == [2, 3]
    assert median(found["peak_nbytes"].to_list()) == 6


@pytest.mark.parametrize("times", [[], [10.0]])
def test_no_event_and_no_iteration_that_another_follows(times: list[float]) -> None:
    loop = make_loop(times)
    assert measure_memory_shapes(loop, make_trace()).schema == pl.Schema(MEMORY_SHAPES)
    other = with_memory(make_trace(), [mark(-1, 5, 5, device=1)])
    assert measure_memory_shapes(loop, other).height == 0
    one = with_memory(make_trace(), [mark(-1, 5, 5)])
    assert measure_memory_shapes(loop, one).height == len(times)
