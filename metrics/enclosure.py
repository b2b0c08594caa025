"""Which slice of time is in which: operators within operators, launches within operators, on any number of tracks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

Int64s = npt.NDArray[np.int64]


class _Enclosure(Struct, frozen=True, eq=False):
    """How slices in the order of `order_slices` are within each other, arrays of one row per slice.

    `parent` is the row of the innermost slice that is open when this one starts, -1 for none, and `depth` counts those
    that are open; both are valid as long as nothing crosses. `crosses`: the slice ends after its parent.
    """

    parent: Int64s
    depth: Int64s
    crosses: npt.NDArray[np.bool_]


def order_slices(tracks: Int64s, starts: Int64s, ends: Int64s, ranks: Int64s | None = None) -> Int64s:
    """Return the order of slices: by track, then by start, of those that start together the longest first.

    Those that end together too stand by their `ranks`, or as they stood.
    """
    return np.lexsort((-ends, starts, tracks) if ranks is None else (ranks, -ends, starts, tracks))


def enclose(tracks: Int64s, starts: Int64s, ends: Int64s) -> _Enclosure:
    """Return how slices [start, end) in the order of `order_slices` are within each other, in O(n log n).

    `tracks` are non-negative numbers. A slice that ends when another one starts is not open any more; a slice without
    length is in others, but nothing is in it.
    """
    begin, finish = separate(tracks, starts, ends)
    long = finish > begin
    opened: Int64s = np.cumsum(long) - long  # slices with a length before this row
    depth = opened - np.searchsorted(np.sort(finish[long]), begin, side="right")
    parent = _parents(depth, long)
    return _Enclosure(parent, depth, long & (parent >= 0) & (finish > finish[parent]))


def separate(tracks: Int64s, starts: Int64s, ends: Int64s) -> tuple[Int64s, Int64s]:
    """Return starts and ends as ranks, those of every track above all of the tracks before."""
    times, ranks = np.unique(np.concatenate([starts, ends]), return_inverse=True)
    shift = tracks * (len(times) + 1)
    return ranks[: len(starts)] + shift, ranks[len(starts) :] + shift


def _parents(depth: Int64s, long: npt.NDArray[np.bool_]) -> Int64s:
    """Return for every row the last one before it that is one level up and has a length, -1 at the top."""
    rows, size = np.arange(len(depth)), len(depth) + 1
    keys = np.sort((depth * size + rows)[long])
    at = np.searchsorted(keys, (depth - 1) * size + rows) - 1
    found = keys[np.maximum(at, 0)] if len(keys) else np.full(len(depth), -1)
    return np.where((at >= 0) & (found // size == depth - 1), found % size, -1)
