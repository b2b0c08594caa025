"""The states that watching clients are shown, made once for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from deepprof.live.service.clock import DaemonClock

T = TypeVar("T")

AGE_NS = 10**8  # for which a look is good enough: the shortest interval that clients may request
EASE = 9  # a look is also good for this many times as long as it needed: making looks uses at most a tenth of the time


class LatestLooks(Generic[T]):
    """Keeps the latest examine every job; for the event loop only."""

    def __init__(self, make: Callable[[str], T], clock: DaemonClock) -> None:
        self._make, self._clock = make, clock
        self._made: dict[str, tuple[int, T]] = {}  # by job: the time until which a look is good, and the look

    def look(self, job: str) -> T:
        """Return a job as it is, or as it was shortly before."""
        now = self._clock.monotonic_ns()
        if job in self._made and now < self._made[job][0]:
            return self._made[job][1]
        self._made = {name: made for name, made in self._made.items() if now < made[0]}
        look = self._make(job)
        after = self._clock.monotonic_ns()
        self._made[job] = after + max(AGE_NS, EASE * (after - now)), look
        return look
