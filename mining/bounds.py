"""Find the place of its period at which a repetition begins and ends, even if the passes there are edited."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deepprof.mining.candidates import Candidate
from deepprof.mining.symbols import SymbolArray

__all__ = ["RepetitionBound", "breaks_off", "sets_in"]

LOOK = 16  # symbols compared to find the place in the period
ALIKE = 0.8  # share of these symbols that must be equal


@dataclass(frozen=True, slots=True)
class RepetitionBound:
    """Where a repetition begins or ends.

    `at` is the stream position of its first symbol (or past its last), `place` that in the period.
    """

    at: int
    place: int


def sets_in(symbols: SymbolArray, candidate: Candidate) -> RepetitionBound | None:
    """Return where the repetition begins; None when its first pass is not clearly part of it."""
    rows = candidate.matches
    for row in range(min(2, len(rows))):
        at = int(rows.first[row])
        missing = candidate.period - int(rows.matched[row])
        span = int(rows.end[row]) - at
        found = locate(symbols[at : at + LOOK], candidate.template.symbols, candidate.period - span, missing)
        if found is not None and 2 * int(rows.matched[row]) >= span:
            return RepetitionBound(at, found)
    return None


def breaks_off(symbols: SymbolArray, candidate: Candidate) -> RepetitionBound | None:
    """Return where the repetition ends; None when its last pass is not clearly part of it."""
    rows = candidate.matches
    for row in range(len(rows) - 1, max(-1, len(rows) - 3), -1):
        end, span = int(rows.end[row]), int(rows.end[row] - rows.first[row])
        missing = candidate.period - int(rows.matched[row])
        reverse = candidate.template.symbols[::-1]
        found = locate(symbols[max(0, end - LOOK) : end][::-1], reverse, candidate.period - span, missing)
        if found is not None and 2 * int(rows.matched[row]) >= span:
            return RepetitionBound(end, (candidate.period - found) % candidate.period)
    return None


def locate(piece: SymbolArray, template: SymbolArray, least: int, most: int) -> int | None:
    """Return the place of the cyclic template near [least, most] that `piece` fits best, else None.

    Of equally good places the last within is taken.
    """
    size = len(piece)
    if size < LOOK // 2:
        return None
    places = np.unique(np.arange(max(least - 2, 0), min(most + 2, len(template) - 1) + 1))
    if not len(places):
        return None
    equal = (template[(places[:, None] + np.arange(size)) % len(template)] == piece).sum(axis=1)
    inside = (least <= places) & (places <= most)
    best = int(max(zip(equal.tolist(), inside.tolist(), places.tolist(), strict=True))[2])
    return best if equal.max() >= ALIKE * size else None
