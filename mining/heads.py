"""Correct where passes begin: the matcher itself cannot look back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from deepprof.mining.matching import Matcher, Matches
from deepprof.mining.symbols import SymbolArray, as_symbols

Int64s = npt.NDArray[np.int64]

ALIKE = 0.98  # share of a period that must be equal
SAME = 16  # first symbols of the period that must all be equal


def align_head(symbols: SymbolArray, template: SymbolArray, matches: Matches) -> Matches:
    """Return the passes, with those before the first exact one matched backwards from it if that matches better.

    A first lock in the wrong one of several equal layers, or in the warm-up, is noticed only a pass later. Backwards,
    every pass is entered at its end, where the place in the template is known.
    """
    exact = np.flatnonzero((matches.edits == 0) & (matches.matched == len(template)))
    if not len(exact) or matches.first[exact[0]] == 0:
        return matches
    row = int(exact[0])
    head = passes_before(symbols, template, int(matches.first[row]))
    begin = int(head.first[0]) if len(head) else int(matches.first[row])
    kept = matches.end[:row] <= begin
    if _worth(head.matched, head.edits) <= _worth(matches.matched[:row][~kept], matches.edits[:row][~kept]):
        return matches
    return _replace_head(matches, row, kept, head)


def _worth(matched: Int64s, edits: Int64s) -> tuple[int, int]:
    """Return the rank of an alignment: a better one has more symbols that match, then fewer edits."""
    return int(matched.sum()), -int(edits.sum())


def passes_before(symbols: SymbolArray, template: SymbolArray, until: int) -> Matches:
    """Return the passes that follow each other without a gap up to `until`, in stream order.

    A whole pass is put before the reversed stream, so that the matcher is locked when it reaches the stream.
    """
    period = len(template)
    backwards = as_symbols(np.concatenate([template[::-1], symbols[:until][::-1]]))
    found = Matcher(as_symbols(template[::-1])).feed(backwards, final=True)
    rows = np.stack([found.first, found.end, found.matched, found.edits], axis=1)[1:]
    rows = rows[: unbroken(rows, period)]
    first, end = until + period - rows[::-1, 1], until + period - rows[::-1, 0]
    return Matches(first, end, rows[::-1, 2], rows[::-1, 3], 0)


def unbroken(rows: Int64s, at: int) -> int:
    """Return how many rows follow each other from `at` on without a gap; rows after a gap are uncertain."""
    previous = np.append(at, rows[:-1, 1])[: len(rows)]
    broken = np.flatnonzero(rows[:, 0] != previous)
    return int(broken[0]) if len(broken) else len(rows)


def _replace_head(matches: Matches, row: int, kept: npt.NDArray[np.bool_], head: Matches) -> Matches:
    """Return the passes before `row` that are kept, then those of `head`, then the rest."""

    def spliced(old: Int64s, new: Int64s) -> Int64s:
        return np.concatenate([old[:row][kept], new, old[row:]])

    first, end = spliced(matches.first, head.first), spliced(matches.end, head.end)
    foreign = matches.foreign + int((matches.end - matches.first).sum()) - int((end - first).sum())
    return Matches(first, end, spliced(matches.matched, head.matched), spliced(matches.edits, head.edits), foreign)


def begin_late(symbols: SymbolArray, template: SymbolArray, matches: Matches) -> Matches:
    """Return the passes, each reduced to its last period of symbols where these alone fit the template.

    Symbols like the template's first ones, then foreign ones, may come before an iteration; they are not part of it.
    """
    return begin_late_in(lambda first, end: symbols[first:end], template, matches)


def begin_late_in(read: Callable[[int, int], SymbolArray | None], template: SymbolArray, matches: Matches) -> Matches:
    """Do the same as `begin_late`; `read` returns the symbols at [first, end), None when they are no longer known."""
    period = len(template)
    first, edits = matches.first.copy(), matches.edits.copy()
    longer = np.flatnonzero((edits > 0) & (matches.end - first > period) & (matches.matched >= ALIKE * period))
    for row in longer.tolist():
        end = int(matches.end[row])
        symbols = read(end - period, end)
        if symbols is None:
            continue
        differs = symbols != template
        differences = int(np.count_nonzero(differs))
        if differences <= (1 - ALIKE) * period and differences < edits[row] and not differs[:SAME].any():
            first[row], edits[row] = end - period, differences
    matched = np.where(first > matches.first, period - edits, matches.matched)
    return Matches(first, matches.end, matched, edits, matches.foreign + int((first - matches.first).sum()))
