"""Ranges for a device: their times are turned into places among the kernels of its main stream.

A range is given to the miner at a fixed place behind its end, so that the miner has the same ranges at any place,
however the kernels are cut into batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from deepprof.live.service.session.columns import FARTHEST_NS, Columns, Int64s, Marks, empty, height, join, select
from deepprof.live.service.session.names import FamilyName
from deepprof.mining.evidence import Family

GRID = 64  # symbols: ranges are given to the miner at multiples of it; each distinct place costs a call of the miner
WAITING = {"start": np.int64, "end": np.int64, "family": np.int32, "coverage": np.float64, "begin": np.int64}
READY = {"start": np.int64, "begin": np.int64, "end": np.int64, "family": np.int32, "coverage": np.float64}
NOT_YET = -1


@dataclass(slots=True, eq=False)
class RangeQueue:
    """Ranges whose places are not all known (`waiting`), and those that are `ready` to be given to the miner.

    Per family: the `first` start, end (`reach`) and length (`total`) of the union so far, and its `last` place.
    """

    most: int
    families: int
    waiting: Columns = field(default_factory=lambda: empty(WAITING))
    ready: Columns = field(default_factory=lambda: empty(READY))
    first: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    reach: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    total: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    last: Int64s = field(default_factory=lambda: np.empty(0, np.int64))

    def __post_init__(self) -> None:
        if not len(self.first):
            self.first = np.full(self.families, FARTHEST_NS)
            self.reach = np.full(self.families, -FARTHEST_NS)
            self.total = np.zeros(self.families, np.int64)
            self.last = np.full(self.families, NOT_YET, np.int64)

    def add(self, ranges: Columns) -> None:
        """Take ranges sorted by start, none before those of earlier calls."""
        count = height(ranges)
        coverage = np.zeros(count)
        for family in np.unique(ranges["family"]).tolist():
            own = ranges["family"] == family
            coverage[own] = self._cover(family, ranges["start"][own], ranges["end"][own])
        new = {name: ranges[name] for name in ("start", "end", "family")}
        self.waiting = join([self.waiting, {**new, "coverage": coverage, "begin": np.full(count, NOT_YET, np.int64)}])

    def _cover(self, family: int, start: Int64s, end: Int64s) -> Int64s:
        """Return, at every range, the share of the time since the family's first start that its ranges cover."""
        reach = np.maximum.accumulate(np.append(self.reach[family], end))
        total = self.total[family] + np.cumsum(np.maximum(end - np.maximum(start, reach[:-1]), 0))
        self.first[family] = min(int(self.first[family]), int(start[0]))
        self.reach[family], self.total[family] = reach[-1], total[-1]
        share: Int64s = total / np.maximum(reach[1:] - self.first[family], 1)
        return share

    def place(self, times: Int64s, at: int, by_end: Marks) -> None:
        """Find the places of ranges that began or ended by the last of the symbols from `at` on, launched at `times`.

        Of several ranges of one family in one place the first counts. `by_end` marks families whose place is a range's
        end.
        """
        rows = self.waiting
        if not height(rows) or not len(times):
            return
        late = by_end[rows["family"]]
        begin = np.searchsorted(times, np.where(late, rows["end"], rows["start"]))
        new = (rows["begin"] == NOT_YET) & (begin < len(times))
        rows["begin"] = np.where(new, at + begin, rows["begin"])
        kept = ~self._repeated(rows, np.flatnonzero(new), late)
        end = np.searchsorted(times, rows["end"])
        done = kept & (rows["begin"] != NOT_YET) & (end < len(times))
        self._make_ready(select(rows, done), at + end[done])
        self.waiting = select(rows, kept & ~done)

    def _repeated(self, rows: Columns, new: Int64s, late: Marks) -> Marks:
        """Return which of the rows numbered `new` have a place that their family already has."""
        repeated = np.zeros(height(rows), np.bool_)
        time = np.where(late[new], rows["end"][new], rows["start"][new])
        family, begin = rows["family"][new], rows["begin"][new]
        order = np.lexsort((np.arange(len(new)), time, family))
        family, begin = family[order], begin[order]
        before = np.append(NOT_YET, begin[:-1])
        opens = np.append(True, family[1:] != family[:-1])[: len(new)]
        before[: len(new)][opens] = self.last[family[opens]]
        repeated[new[order]] = begin == before[: len(new)]
        self.last[family] = begin  # where a family occurs several times, its last place stays
        return repeated

    def _make_ready(self, rows: Columns, end: Int64s) -> None:
        if len(end):
            names = ("start", "begin", "family", "coverage")
            self.ready = join([self.ready, {**{name: rows[name] for name in names}, "end": end}])

    def breaks(self, at: int, until: int) -> list[int]:
        """Return the places from `at` to before `until` at which ranges are due for the miner, ascending."""
        told = _told_at(self.ready["end"])
        return np.unique(np.maximum(told[told < until], at)).tolist()  # type: ignore[no-any-return]

    def tell(self, at: int, families: Sequence[FamilyName], *, ends: bool = False) -> tuple[Family, ...]:
        """Return the ranges that are due at `at`, with places counted from there; with `ends` all that are ready."""
        due = (_told_at(self.ready["end"]) <= at) | ends
        if not due.any():
            return ()
        rows, self.ready = select(self.ready, due), select(self.ready, ~due)
        return tuple(_make_family(rows, number, families, at) for number in np.unique(rows["family"]).tolist())

    def close(self, at: int) -> None:
        """Make ready the ranges begun before `at`, where the stream ends or breaks; they count as ending there."""
        begun = self.waiting["begin"] != NOT_YET
        rows, self.waiting = select(self.waiting, begun), empty(WAITING)
        self._make_ready(rows, np.full(int(begun.sum()), at))

    def restart(self) -> None:
        """Reset all places, because another stream is followed."""
        count = height(self.waiting)
        self.waiting["begin"] = np.full(count, NOT_YET, np.int64)
        self.ready = empty(READY)
        self.last[:] = NOT_YET

    def forget(self) -> None:
        """Keep the `most` latest ranges of every queue."""
        self.waiting = select(self.waiting, slice(-self.most, None))
        self.ready = select(self.ready, slice(-self.most, None))


def _told_at(end: Int64s) -> Int64s:
    """Return the first multiple of the grid at or behind each place."""
    told: Int64s = -(-end // GRID) * GRID
    return told


def _make_family(rows: Columns, number: int, families: Sequence[FamilyName], at: int) -> Family:
    """Return one family's ranges, with its latest coverage."""
    own = select(rows, rows["family"] == number)
    latest = float(own["coverage"][np.lexsort((own["begin"], own["start"]))[-1]])
    one = families[number]
    return Family(one.text, one.trust, own["begin"] - at, latest, own["end"] - at, one.telling)
