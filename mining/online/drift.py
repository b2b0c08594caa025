"""Detect that the iteration itself has changed, and find its new template in recent iterations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np

from deepprof.mining.iterations import Iterations
from deepprof.mining.matching import match
from deepprof.mining.symbols import SymbolArray, as_symbols

Read: TypeAlias = Callable[[int, int], SymbolArray]

ALIKE = 3  # iterations in a row, all edited
WORTH = 0.01  # edits per symbol from which on iterations that still change get a new template
BETTER = 0.5  # of the edits that may remain with it
LONGEST_WAIT = 64  # edited iterations at most until the next comparison, when none in a long row became a template


class _TemplateChange(NamedTuple):
    """The new template of the following iterations: iteration number `row` of those examined."""

    row: int
    template: SymbolArray
    why: str


class EditedIteration(NamedTuple):
    """An edited iteration: symbols [first, end) of the stream."""

    first: int
    end: int
    edits: int


@dataclass(slots=True)
class DriftWatch:
    """Searches iterations in stream order for three in a row that changed in the same way.

    `recent` contains the last two edited iterations, `run` is the number of edited ones in a row, `due` the length of
    that row at which a costly comparison is tried next."""

    recent: list[EditedIteration] = field(default_factory=list)
    run: int = 0
    due: int = ALIKE

    def reset(self) -> None:
        """Forget all iterations."""
        self.recent, self.run, self.due = [], 0, ALIKE

    def look(self, rows: Iterations, read: Read, reach: int) -> _TemplateChange | None:
        """Return the first change, else None; after a change the caller calls again with the iterations that follow it.

        `read(first, end)` returns the symbols of the stream, or raises `IndexError` when they are no longer kept; it is
        called for at most `reach` symbols.
        """
        if not rows.edits.any():
            return None
        for index in np.flatnonzero(rows.complete & (rows.edits > 0)).tolist():
            row = EditedIteration(int(rows.first[index]), int(rows.end[index]), int(rows.edits[index]))
            found = self._take(row, read, reach)
            if found is not None:
                self.reset()
                return _TemplateChange(index, *found)
        return None

    def _take(self, row: EditedIteration, read: Read, reach: int) -> tuple[SymbolArray, str] | None:
        if self.recent and self.recent[-1].end != row.first:
            self.reset()
        three = [*self.recent, row]
        self.recent, self.run = three[-ALIKE + 1 :], self.run + 1
        if len(three) < ALIKE or row.end - three[0].first > reach:
            return None
        try:
            segments = [read(one.first, one.end) for one in three]
        except IndexError:
            return None
        if all(np.array_equal(segments[-1], segment) for segment in segments[:-1]):
            return as_symbols(segments[-1].copy()), f"the last {ALIKE} iterations all have the same {row.edits} edits"
        return self._follow(three, segments)

    def _follow(self, three: list[EditedIteration], segments: list[SymbolArray]) -> tuple[SymbolArray, str] | None:
        """Return the newest iteration when each of the two before it is much more like it than like the template."""
        before = [row.edits for row in three[:-1]]
        if self.run < self.due or any(row.edits < WORTH * (row.end - row.first) for row in three):
            return None
        template = as_symbols(segments[-1].copy())
        after = [_difference(segment, template) for segment in segments[:-1]]
        if any(new > BETTER * old for new, old in zip(after, before, strict=True)):
            self.due = self.run + min(self.run, LONGEST_WAIT)
            return None
        return template, f"iterations go on changing: {before[-1]} edits became {after[-1]}"


def _difference(segment: SymbolArray, template: SymbolArray) -> int:
    """Return the approximate number of edits that turn the one into the other. O(n)."""
    matched = int(match(segment, template).matched.sum())
    return max(len(segment), len(template)) - matched
