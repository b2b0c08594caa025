"""Unions of time intervals: same-stream overlap is real (PDL, HIP), so durations are never just added up.

A span set is a pair of int64 arrays (starts, ends) in nanoseconds. `union` returns disjoint, sorted spans; the other
functions take such a union. All are O(n log n) or better, in numpy. `paint` layers several of them over one another.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

Int64s = npt.NDArray[np.int64]


class Spans(Struct, frozen=True):
    """Disjoint spans sorted by time, touching ones merged: `starts[i] < ends[i] < starts[i + 1]`."""

    starts: Int64s
    ends: Int64s

    @property
    def total_ns(self) -> int:
        """Total length of the spans."""
        return int((self.ends - self.starts).sum())


NOTHING = Spans(np.empty(0, np.int64), np.empty(0, np.int64))


def union(starts: Int64s, ends: Int64s) -> Spans:
    """Return the union of the spans [start, end); empty spans vanish."""
    keep = ends > starts
    starts, ends = starts[keep], ends[keep]
    if not len(starts):
        return NOTHING
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    opens = np.flatnonzero(np.append(True, starts[1:] > reach[:-1]))
    closes = np.append(opens[1:] - 1, len(starts) - 1)
    return Spans(starts[opens], reach[closes])


def covered(spans: Spans, starts: Int64s, ends: Int64s) -> Int64s:
    """Return how many nanoseconds of every window [start, end) the spans cover; windows may overlap."""
    return elapsed(spans, ends) - elapsed(spans, np.minimum(starts, ends))


def elapsed(spans: Spans, times: Int64s) -> Int64s:
    """Return the covered time before each of `times`."""
    if not len(spans.starts):
        return np.zeros(len(times), np.int64)
    lengths = spans.ends - spans.starts
    before = np.append(0, np.cumsum(lengths))
    index = np.searchsorted(spans.starts, times, side="right")
    inside = np.clip(times - spans.starts[index - 1], 0, lengths[index - 1])
    return np.where(index > 0, before[index - 1] + inside, 0)


class Painted(Struct, frozen=True, eq=False):
    """Time cut into segments [bounds[i], bounds[i + 1]) of one colour each; `bounds` has one element more.

    A colour is the number of a layer, or -1 where there is none.
    """

    bounds: Int64s
    colours: npt.NDArray[np.int16]


def paint(layers: Sequence[Spans]) -> Painted:
    """Return the segments from the first start to the last end, each in the colour of the first layer over it."""
    edges = [edge for spans in layers for edge in (spans.starts, spans.ends)]
    bounds = np.unique(np.concatenate(edges)) if edges else np.empty(0, np.int64)
    colours = np.full(max(0, len(bounds) - 1), -1, np.int16)
    for number in range(len(layers) - 1, -1, -1):  # the first layer is painted last, over all others
        colours[_lies_over(layers[number], bounds)] = number
    return Painted(bounds, colours)


def _lies_over(spans: Spans, bounds: Int64s) -> npt.NDArray[np.bool_]:
    """Return which segments between `bounds` a span covers; `bounds` contains all edges of `spans`."""
    change = np.zeros(len(bounds), np.int8)
    change[np.searchsorted(bounds, spans.starts)] += 1
    change[np.searchsorted(bounds, spans.ends)] -= 1
    return np.asarray(np.cumsum(change[:-1]) > 0)


def intersect(ones: Spans, others: Spans) -> Spans:
    """Return the time that is in both."""
    bounds = np.unique(np.concatenate([ones.starts, ones.ends, others.starts, others.ends]))
    both = _lies_over(ones, bounds) & _lies_over(others, bounds)
    return union(bounds[:-1][both], bounds[1:][both])


def divide(starts: Int64s, ends: Int64s, *, behind: npt.NDArray[np.bool_] | None = None) -> npt.NDArray[np.float64]:
    """Return for every span [start, end) its part of their union, in ns: where several are, each has an equal part.

    The parts add up to the length of the union. Spans that are `behind` have only what no other span covers; those that
    end before they start have nothing.
    """
    ends = np.maximum(starts, ends)
    if not len(starts) or _are_apart(starts, ends):
        return (ends - starts).astype(np.float64)
    later = np.zeros(len(starts), np.bool_) if behind is None else behind
    bounds = np.sort(np.concatenate([starts, ends]), kind="stable")  # of two sorted halves: quicker than np.unique
    first, last = np.searchsorted(bounds, starts), np.searchsorted(bounds, ends)
    parts, free = np.zeros(len(starts)), np.diff(bounds)
    for chosen in (~later, later):
        change = np.bincount(first[chosen], minlength=len(bounds)) - np.bincount(last[chosen], minlength=len(bounds))
        many = np.cumsum(change)[:-1]
        before = np.append(0.0, np.cumsum(np.where(many > 0, free / np.maximum(many, 1), 0.0)))
        parts[chosen] = before[last[chosen]] - before[first[chosen]]
        free = np.where(many > 0, 0, free)
    return np.maximum(parts, 0.0)


def _are_apart(starts: Int64s, ends: Int64s) -> bool:
    """Return whether each span starts after the end of all before it: most streams run one kernel after another."""
    return bool((starts[1:] >= np.maximum.accumulate(ends)[:-1]).all())
