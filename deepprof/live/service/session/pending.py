"""Rows that wait until no earlier row can come."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from deepprof.live.service.session.columns import FARTHEST_NS, Columns, height, join, select


@dataclass(slots=True)
class _PendingPart:
    """Rows in the order of arrival; `oldest` and `newest` are their earliest and latest starts."""

    rows: Columns
    oldest: int
    newest: int

    @classmethod
    def of(cls, rows: Columns) -> _PendingPart:
        """Return some rows, at least one, as a part."""
        return cls(rows, int(rows["start"].min()), int(rows["start"].max()))


@dataclass(slots=True)
class Pending:
    """Rows of one table, in the order of arrival."""

    parts: list[_PendingPart] = field(default_factory=list)

    def add(self, rows: Columns) -> None:
        """Take rows in any order."""
        if height(rows):
            self.parts.append(_PendingPart.of(rows))

    def release(self, until: int) -> Columns | None:
        """Return the rows that start before `until` by start, equal starts in the order of arrival; None: no row."""
        ready: list[Columns] = []
        kept: list[_PendingPart] = []
        for part in self.parts:
            if part.newest < until:
                ready.append(part.rows)
            elif part.oldest >= until:
                kept.append(part)
            else:
                early = part.rows["start"] < until
                ready.append(select(part.rows, early))
                kept.append(_PendingPart.of(select(part.rows, ~early)))
        self.parts = kept
        return _by_start(join(ready)) if ready else None

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(height(part.rows) for part in self.parts)

    @property
    def newest(self) -> int:
        """The latest start, `-FARTHEST_NS` without rows."""
        return max((part.newest for part in self.parts), default=-FARTHEST_NS)

    @property
    def nbytes(self) -> int:
        """The bytes that the rows take."""
        return sum(values.nbytes for part in self.parts for values in part.rows.values())


def _by_start(rows: Columns) -> Columns:
    """Return the rows sorted by start; O(n) where they already are."""
    start = rows["start"]
    if bool((start[1:] >= start[:-1]).all()):
        return rows
    return select(rows, np.argsort(start, kind="stable"))
