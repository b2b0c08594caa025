"""Checks of every sequence that enters the miner: what counts as symbols, and how they are numbered inside."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

SymbolArray: TypeAlias = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
Symbols: TypeAlias = npt.ArrayLike

MAX_SYMBOL = 2**32 - 2
"""The largest symbol; one value stays free so that a symbol outside every template exists."""

UINT16, UINT32 = np.dtype(np.uint16), np.dtype(np.uint32)
"""numpy keeps one object for each, so that `is` is a fast check; `==` is used where correctness depends on it."""

_PLAIN = 0x101
"""numpy's flags for contiguous and aligned memory."""

_TABLE_SLACK = 1 << 16


def as_symbols(sequence: Symbols) -> SymbolArray:
    """Return the sequence as a contiguous, aligned one-dimensional array, uint16 where all symbols fit, else uint32.

    A contiguous uint16 array comes back as it is, not copied. Any integer type and stride is accepted, and so is an
    empty sequence. O(n).

    Raises:
        ValueError: for more than one dimension, values that are not integers (floats and NaN too), and integers
            below 0 or above 2^32 - 2.
    """
    array = np.asarray(sequence)
    if array.dtype is UINT16 and array.ndim == 1 and array.flags.num & _PLAIN == _PLAIN:
        return array  # what every chunk of a stream should be
    if array.ndim != 1:
        raise ValueError(f"symbols must be a one-dimensional sequence, not {array.ndim}-dimensional")
    if array.size == 0:
        return np.empty(0, np.uint16)
    if array.dtype.kind not in "iu":
        raise ValueError(f"symbols must be integers, not {array.dtype}; number the names first")
    return _narrow(array)


def _narrow(array: npt.NDArray[Any]) -> SymbolArray:
    if array.dtype.kind == "i" and (least := int(array.min())) < 0:
        raise ValueError(f"symbols must not be negative, found {least}")
    if (largest := int(array.max())) > MAX_SYMBOL:
        raise ValueError(f"symbols must not exceed {MAX_SYMBOL} (2^32 - 2), found {largest}")
    return np.require(array, UINT16 if largest < 2**16 else UINT32, ["C", "A"])


def renumber(symbols: SymbolArray) -> tuple[SymbolArray, int]:
    """Return the symbols numbered densely in their own order, and how many numbers there are at most.

    The order is kept, so that the suffix array stays the same. Symbols that are dense enough already (below the length)
    come back as they are. O(n), or O(n log n) for symbols far above the length.
    """
    if symbols.size == 0:
        return symbols, 0
    largest = int(symbols.max())
    if largest < max(symbols.size, 256) and symbols.dtype == np.uint16:
        return symbols, largest + 1
    if largest > 4 * symbols.size + _TABLE_SLACK:
        values, ranks = np.unique(symbols, return_inverse=True)
        return _narrow(ranks), values.size
    return _renumber_by_table(symbols, largest)


def _renumber_by_table(symbols: SymbolArray, largest: int) -> tuple[SymbolArray, int]:
    present = np.zeros(largest + 1, np.bool_)
    present[symbols] = True
    table = np.cumsum(present, dtype=np.uint32)
    alphabet = int(table[-1])
    table -= np.uint32(1)
    return (table.astype(np.uint16) if alphabet <= 2**16 else table)[symbols], alphabet
