"""Nested spans, in C and in Python, against a search over all pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deepprof.mining.spans import nest
from tests.chance import examples

SPANS = st.lists(st.tuples(st.integers(0, 2), st.integers(-6, 30), st.integers(0, 12)), max_size=30)


def ordered(spans: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return tracks, starts and ends of (track, start, length), in their order."""
    track, start, length = np.array(sorted(spans, key=lambda s: (s[0], s[1], -s[2])), np.int64).reshape(-1, 3).T
    return track, start, start + length


@pytest.mark.usefixtures("engine")
@settings(max_examples=examples(400), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SPANS)
def test_each_lies_in_the_last_that_is_open_and_ends_with_it(spans: list[tuple[int, int, int]]) -> None:
    track, start, end = ordered(spans)
    parent, cut = nest(track, start, end)
    for row in range(len(track)):
        around = [j for j in range(row) if track[j] == track[row] and start[j] <= start[row] < cut[j]]
        assert parent[row] == max(around, default=-1)
        assert cut[row] == min([end[row], *cut[around]])


@pytest.mark.usefixtures("engine")
def test_spans_that_all_cross_are_cut_to_the_first() -> None:
    start = np.arange(1000)
    parent, end = nest(np.zeros(1000, np.int64), start, start + 500)
    assert np.unique(end).tolist() == [500, 1000]
    assert parent[:500].tolist() == list(range(-1, 499))
    assert parent[500] == -1


@pytest.mark.usefixtures("engine")
def test_the_ends_that_were_given_stay() -> None:
    track, start, end = ordered([(0, 0, 5), (0, 3, 9)])
    assert nest(track, start, end)[1].tolist() == [5, 5]
    assert end.tolist() == [5, 12]
