"""Decide whether two templates are the same loop, by the stream that both should explain."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from deepprof.mining.loops import MinedLoop
from deepprof.mining.matching import match
from deepprof.mining.online.progress import LockedLoop
from deepprof.mining.symbols import SymbolArray

__all__ = ["SAME_PERIOD", "is_better", "is_same_level", "recognise"]

Int64s = npt.NDArray[np.int64]

SAME_PERIOD = 0.1  # relative: a larger difference is another level
AS_MUCH = 0.95  # of what a new template matches: an old one that matches so much is the same loop
NEAR = 0.02  # of the period: boundaries so close to each other are one
MIN_SAME_BOUNDARIES = 0.8  # of the boundaries that must be near others


def is_same_level(one: int, other: int) -> bool:
    """Return whether two periods can be those of one loop."""
    return abs(one - other) <= SAME_PERIOD * max(one, other)


def recognise(loop: MinedLoop, known: Iterable[LockedLoop], symbols: SymbolArray) -> LockedLoop | None:
    """Return the known loop that explains the symbols about as well as the one mined from them, else None."""
    wanted = AS_MUCH * int(loop.iterations.matched.sum())
    alike = (lock for lock in known if is_same_level(lock.period, loop.period))
    return next((lock for lock in alike if lock.explains(symbols) >= wanted), None)


def is_better(new: LockedLoop, old: LockedLoop, symbols: SymbolArray) -> bool:
    """Return whether a new template matches as much as the old one, with iterations that begin elsewhere."""
    if new.explains(symbols) < old.explains(symbols):
        return False
    one, other = (boundaries(lock, symbols) for lock in (new, old))
    distance = max(2, int(NEAR * old.period))
    return not (are_near(one, other, distance) and are_near(other, one, distance))


def boundaries(lock: LockedLoop, symbols: SymbolArray) -> Int64s:
    """Return where passes begin that match half of the template."""
    passes = match(lock.joined.of(symbols), lock.template)
    return passes.first[2 * passes.matched >= lock.period]


def are_near(positions: Int64s, others: Int64s, distance: int) -> bool:
    """Return whether most of the positions have one of the others nearby."""
    if not len(positions) or not len(others):
        return False
    after = np.searchsorted(others, positions)
    right = np.abs(others[np.minimum(after, len(others) - 1)] - positions)
    left = np.abs(others[np.maximum(after - 1, 0)] - positions)
    return bool((np.minimum(left, right) <= distance).mean() >= MIN_SAME_BOUNDARIES)
