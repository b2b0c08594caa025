"""Unions of time intervals: same-stream overlap is real (PDL, HIP), so durations are never just added up.

A span set is a pair of int64 arrays (starts, ends) in nanoseconds. `union` returns disjoint, sorted spans; the other
functions take such a union. All are O(n log n) or better, in numpy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Spans", "covered", "union"]

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Spans:
    """Disjoint spans sorted by time, touching ones merged: `starts[i] < ends[i] < starts[i + 1]`."""

    starts: Int64s
    ends: Int64s

    @property
    def total_ns(self) -> int:
        """Their length together."""
        return int((self.ends - self.starts).sum())


def union(starts: Int64s, ends: Int64s) -> Spans:
    """Return the union of the spans [start, end); empty spans vanish."""
    keep = ends > starts
    starts, ends = starts[keep], ends[keep]
    if not len(starts):
        return Spans(np.empty(0, np.int64), np.empty(0, np.int64))
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    opens = np.flatnonzero(np.append(True, starts[1:] > reach[:-1]))
    closes = np.append(opens[1:] - 1, len(starts) - 1)
    return Spans(starts[opens], reach[closes])


def covered(spans: Spans, starts: Int64s, ends: Int64s) -> Int64s:
    """Return how many nanoseconds of each window [start, end) the spans cover; windows may overlap."""
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
