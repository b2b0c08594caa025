"""Records held against what the program itself wrote down: when each of its iterations began and ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from deepprof.mining import find_loop

__all__ = ["Marks", "Placement", "busy_ratio", "compare_pace", "compare_times", "mine"]

KERNEL = 0  # place in ACTIVITIES


@dataclass(frozen=True, slots=True)
class Marks:
    """Iterations of a program, each over when the device was; Unix ns."""

    begin_ns: Any
    end_ns: Any

    @classmethod
    def read(cls, pairs: Sequence[Sequence[int]]) -> Marks:
        rows = np.array(pairs, np.int64).reshape(-1, 2)
        return cls(rows[:, 0], rows[:, 1])

    def __len__(self) -> int:
        return len(self.begin_ns)

    @property
    def iteration_ns(self) -> float:
        """The median iteration."""
        return float(median((self.end_ns - self.begin_ns).tolist()))

    def between(self, begin_ns: int, end_ns: int) -> Marks:
        """Return the iterations that are in a time."""
        inside = (self.begin_ns >= begin_ns) & (self.end_ns <= end_ns)
        return Marks(self.begin_ns[inside], self.end_ns[inside])

    def find(self, times_ns: Any) -> Any:
        """Return in which iteration times are, the pause between two halved; those far before or after: -1."""
        borders = (self.end_ns[:-1] + self.begin_ns[1:]) // 2
        margin = int(np.median(self.begin_ns[1:] - self.end_ns[:-1])) // 2 if len(self) > 1 else 0
        far = (times_ns < self.begin_ns[0] - margin) | (times_ns > self.end_ns[-1] + margin)
        return np.where(far, -1, np.searchsorted(borders, times_ns))


@dataclass(frozen=True, slots=True)
class Placement:
    """How records are in the program's iterations.

    `whole` iterations hold as many records as expected; `outside_ns` is the farthest that one of their records is
    before or after its iteration.
    """

    iterations: int
    whole: int
    outside_ns: int


def compare_times(events: Any, marks: Marks, expected: int) -> Placement:
    """Hold records against the iterations that they are of, `expected` in each."""
    places = marks.find(events["start_ns"])
    events, places = events[places >= 0], places[places >= 0]
    if not len(events):
        return Placement(len(marks), 0, 0)
    counts = np.bincount(places, minlength=len(marks))
    early = marks.begin_ns[places] - events["start_ns"]
    late = events["end_ns"] - marks.end_ns[places]
    return Placement(len(marks), int((counts == expected).sum()), max(0, int(early.max()), int(late.max())))


def compare_pace(events: Any, marks: Sequence[Marks]) -> tuple[float, float]:
    """Return how long iterations, one after the other, took by all their records, as a share of the program's time.

    And by how much of it that is uncertain: records are somewhere in the first iteration and in the last.
    """
    first, last = marks[0], marks[-1]
    total = int(last.end_ns[-1]) - int(first.begin_ns[0])
    slack = int(first.end_ns[0] - first.begin_ns[0]) + int(last.end_ns[-1] - last.begin_ns[-1])
    by_records = int(events["end_ns"].max()) - int(events["start_ns"].min()) if len(events) else 0
    return by_records / total, slack / total


def mine(events: Any) -> int:
    """Return how many whole iterations DeepProf finds in the order of the kernels, from nothing but their names."""
    names = events["name"][events["activity"] == KERNEL].astype(np.int64)
    loop = find_loop(names).loop if len(names) else None
    return int(loop.iterations.complete.sum()) if loop is not None else 0


def busy_ratio(events: Any, begin_ns: int, end_ns: int) -> float:
    """Return the share of a time in which one event or more ran."""
    start = np.clip(events["start_ns"], begin_ns, end_ns)
    end = np.clip(events["end_ns"], begin_ns, end_ns)
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reach = np.maximum.accumulate(np.concatenate([[begin_ns], end]))[:-1]
    return float(np.maximum(end - np.maximum(start, reach), 0).sum() / max(end_ns - begin_ns, 1))
