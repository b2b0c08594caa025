"""Lanes for slices that overlap without nesting: viewers keep a stack per track and drop slices that cross it.

A track can hold a slice only if it is within the slice that is open when it starts, or if none is open. Nearly all
tracks are like that, which numpy checks for all of them at once; only sections with a crossing are handled slice by
slice.
"""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

from deepprof.metrics.enclosure import enclose, order_slices, separate

Int64s = npt.NDArray[np.int64]
Lane = list[tuple[int, int]]  # the slices that are open, as start and end

DEEPEST = 256  # most nested slices on a lane: Perfetto drops those 512 deep, older versions from 256 on
MAX_LANES = 32  # lanes of a track that are searched for space; the slices on further ones do not nest at all


def assign_lanes(tracks: Int64s, starts: Int64s, ends: Int64s) -> Int64s:
    """Return a lane (0, 1 …) of its track for every slice [start, end), so that on a lane slices only nest.

    `tracks` are non-negative numbers. In the order of their starts, slices take the first lane with space for them.
    Takes O(n log n) and a Python call for every slice of a section that has a crossing in it.
    """
    lanes = np.zeros(len(starts), np.int64)
    order = order_slices(tracks, starts, ends)
    track, start, end = tracks[order], starts[order], np.maximum(starts, ends)[order]
    begin, finish = separate(track, start, end)
    found = enclose(track, start, end)
    misfits = found.crosses | (found.depth + _run_length(begin, finish > begin) >= DEEPEST)
    for first, last in _stretches(begin, finish, misfits):
        lanes[order[first:last]] = _sort_out(start[first:last].tolist(), end[first:last].tolist())
    return lanes


def _run_length(begin: Int64s, long: npt.NDArray[np.bool_]) -> Int64s:
    """Return how many slices without length are right before each such slice at the same time: viewers stack them."""
    rows = np.arange(len(begin))
    fresh = np.append(True, (begin[1:] != begin[:-1]) | long[1:] | long[:-1])[: len(begin)]
    return np.where(long, 0, rows - np.maximum.accumulate(np.where(fresh, rows, 0)))


def _stretches(begin: Int64s, finish: Int64s, misfits: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the rows [first, last) of the sections with a misfit; between sections no slice is open."""
    if not misfits.any():
        return []
    reach = np.maximum.accumulate(finish)
    bounds = np.append(np.flatnonzero(np.append(True, begin[1:] > reach[:-1])), len(begin))
    wanted = np.add.reduceat(misfits, bounds[:-1]) > 0
    return list(zip(bounds[:-1][wanted].tolist(), bounds[1:][wanted].tolist(), strict=True))


def _sort_out(starts: list[int], ends: list[int]) -> list[int]:
    """Return the first lane with space for every slice, in the order given."""
    lanes: list[Lane] = []
    spare: list[tuple[int, int]] = []
    return [_place(lanes, spare, start, end) for start, end in zip(starts, ends, strict=True)]


def _place(lanes: list[Lane], spare: list[tuple[int, int]], start: int, end: int) -> int:
    """Put a slice on the first lane where it nests, a new one if need be, and return the lane's number."""
    for number, lane in enumerate(lanes):
        _close(lane, start, end)
        if not lane or (end <= lane[-1][1] and len(lane) < DEEPEST):
            lane.append((start, end))
            return number
    if len(lanes) < MAX_LANES:
        lanes.append([(start, end)])
        return len(lanes) - 1
    return _place_flat(spare, start, end)


def _place_flat(spare: list[tuple[int, int]], start: int, end: int) -> int:
    """Put a slice on a lane where none is open; `spare` is a heap of when such lanes become free, and their numbers."""
    if spare and spare[0][0] < start:
        number = spare[0][1]
        heapq.heapreplace(spare, (end, number))
        return number
    heapq.heappush(spare, (end, MAX_LANES + len(spare)))
    return MAX_LANES + len(spare) - 1


def _close(lane: Lane, start: int, end: int) -> None:
    """Remove ended slices from the lane; of slices without length at one time, each is within the one before."""
    while lane and (lane[-1][1] < start or (lane[-1][1] == start and not lane[-1][0] == start == end)):
        lane.pop()
