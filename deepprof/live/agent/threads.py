"""Decides which thread of a process trains, as its operators come."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from deepprof.metrics.operators import MIN_OPERATORS, PLACE, Place

# Longer than a training thread usually waits for data, or than a checkpoint takes: after it the thread ended or hangs.
SILENT_NS = 10_000_000_000
COLUMNS = (*PLACE, "trains", "operators", "spent", "end_ns")
MAX_REMEMBERED_THREADS = 1024  # threads that are remembered; a server may begin one for every request


@dataclass(slots=True)
class _ThreadActivity:
    """What a thread has done: whether it ran a backward pass, its operators and their time, when the last one ended."""

    trains: bool = False
    operators: int = 0
    spent_ns: int = 0
    last_ns: int = 0


class ProcessThreads:
    """The threads of a process: all of them before one is chosen, then those seen since that one was last active."""

    def __init__(self) -> None:
        self.seen: dict[Place, _ThreadActivity] = {}

    @property
    def trains(self) -> bool:
        """Whether any thread runs backward passes."""
        return any(each.trains for each in self.seen.values())

    def take(self, times: pl.DataFrame, chosen: Place | None = None) -> None:
        """Add the `thread_times` of a window; the `chosen` thread is not forgotten."""
        for process, thread, trains, operators, spent_ns, end_ns in times.select(COLUMNS).rows():
            seen = self.seen.setdefault((process, thread), _ThreadActivity())
            seen.trains, seen.last_ns = seen.trains or trains, max(seen.last_ns, end_ns)
            seen.operators, seen.spent_ns = seen.operators + operators, seen.spent_ns + spent_ns
        for place in [place for place in self.seen if place != chosen][:-MAX_REMEMBERED_THREADS]:
            del self.seen[place]

    def best(self) -> Place:
        """Return the thread with the most operator time, among those that train if any does."""
        return self.best_of(self.seen)

    def best_of(self, places: Iterable[Place]) -> Place:
        """Return the best of some threads; of equal ones the first."""
        return max(places, key=lambda place: (self.seen[place].trains, self.seen[place].spent_ns))

    def find_other(self, chosen: Place, times: pl.DataFrame) -> Place | None:
        """Return the thread that replaces the `chosen` one after a window, None if that one stays."""
        before_ns = self.seen[chosen].last_ns
        self.take(times, chosen)
        rivals = self.rivals(chosen)
        if rivals:
            return self.best_of(rivals)
        if self.seen[chosen].last_ns > before_ns:
            self.seen = {chosen: self.seen[chosen]}
        return None

    def rivals(self, chosen: Place) -> list[Place]:
        """Return the threads of which one should replace the chosen one.

        A thread that trains replaces one that never did. Otherwise the chosen one must have been silent for long, and
        the other one must have computed meanwhile, and must train if the chosen one did.
        """
        own = self.seen[chosen]
        others = {place: seen for place, seen in self.seen.items() if place != chosen}
        training = [place for place, seen in others.items() if seen.trains]
        if training and not own.trains:
            return training
        return [
            place
            for place, seen in others.items()
            if seen.trains >= own.trains and seen.operators >= MIN_OPERATORS and seen.last_ns - own.last_ns > SILENT_NS
        ]
