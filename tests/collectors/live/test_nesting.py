"""Depths of ranges, against stacks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from deepprof.collectors.live.torch_events import count_depths


@st.composite
def nested(draw: st.DrawFn) -> list[tuple[int, int, int, int]]:
    """Return ranges (start, end, thread, depth) as calls that begin and end on one thread or two."""
    ranges: list[tuple[int, int, int, int]] = []
    for thread in range(draw(st.integers(1, 2))):
        clock, stack = 0, []
        for _ in range(draw(st.integers(0, 20))):
            clock += 1
            if stack and draw(st.booleans()):
                ranges.append((stack.pop(), clock, thread, len(stack)))
            else:
                stack.append(clock)
        while stack:
            clock += 1
            ranges.append((stack.pop(), clock, thread, len(stack)))
    return draw(st.permutations(ranges))


@given(nested())
def test_depths_are_those_of_the_calls(ranges: list[tuple[int, int, int, int]]) -> None:
    starts, ends, threads, depths = np.array(ranges, np.int64).reshape(-1, 4).T
    assert count_depths(starts, ends, threads).tolist() == depths.tolist()


def test_ranges_that_begin_together_touch_or_have_no_length() -> None:
    starts, ends = np.array([0, 0, 5, 5, 10]), np.array([10, 5, 5, 9, 12])
    assert count_depths(starts, ends, np.zeros(5, int)).tolist() == [0, 1, 2, 1, 0]
