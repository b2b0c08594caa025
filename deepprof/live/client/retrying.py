"""How long a client waits between attempts, and for how long it retries; clock and randomness are arguments."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

FIRST_S, LONGEST_S = 0.1, 10.0


class Clock(Protocol):
    """A clock that can be read and waited on."""

    def now_s(self) -> float:
        """Return seconds since an arbitrary moment, never decreasing."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""
        ...


class _SystemClock:
    """The machine's own clock."""

    def now_s(self) -> float:
        """Return the seconds of the monotonic clock."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""
        await asyncio.sleep(seconds)


CLOCK: Clock = _SystemClock()


@dataclass(slots=True)
class RetrySchedule:
    """Ever longer pauses between attempts, up to a time limit.

    The longest pause doubles with every failure, and each pause is a random half to the whole of it, so that the many
    clients of a daemon do not come back together. `limit_s` counts from the first failure since the last success; None:
    no limit. `chance` returns a number from 0 to 1.
    """

    clock: Clock
    limit_s: float | None = None
    chance: Callable[[], float] = field(default=random.random)  # noqa: S311  no secret hangs on it
    failures: int = 0
    since_s: float | None = None

    def succeed(self) -> None:
        """Forget all failures."""
        self.failures, self.since_s = 0, None

    def fail(self) -> float | None:
        """Count a failure and return how many seconds to wait; None: the time limit is reached."""
        now = self.clock.now_s()
        self.since_s = now if self.since_s is None else self.since_s
        left = None if self.limit_s is None else self.since_s + self.limit_s - now
        if left is not None and left <= 0:
            return None
        pause = min(FIRST_S * 2.0 ** min(self.failures, 16), LONGEST_S) * (1 + self.chance()) / 2
        self.failures += 1
        return pause if left is None else min(pause, left)
