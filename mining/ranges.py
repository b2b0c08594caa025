"""Host ranges as evidence: which period they suggest, and whether a repetition has one range per pass."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from deepprof.mining.evidence import Evidence, Family, Trust
from deepprof.mining.levels import RepeatLevel

Int64s = npt.NDArray[np.int64]

TRUST: tuple[Trust, ...] = ("step", "loop", "framework", "range", "part")
MAX_LEVELS = 12
REGULAR = 0.6  # share of a family's distances that must be near their median, or near the period
NEAR = 0.1
EXACT = 0.01  # of the distance of ranges that come every this many passes
TILING = 0.7  # share of the time that a user's ranges must fill to be iterations


def by_trust(evidence: Evidence, *trusts: Trust) -> list[Family]:
    """Return the families of the given trusts, most trusted first; a user's ranges only when they fill the time.

    Among families of equal trust the rarest comes first: gradient accumulation loads several batches per step of the
    optimizer.
    """
    usable = [f for f in evidence.families if f.trust in trusts and (f.trust != "range" or f.coverage >= TILING)]
    return sorted(usable, key=lambda f: (TRUST.index(f.trust), len(f.positions)))


def suggest_levels(families: Iterable[Family], n: int) -> list[RepeatLevel]:
    """Return the levels that regular families suggest, one per distance: iterations may be too few for k-grams."""
    levels: dict[int, RepeatLevel] = {}
    for family in families:
        positions = np.unique(family.positions[(family.positions >= 0) & (family.positions <= n)])
        if len(positions) >= 3:
            distance = int(np.median(np.diff(positions)))
            if _is_regular(positions, distance):
                levels.setdefault(distance, RepeatLevel(distance, 1.0, 1, positions))
    return list(levels.values())[:MAX_LEVELS]


def _is_regular(positions: Int64s, distance: float) -> bool:
    """Return whether most distances between neighbours are near the one given."""
    apart = np.diff(positions)
    return bool(len(apart) and (np.abs(apart - distance) <= NEAR * distance + 1).mean() >= REGULAR)


def find_multiple(positions: Int64s, period: int) -> int:
    """Return every how many periods the positions come back, 0 where they do not come at a multiple of one period."""
    places = np.unique(positions)
    if len(places) < 2:
        return 0
    distance = float(np.median(np.diff(places)))
    multiple = round(distance / period)
    near = abs(distance - multiple * period) <= max(1.0, EXACT * distance)
    return multiple if multiple and near and _is_regular(places, distance) else 0


def comes_once(family: Family, first: int, end: int, period: int, passes: float) -> bool:
    """Return whether a family has one range per period between two symbols, anywhere in the period.

    Ranges are counted over the whole section: passes that begin in another phase may contain two ranges, or none.
    """
    positions = np.unique(family.positions[(family.positions >= first) & (family.positions <= end)])
    enough = abs(len(positions) - passes) <= 1 + NEAR * passes
    return enough and len(positions) >= 2 and _is_regular(positions, period)
