"""A lock that callers and jobs get in turn: a caller with a thousand requests delays others by one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from deepprof.live.service.fair_queue import FairQueue


class FairLock:
    """A lock that one task holds at a time; for the event loop only."""

    def __init__(self) -> None:
        self._turns = FairQueue[asyncio.Future[None]]()
        self._held = False

    @asynccontextmanager
    async def hold(self, owner: str, job: str) -> AsyncIterator[None]:
        """Wait for the turn of an owner and a job, and hold the lock until the block ends."""
        if self._held:
            await self._wait(owner, job)
        self._held = True
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, owner: str, job: str) -> None:
        """Return when the lock was passed on to this task."""
        turn = asyncio.get_running_loop().create_future()
        self._turns.add(owner, job, turn)
        try:
            await turn
        except BaseException:
            self._turns.discard(owner, job, turn)
            if not turn.cancelled():  # this task got the lock, but does not use it any more
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Pass the lock to the next waiting task; it is never free in between, so that no other task comes first."""
        turn = self._turns.take(lambda each: not each.done())
        self._held = turn is not None
        if turn is not None:
            turn.set_result(None)
