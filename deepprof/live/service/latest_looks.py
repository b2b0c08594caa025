"""What those who watch are shown, made once for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from deepprof.live.service.clock import DaemonClock

__all__ = ["LatestLooks"]

T = TypeVar("T")

AGE_NS = 10**8  # for which a look is good enough: the shortest interval that may be asked for
EASE = 9  # times as long as a look took it is good too, so that making them takes a tenth of the time at most


class LatestLooks(Generic[T]):
    """Keeps the latest look at each job; belongs to the event loop."""

    def __init__(self, make: Callable[[str], T], clock: DaemonClock) -> None:
        self._make, self._clock = make, clock
        self._made: dict[str, tuple[int, T]] = {}  # until when it is good

    def look(self, job: str) -> T:
        """Return a job as it is, or was shortly ago."""
        now = self._clock.monotonic_ns()
        if job in self._made and now < self._made[job][0]:
            return self._made[job][1]
        self._made = {name: made for name, made in self._made.items() if now < made[0]}
        look = self._make(job)
        after = self._clock.monotonic_ns()
        self._made[job] = after + max(AGE_NS, EASE * (after - now)), look
        return look
