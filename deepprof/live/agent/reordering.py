"""Takes records as they come, and returns them in the order of their starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[Any]
"""Structured records, whose first field is their start; those without `end_ns` are moments."""

EARLIEST = -(2**63)
SMALL_CHUNK_RECORDS = 512  # records of a chunk to which others are added: a packet may have one record


def starts_of(rows: Rows) -> npt.NDArray[np.int64]:
    """Return when the records began."""
    return rows[rows.dtype.names[0]]  # type: ignore[index]  # they are structured


def ends_of(rows: Rows) -> npt.NDArray[np.int64]:
    """Return when the records ended."""
    return rows["end_ns"] if "end_ns" in (rows.dtype.names or ()) else starts_of(rows)


@dataclass(slots=True, eq=False)
class ReorderBuffer:
    """Holds records back until no record can come that began before them.

    Records that began before `watermark_ns` have been emitted: one that comes now and began before is `late`, counted
    and left out. `longest_ns` is the longest recent record, and decides how long others must be held back.
    """

    chunks: list[tuple[int, int, Rows]] = field(default_factory=list)  # first and last start, rows
    watermark_ns: int = EARLIEST
    late: int = 0
    nbytes: int = 0
    longest_ns: int = 0
    last_end_ns: int = EARLIEST  # of all that arrived

    def add(self, rows: Rows) -> Rows:
        """Take records in any order; returns those that are late."""
        starts, late = starts_of(rows), rows[:0]
        if len(rows) and int(starts.min()) < self.watermark_ns:
            timely = starts >= self.watermark_ns
            rows, late = rows[timely], rows[~timely]
            self.late += len(late)
            starts = starts_of(rows)
        if len(rows):
            ends = ends_of(rows)
            self.last_end_ns = max(self.last_end_ns, int(ends.max()))
            self.longest_ns = max(self.longest_ns - self.longest_ns // 64, int((ends - starts).max()))
            self._append(int(starts.min()), int(starts.max()), rows)
            self.nbytes += rows.nbytes
        return late

    def _append(self, first_ns: int, last_ns: int, rows: Rows) -> None:
        if self.chunks and len(self.chunks[-1][2]) + len(rows) <= SMALL_CHUNK_RECORDS:
            before_first, before_last, before = self.chunks.pop()
            first_ns, last_ns = min(before_first, first_ns), max(before_last, last_ns)
            rows = np.concatenate([before, rows])
        self.chunks.append((first_ns, last_ns, rows))

    def sift(self, choose: Callable[[Rows], Rows]) -> list[Rows]:
        """Keep the held records that `choose` returns; returns those of them that are late."""
        return [self.add(choose(rows)) for rows in self.clear()]

    def clear(self) -> list[Rows]:
        """Remove all held records, and return them."""
        held = [rows for _, _, rows in self.chunks]
        self.chunks, self.nbytes, self.longest_ns, self.last_end_ns = [], 0, 0, EARLIEST
        return held

    def take(self, until_ns: int) -> Rows | None:
        """Return the records that began before `until_ns`, by start, None if there are none; the watermark rises."""
        self.watermark_ns = max(self.watermark_ns, until_ns)
        given, kept = [], []
        for first, last, rows in self.chunks:
            if last < until_ns:
                given.append(rows)
            elif first >= until_ns:
                kept.append((first, last, rows))
            else:
                now = starts_of(rows) < until_ns
                given.append(rows[now])
                rest = rows[~now]
                kept.append((int(starts_of(rest).min()), last, rest))
        self.chunks = kept
        self.nbytes = sum(rows.nbytes for _, _, rows in kept)
        return _by_start(given) if given else None

    def early_ns(self) -> int:
        """Return a time before which about a quarter of the held records began."""
        lasts = sorted(last for _, last, _ in self.chunks)
        return lasts[len(lasts) // 4] + 1 if lasts else self.watermark_ns

    @property
    def newest_ns(self) -> int:
        """The latest start that is kept; `watermark_ns` where nothing is."""
        return max((last for _, last, _ in self.chunks), default=self.watermark_ns)

    @property
    def held(self) -> int:
        """How many records are kept."""
        return sum(len(rows) for _, _, rows in self.chunks)


def _by_start(parts: list[Rows]) -> Rows:
    """Return the rows of all parts by start; rows of one time stay in the order in which they arrived."""
    rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
    starts = starts_of(rows)
    if (starts[1:] >= starts[:-1]).all():
        return rows
    return rows[np.argsort(starts, kind="stable")]
