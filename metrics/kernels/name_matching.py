"""Which pattern of a table matches each of many names first, with few passes over the names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.metrics.kernels.pattern_tables import write_ascii

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MUCH_TEXT = 256 * 1024  # bytes of names: to tell patterns apart takes longer there than to compile them twice
AT_ONCE = 16  # patterns that are told apart by one expression: with more, long names take much longer


def find_first(names: pl.Series, patterns: Sequence[str]) -> Int64s:
    """Return for each name the number of the first pattern that is found in it, -1 for none.

    Of much text, names without any of the patterns are left out first, by one expression.
    """
    found = np.full(len(names), -1, np.int64)
    rows = np.arange(len(names))
    if len(rows) and patterns and (names.str.len_bytes().sum() or 0) > MUCH_TEXT:
        rows = np.flatnonzero(search(names, patterns))
    for first in range(0, len(patterns), AT_ONCE):
        if not len(rows):
            break
        chosen = _tell_apart(names.gather(rows), patterns[first : first + AT_ONCE])
        hit = chosen >= 0
        found[rows[hit]] = first + chosen[hit]
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


def search_each(names: pl.Series, patterns: Sequence[str]) -> list[Bools]:
    """Return for each of the patterns in which names it is found."""
    found = names.to_frame("name").select(
        pl.col("name").str.contains(write_ascii(pattern)).alias(str(number)) for number, pattern in enumerate(patterns)
    )
    return [column.to_numpy() for column in found]


def _tell_apart(names: pl.Series, patterns: Sequence[str]) -> Int64s:
    """Return the number of the first of a few patterns that is found in each name, -1 for none.

    An expression prefers its earlier alternatives. Each begins with a group of its own: equal beginnings would be
    merged, and with them the order.
    """
    joined = "|".join(f"(?<p{number}>)(?s:.*?)(?:{write_ascii(each)})" for number, each in enumerate(patterns))
    try:
        groups = names.str.extract_groups(f"^(?:{joined})").struct.unnest()
    except pl.exceptions.ComputeError:  # too large as one expression
        return _tell_halves(names, patterns)
    is_found = groups.select(pl.col(f"p{number}").is_not_null() for number in range(len(patterns))).to_numpy()
    return np.where(is_found.any(axis=1), is_found.argmax(axis=1), -1)


def _tell_halves(names: pl.Series, patterns: Sequence[str]) -> Int64s:
    """Return the same by two smaller expressions."""
    if len(patterns) == 1:
        return search(names, patterns).astype(np.int64) - 1
    half = len(patterns) // 2
    first, second = _tell_apart(names, patterns[:half]), _tell_apart(names, patterns[half:])
    return np.where(first >= 0, first, np.where(second >= 0, half + second, -1))
