"""Enclosure: parents and crossings of slices, against a search over all pairs."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from deepprof.metrics.enclosure import enclose, order_slices

SLICES = st.lists(st.tuples(st.integers(0, 2), st.integers(-6, 30), st.integers(0, 12)), max_size=40)


def ordered(slices):
    """Tracks, starts and ends of (track, start, length), in their order."""
    track, start, length = np.array(slices, np.int64).reshape(-1, 3).T
    order = order_slices(track, start, start + length)
    return track[order], start[order], (start + length)[order]


def open_at(track, start, end, row):
    """The rows before `row` that are open when it starts."""
    return [j for j in range(row) if track[j] == track[row] and start[j] <= start[row] < end[j]]


@given(SLICES)
def test_parents_are_the_last_of_the_slices_that_are_open(slices):
    track, start, end = ordered(slices)
    found = enclose(track, start, end)
    crossed = False
    for i in range(len(track)):
        around = open_at(track, start, end, i)
        crossed |= any(end[j] < end[i] for j in around)
        if not crossed:
            assert found.depth[i] == len(around)
            assert found.parent[i] == max(around, default=-1)
    assert found.crosses.any() == crossed


def test_nothing_and_one_slice():
    assert enclose(*ordered([])).parent.tolist() == []
    assert enclose(*ordered([(1, 3, 4)])).parent.tolist() == [-1]


def test_what_ends_when_another_starts_is_not_around_it():
    found = enclose(*ordered([(0, 0, 10), (0, 2, 3), (0, 5, 5), (0, 5, 0), (0, 10, 0)]))
    assert found.parent.tolist() == [-1, 0, 0, 2, -1]
    assert found.depth.tolist() == [0, 1, 1, 2, 0]
    assert not found.crosses.any()
