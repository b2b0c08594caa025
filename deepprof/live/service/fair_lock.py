"""A lock that callers and jobs get in turn: who asks a thousand times makes nobody wait a thousand times."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from deepprof.live.service.fair_queue import FairQueue

__all__ = ["FairLock"]


class FairLock:
    """Is held by one at a time; belongs to the event loop."""

    def __init__(self) -> None:
        self._turns = FairQueue[asyncio.Future[None]]()
        self._held = False

    @asynccontextmanager
    async def hold(self, owner: str, job: str) -> AsyncIterator[None]:
        """Hold it until the block ends, once it is the turn of an owner and a job."""
        if self._held:
            await self._wait(owner, job)
        self._held = True
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, owner: str, job: str) -> None:
        """Return when it was passed on to us."""
        turn = asyncio.get_running_loop().create_future()
        self._turns.add(owner, job, turn)
        try:
            await turn
        except BaseException:
            self._turns.discard(owner, job, turn)
            if not turn.cancelled():  # we were given it, and are gone
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Give it to whose turn it is; it is never free in between, so that nobody comes before those who wait."""
        turn = self._turns.take(lambda each: not each.done())
        self._held = turn is not None
        if turn is not None:
            turn.set_result(None)
