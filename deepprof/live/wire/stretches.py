"""Tables that are each sorted by time, divided together into stretches of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["Ends", "find_stretches"]

Ends = tuple[int, ...]
"""How many rows of each table come before a place in time."""


def find_stretches(starts: Sequence[NDArray[np.int64]], since: Ends, until: Ends, records: int) -> Iterator[Ends]:
    """Yield where each stretch of `records` rows ends, from `since` to `until`; the last may have fewer.

    `starts` are the sorted times of each table. Among rows of the same time those of an earlier table come first. Takes
    memory for one stretch.
    """
    at = since
    while at != until:
        rest = [times[a : min(a + records, b)] for times, a, b in zip(starts, at, until, strict=True)]
        taken = count_taken(rest, records)
        at = tuple(a + int(more) for a, more in zip(at, taken, strict=True))
        yield at


def count_taken(rest: Sequence[NDArray[np.int64]], records: int) -> Sequence[int]:
    """Return how many rows of each table are among the first `records` rows."""
    sizes = [len(times) for times in rest]
    if sum(sizes) <= records:
        return sizes
    if max(sizes) == sum(sizes):
        return [min(size, records) for size in sizes]
    sources = np.repeat(np.arange(len(rest)), sizes)
    order = np.argsort(np.concatenate(rest), kind="stable")[:records]
    counts: list[int] = np.bincount(sources[order], minlength=len(rest)).tolist()
    return counts
