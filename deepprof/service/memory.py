"""Memory that was needed under load and is not any more, given back to the system."""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deepprof.service.clock import Clock

__all__ = ["Spare"]

QUIET_NS = 5 * 10**9  # without a record, before it is worth it
EVERY_NS = 60 * 10**9  # at most: it takes some milliseconds for each 100 MB


class Spare:
    """Gives back what the allocator keeps, once after each load; `asked` does it (None: this system has no way)."""

    def __init__(self, clock: Clock, trim: Callable[[], object] | None = None) -> None:
        self.clock, self.trim = clock, trim or find_trim()
        self.seen, self.since_ns = 0, clock.monotonic_ns()  # records, and since when there are no more
        self.trimmed, self.trimmed_ns = 0, self.since_ns - EVERY_NS

    async def give_back(self, records: int) -> None:
        """Give memory back where `records`, all that have come so far, are no more than a while ago, nor done yet."""
        now = self.clock.monotonic_ns()
        if records != self.seen:
            self.seen, self.since_ns = records, now
        if self.is_due(now) and self.trim is not None:
            self.trimmed, self.trimmed_ns = records, now
            await asyncio.to_thread(self.trim)

    def is_due(self, now_ns: int) -> bool:
        """Whether something has come since the last time, and nothing lately."""
        return self.trimmed != self.seen and now_ns - self.since_ns >= QUIET_NS and now_ns - self.trimmed_ns >= EVERY_NS


@cache
def find_trim() -> Callable[[], object] | None:
    """Return what has the C library give back its free memory: glibc's `malloc_trim`; None where it is another one."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    return lambda: trim(0)
