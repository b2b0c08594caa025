"""Spans of integers that are in each other, as a stack gives them: which one is open when each begins."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from deepprof.mining.native import address, library

Int64s = npt.NDArray[np.int64]


def nest(track: Int64s, start: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """Return the row of the last span that is open when each begins, -1 for none, and where each ends, in O(n).

    Spans [start, end) are in order of track, then start, of those that start together the longest first. One that would
    end after the span that it is in ends with it; in one without length nothing is.
    """
    columns = [np.ascontiguousarray(each, np.int64) for each in (track, start)]
    columns += [np.array(end, np.int64), np.empty(len(start), np.int64)]
    if (native := library()) is None:
        return _nest_slowly(*(each.tolist() for each in columns))
    native.dp_nest(*map(address, columns), len(start))
    return columns[3], columns[2]


def _nest_slowly(track: list[int], start: list[int], end: list[int], parent: list[int]) -> tuple[Int64s, Int64s]:
    """Do the same without the library; the chain of parents is the stack."""
    opened = -1
    for row, begin in enumerate(start):
        while opened >= 0 and (track[opened] != track[row] or end[opened] <= begin):
            opened = parent[opened]
        parent[row], end[row] = opened, end[row] if opened < 0 else min(end[row], end[opened])
        opened = row if end[row] > begin else opened
    return np.array(parent, np.int64), np.array(end, np.int64)
