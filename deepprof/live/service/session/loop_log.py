"""The decisions of a device's miner so far: its loops, and which events are new."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from deepprof.live.service.views import LoopView
from deepprof.mining.online import MinerEvent, OnlineMiner

if TYPE_CHECKING:
    from deepprof.live.service.examination import FoundLoop

MOST_LOOPS = 32


@dataclass(slots=True)
class LoopLog:
    """The loops followed, the latest last; how many were lost or replaced, and how often iterations became longer.

    `seen` is the last event of the miner that was read; `period` and `followed` are the period and number of the loop
    at that event.
    """

    loops: list[LoopView] = field(default_factory=list)
    current: int = -1
    resets: int = 0
    growth: int = 0
    period: int = 0
    followed: int = -1
    seen: MinerEvent | None = None
    foreign: int = 0  # kernels in no iteration, on streams that were the main one before

    def follow(self, miner: OnlineMiner, offset: int) -> list[MinerEvent]:
        """Process and return the miner's events since the last call. Its loops are numbered from `offset` on."""
        new = [_shift(event, offset) for event in _events_after(miner.events, self.seen)]
        for event in new:
            self._note(event)
        if new:
            self.seen = miner.events[-1]
            self._show(miner, offset)
        return new

    def _note(self, event: MinerEvent) -> None:
        if event.kind == "lost":
            self.resets, self.followed = self.resets + 1, -1
        elif event.kind == "drift":
            self.growth += event.period > self.period
            self.loops = [replace(one, period=event.period) if one.number == event.loop else one for one in self.loops]
        elif event.kind == "lock":
            self.resets += self.followed not in (-1, event.loop)
            self.followed = event.loop
        self.period = event.period

    def _show(self, miner: OnlineMiner, offset: int) -> None:
        """Update or add the loop that is followed now."""
        lock = miner.loop
        if lock is None:
            return
        self.current = offset + lock.number
        loop = LoopView(self.current, lock.period, lock.confidence, lock.evidence, lock.source, iterations=0)
        for place, one in enumerate(self.loops):
            if one.number == loop.number:
                self.loops[place] = replace(loop, iterations=one.iterations)
                return
        self.loops = [*self.loops, loop][-MOST_LOOPS:]

    def count(self, number: int, iterations: int) -> None:
        """Add iterations to the count of a loop."""
        self.loops = [
            replace(loop, iterations=loop.iterations + iterations) if loop.number == number else loop
            for loop in self.loops
        ]

    def settle(self, loops: Sequence[FoundLoop]) -> None:
        """Replace the loops that were followed by these, with no iterations counted yet."""
        self.loops = [
            LoopView(one.number, one.period, one.confidence, one.evidence, one.boundary_source, iterations=0)
            for one in loops[-MOST_LOOPS:]
        ]
        self.current = -1

    def restart(self) -> None:
        """Begin anew for another stream, which another miner follows."""
        self.resets += 1
        self.seen, self.followed, self.period = None, -1, 0

    def shown(self) -> dict[str, Any]:
        """Return the fields of `DeviceView`."""
        counts = {"loops": tuple(self.loops), "resets": self.resets, "growth_total": self.growth}
        return next((counts | loop.shown() for loop in self.loops if loop.number == self.current), counts)


def _shift(event: MinerEvent, offset: int) -> MinerEvent:
    """Return the event with the number that its loop has on this device."""
    return event if event.loop < 0 else replace(event, loop=offset + event.loop)


def _events_after(events: tuple[MinerEvent, ...], seen: MinerEvent | None) -> list[MinerEvent]:
    """Return the events after `seen`; all events where `seen` is not among them."""
    for place in range(len(events) - 1, -1, -1):
        if events[place] == seen:
            return list(events[place + 1 :])
    return list(events)
