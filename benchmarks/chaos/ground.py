"""Where a disturbance happens: a daemon, its senders and the plan of its faults, and how long it is to go on."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from benchmarks.chaos.daemon import Daemon
from benchmarks.chaos.fleet import Fleet
from benchmarks.chaos.plan import Plan
from benchmarks.chaos.proxy import Proxy

__all__ = ["AT_LEAST", "Ground", "Stretch"]

Stretch = tuple[float, float]  # from when to when, on the monotonic clock

AT_LEAST = 2  # times of every disturbance, however short the run
POLL_S = 0.005


@dataclass
class Ground:
    """`until_s` is when the disturbance ends on the machine's monotonic clock; `deadline_s` bounds each wait."""

    daemon: Daemon
    fleet: Fleet
    plan: Plan
    chance: random.Random
    until_s: float
    deadline_s: float
    proxy: Proxy | None = None  # before the daemon's port, where the scenario requests one
    times: int = 0  # that it was done
    died: int = 0  # times that the daemon has ended by itself
    quiet: list[Stretch] = field(default_factory=list)  # when nothing was done
    troubled: list[Stretch] = field(default_factory=list)  # … and when it was; all the while where there is none
    notes: list[str] = field(default_factory=list)

    def again(self) -> bool:
        """Return whether to disturb once more; the daemon then runs, and senders have had something acknowledged."""
        self.mend()
        if self.times >= AT_LEAST and time.monotonic() >= self.until_s:
            return False
        self.await_progress()
        self.times += 1
        return True

    def mend(self) -> None:
        """Start the daemon again where it has ended by itself."""
        if not self.daemon.runs:
            self.died += 1
            self.daemon.revive_until_ready()

    def await_progress(self) -> None:
        """Wait until more is acknowledged than now; without that, nothing would be at stake."""
        before = self.fleet.acknowledged()
        self.wait_for(lambda: self.fleet.acknowledged() > before or self.fleet.is_done, "an acknowledgement")

    def await_given(self) -> None:
        """Wait until what was sent so far is acknowledged: what follows is then not part of its waits."""
        fleet, slots = self.fleet, range(self.fleet.size.streams)
        given = [fleet.board.look(slot)[0] for slot in slots]
        self.wait_for(lambda: not any(fleet.owes(slot, given[slot]) for slot in slots), "what was sent")

    def without_paths(self, texts: list[str]) -> list[str]:
        """Return texts without the folder's name, which states nothing to anybody."""
        return [text.replace(str(self.daemon.folder), "DIR") for text in texts]

    def wait_for(self, happened: Callable[[], bool], what: str) -> None:
        """Wait for something that must come."""
        until = time.monotonic() + self.deadline_s
        while not happened():
            assert time.monotonic() < until, f"{what}: not within {self.deadline_s:g} s"
            time.sleep(POLL_S)

    def say(self, note: str) -> None:
        """Have the row of the table state something more."""
        self.notes.append(note)

    @contextmanager
    def noting(self, stretches: list[Stretch]) -> Iterator[None]:
        """Add the time that the block takes to some sections."""
        began = time.monotonic()
        try:
            yield
        finally:
            stretches.append((began, time.monotonic()))

    def pass_time(self, most_s: float, stretches: list[Stretch] | None = None) -> None:
        """Let time pass, `most_s` or what is left, and add it to some sections."""
        with self.noting([] if stretches is None else stretches):
            time.sleep(min(most_s, max(0.05, self.until_s - time.monotonic())))

    def pause(self, longest_s: float) -> None:
        """Let a random time pass, up to `longest_s`: less where less is left."""
        left = max(0.05, self.until_s - time.monotonic())
        time.sleep(self.chance.uniform(0, min(longest_s, left)))
