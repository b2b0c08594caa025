"""Nesting depths of ranges on their threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def count_depths(starts: Array, ends: Array, threads: Array) -> Array:
    """Return for each range how many ranges of its thread are open where it begins, shape (n,).

    Of ranges that begin together the longer one is the outer; of equal ones the first. A range that ends where another
    begins is closed there.
    """
    depths = np.zeros(len(starts), np.int64)
    order = np.lexsort((-ends, starts, threads))
    bounds = np.flatnonzero(np.diff(threads[order])) + 1
    for part in np.split(order, bounds):
        depths[part] = _depths_in_order(starts[part], ends[part])
    return depths


def _depths_in_order(starts: Array, ends: Array) -> Array:
    """Return the depths on one thread, whose ranges are sorted with the outer one first."""
    lasting = ends > starts
    opened: Array = np.cumsum(lasting) - lasting  # a range without length is never open
    closed = np.searchsorted(np.sort(ends[lasting]), starts, side="right")
    return opened - closed
