"""Which pattern of a table matches each of many names first, with few passes over the names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.metrics.kernels.pattern_tables import write_ascii

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

AT_ONCE = 12  # patterns in one expression


def find_first(names: pl.Series, patterns: Sequence[str]) -> Int64s:
    """Return for each name the number of the first pattern that is found in it, -1 for none.

    Names without any of a few patterns are left out first, by one expression: most of the others are searched for none
    of these alone.
    """
    found = np.full(len(names), -1, np.int64)
    rows = np.arange(len(names))
    for first in range(0, len(patterns), AT_ONCE):
        some = patterns[first : first + AT_ONCE]
        hit = search(names.gather(rows), some)
        if hit.any():
            found[rows[hit]] = first + _narrow(names.gather(rows[hit]), some)
        rows = rows[~hit]
    return found


def search(names: pl.Series, patterns: Sequence[str]) -> Bools:
    """Return in which names any of the patterns is found."""
    if not len(names):
        return np.zeros(0, np.bool_)
    joined = "|".join(f"(?:{write_ascii(pattern)})" for pattern in patterns)
    try:
        return names.str.contains(joined).to_numpy()
    except pl.exceptions.ComputeError:  # too large as one expression
        if len(patterns) == 1:
            raise
        half = len(patterns) // 2
        either: Bools = search(names, patterns[:half]) | search(names, patterns[half:])
        return either


def _narrow(names: pl.Series, patterns: Sequence[str]) -> Int64s:
    """Return the number of the first pattern found in each name; each has one of them."""
    found = np.full(len(names), len(patterns) - 1, np.int64)
    rows = np.arange(len(names))
    for number, pattern in enumerate(patterns[:-1]):
        hit = search(names.gather(rows), [pattern])
        found[rows[hit]] = number
        rows = rows[~hit]
        if not len(rows):
            break
    return found
