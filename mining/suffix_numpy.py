"""The suffix array, LCP array and tree nodes in numpy alone: the fallback of the C library, and its oracle in tests.

It is slower (some 2 µs a symbol instead of 0.03) and returns the same results.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Int32Array: TypeAlias = npt.NDArray[np.int32]
SymbolArray: TypeAlias = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]


def suffix_array(symbols: SymbolArray) -> Int32Array:
    """Return the suffix array (int32) by prefix doubling (Manber and Myers, 1993).

    Each round sorts by pairs of ranks, so that twice as many leading symbols count, until all suffixes differ.
    O(n log n log l) time for the longest repeat l, 40 bytes a symbol.
    """
    length = symbols.size
    ranks = _dense_ranks(symbols.astype(np.int64))[1]
    order, reach = np.argsort(symbols, kind="stable"), 1
    while length and int(ranks.max()) < length - 1:
        order, ranks = _dense_ranks(_pairs(ranks, reach))
        reach *= 2
    return order.astype(np.int32)


def _pairs(ranks: npt.NDArray[np.int64], reach: int) -> npt.NDArray[np.int64]:
    """Return one number per suffix that sorts by its rank, then by the rank `reach` further (0 past the end)."""
    keys = ranks * (ranks.size + 1)
    keys[: ranks.size - reach] += ranks[reach:] + 1
    return keys


def _dense_ranks(keys: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the order of the keys, and the rank of each from 0; equal keys share a rank."""
    order = np.argsort(keys)
    sorted_keys = keys[order]
    ranks = np.empty(keys.size, np.int64)
    ranks[order] = np.cumsum(np.append(False, sorted_keys[1:] != sorted_keys[:-1])[: keys.size])
    return order, ranks


def lcp_array(symbols: SymbolArray, suffixes: Int32Array) -> Int32Array:
    """Return the LCP array (int32) by binary descent over the classes of 1, 2, 4, … equal symbols.

    O(n log l) time for the longest repeat l; the classes are kept, 4 bytes a symbol for each of log2(l) + 1 levels.
    """
    levels = _levels(symbols, suffixes)
    left, right = np.append(np.int32(symbols.size), suffixes[:-1])[: symbols.size], suffixes.copy()
    common = np.zeros(symbols.size, np.int32)
    for level in reversed(range(len(levels))):
        ranks = levels[level]
        step = np.where(ranks[left] == ranks[right], np.int32(1 << level), np.int32(0))
        left, right, common = left + step, right + step, common + step
    return common


def _levels(symbols: SymbolArray, suffixes: Int32Array) -> list[Int32Array]:
    """Return the levels with repeats; level j numbers the first 2^j symbols of every suffix; -1 is past the end."""
    levels: list[Int32Array] = []
    ranks = np.append(symbols.astype(np.int64), -1)
    reach = 1
    while symbols.size and (level := _number(ranks, suffixes, reach, first=not levels)) is not None:
        levels.append(level)
        ranks = level.astype(np.int64)
        reach = 1 << (len(levels) - 1)
    return levels


def _number(ranks: npt.NDArray[np.int64], suffixes: Int32Array, reach: int, *, first: bool) -> Int32Array | None:
    """Return the next level from the known order of the suffixes, without sorting; None when all classes are single."""
    length = suffixes.size
    further = np.minimum(suffixes.astype(np.int64) + reach, length)
    own, next_ = ranks[suffixes], np.full(length, -1) if first else ranks[further]
    new = np.append(True, (own[1:] != own[:-1]) | (next_[1:] != next_[:-1]))
    if new.all():
        return None
    level = np.full(length + 1, -1, np.int32)
    level[suffixes] = np.cumsum(new, dtype=np.int32)
    return level


def nodes(lcp: Int32Array) -> tuple[Int32Array, Int32Array, Int32Array]:
    """Return depth, count and left (int32) of every LCP interval, children before parents, the root last.

    It takes one Python step per suffix, some 300 ns: the documented cost of the fallback.
    """
    found: list[tuple[int, int, int]] = []
    open_: list[tuple[int, int]] = [(0, 0)] if lcp.size else []
    for right, common in enumerate([*lcp[1:].tolist(), -1][: lcp.size], start=1):
        start = right - 1
        while open_ and open_[-1][0] > common:
            depth, start = open_.pop()
            found.append((depth, right - start, start))
        if common >= 0 and open_[-1][0] < common:
            open_.append((common, start))
    depth_, count, left = np.array(found, np.int32).reshape(-1, 3).T.copy()
    return depth_, count, left
