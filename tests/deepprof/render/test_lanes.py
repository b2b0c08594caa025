"""Lanes: on each of them slices only nest, checked against a viewer's stack and a search over all pairs."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from deepprof.render.lanes import DEEPEST, assign_lanes

TIMES = st.integers(-6, 30)
SLICES = st.lists(st.tuples(st.integers(0, 2), TIMES, st.integers(0, 12)), max_size=40)


def arrays(slices):
    """Tracks, starts and ends of (track, start, length)."""
    track, start, length = np.array(slices, np.int64).reshape(-1, 3).T
    return track, start, start + length


def crossings(slices):
    """How many pairs of (start, end) overlap without one lying in the other."""
    ordered = sorted(slices)
    return sum(a < c < b < d for i, (a, b) in enumerate(ordered) for c, d in ordered[i + 1 :])


def drops(slices):
    """How many slices a viewer with one stack drops: those that cross what is open, and those too deep."""
    stack, dropped = [], 0
    for start, end in sorted(slices, key=lambda s: (s[0], -s[1])):
        while stack and (
            stack[-1][1] < start or (stack[-1][1] == start and not (stack[-1][0] == stack[-1][1] and start == end))
        ):
            stack.pop()
        if stack and (start < stack[-1][1] < end or len(stack) >= 512):
            dropped += 1
        else:
            stack.append((start, end))
    return dropped


def by_lane(slices):
    """The (start, end) of every track's lanes."""
    track, start, end = arrays(slices)
    lanes = assign_lanes(track, start, end)
    found = {}
    for key, *slice_ in zip(zip(track, lanes, strict=True), start, end, strict=True):
        found.setdefault((int(key[0]), int(key[1])), []).append((int(slice_[0]), int(slice_[1])))
    return found


@given(SLICES)
def test_slices_of_a_lane_only_nest_and_no_viewer_drops_one(slices):
    found = by_lane(slices)
    assert sum(map(len, found.values())) == len(slices)
    assert all(crossings(lane) == drops(lane) == 0 for lane in found.values())


@given(SLICES)
def test_a_track_without_a_crossing_keeps_one_lane(slices):
    found = by_lane(slices)
    for track in {track for track, _ in found}:
        everything = [(start, start + length) for number, start, length in slices if number == track]
        assert (crossings(everything) == 0) == ((track, 1) not in found)


@given(SLICES)
def test_lanes_do_not_depend_on_the_order_of_the_slices(slices):
    track, start, end = arrays(slices)
    turned = assign_lanes(track[::-1], start[::-1], end[::-1])
    assert sorted(zip(track, start, end, assign_lanes(track, start, end), strict=True)) == sorted(
        zip(track[::-1], start[::-1], end[::-1], turned, strict=True)
    )


def test_nothing_and_one_slice():
    assert assign_lanes(*arrays([])).tolist() == []
    assert assign_lanes(*arrays([(0, 5, 3)])).tolist() == [0]


def test_kernels_that_each_overlap_the_one_before_take_two_lanes():
    slices = [(0, 10 * i, 12) for i in range(1000)]
    assert assign_lanes(*arrays(slices)).tolist() == [0, 1] * 500


def test_slices_that_lie_too_deep_go_to_another_lane():
    deep = [(0, i, 2000 - 2 * i) for i in range(600)]
    marks = [(1, 7, 0)] * 600
    for slices in (deep, marks):
        found = by_lane(slices)
        assert [len(lane) for lane in found.values()] == [DEEPEST, DEEPEST, 600 - 2 * DEEPEST]
        assert all(drops(lane) == 0 for lane in found.values())


def test_a_staircase_of_any_height_gets_a_lane_per_step():
    stairs = [(0, i, 30_000) for i in range(20_000)] + [(0, 60_000 + i, 5) for i in range(100)]
    found = by_lane(stairs)
    assert len(found) == 20_000
    assert all(drops(lane) == 0 for lane in found.values())
