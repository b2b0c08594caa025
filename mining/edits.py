"""The exact number of edits between one segment of the stream and the template."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from deepprof.mining.symbols import Symbols, as_symbols

if TYPE_CHECKING:
    from deepprof.mining.symbols import SymbolArray

Int64Array: TypeAlias = npt.NDArray[np.int64]

_OUTSIDE = 2**40
"""Cost of a cell outside the band: more than any number of edits, far from overflow."""


def edit_distance(a: Symbols, b: Symbols, band: int) -> int:
    """Return the fewest insertions, deletions and substitutions that turn `a` into `b` (Levenshtein distance).

    Only alignments within `band` symbols of the two ends' diagonals are examined (Ukkonen, 1985): the result is exact
    whenever it is at most `band`, else an upper bound. Common ends are stripped first; the rest, m symbols, takes m
    numpy steps of O(band + difference of the lengths) each, and as much memory.

    Raises:
        ValueError: for a negative band, and for symbols that `as_symbols` refuses.
    """
    if band < 0:
        raise ValueError(f"band must not be negative, not {band}")
    left, right = _strip_common_ends(as_symbols(a), as_symbols(b))
    if not left.size or not right.size:
        return max(left.size, right.size)
    return _banded(left, right, band)


def _strip_common_ends(left: SymbolArray, right: SymbolArray) -> tuple[SymbolArray, SymbolArray]:
    head = _common_head(left, right)
    left, right = left[head:], right[head:]
    tail = _common_head(left[::-1], right[::-1])
    return left[: left.size - tail], right[: right.size - tail]


def _common_head(left: SymbolArray, right: SymbolArray) -> int:
    size = min(left.size, right.size)
    differs = np.flatnonzero(left[:size] != right[:size])
    return int(differs[0]) if differs.size else size


def _banded(left: SymbolArray, right: SymbolArray, band: int) -> int:
    """Return the distance, one row per symbol of `left`; cell d of row i is column i + low + d of the classic table."""
    slope = right.size - left.size
    low, width = min(0, slope) - band, abs(slope) + 2 * band + 1
    offsets = np.arange(width)
    # `right` is padded at both ends with a symbol that equals no other; those cells never lead back into the table.
    padded = np.full(left.size + width + right.size, -1, np.int64)
    shift = -low
    padded[shift : shift + right.size] = right
    columns = low + offsets
    row = np.where((columns >= 0) & (columns <= right.size), columns, _OUTSIDE)
    for i, symbol in enumerate(left.tolist()):
        row = _next_row(row, padded[i : i + width] != symbol, offsets)
        first_valid = -(low + i + 1)
        row[: max(0, first_valid)] = _OUTSIDE
    return int(row[right.size - left.size - low])


def _next_row(row: Int64Array, differs: npt.NDArray[np.bool_], offsets: Int64Array) -> Int64Array:
    best = row + differs
    np.minimum(best[:-1], row[1:] + 1, out=best[:-1])
    # A cell may be reached from any cell to its left, at one edit per column: a running minimum of cost minus column.
    return np.minimum.accumulate(best - offsets) + offsets
