"""Admission of messages while the queues are full: callers and jobs take turns, and none gets all the space."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deepprof.live.service.fair_queue import FairQueue

if TYPE_CHECKING:
    from deepprof.live.service.config.sections import IngestLimits
    from deepprof.live.service.daemon_rank import DaemonRank


@dataclass(slots=True, eq=False)
class _WaitingStream:
    """A stream with a message for which there is no space yet."""

    rank: DaemonRank
    owner: str
    nbytes: int
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    admitted: bool = False


class Admission:
    """Gives out the space of the queues, in bytes as `daemon_rank.waiting_nbytes` counts them; for the event loop only.

    The waiting bytes of an owner may never exceed the space that is left, and those of a job may not exceed half of it:
    so there is always space for a job, or an owner, that has nothing waiting. A rank with no waiting message may bring
    one beyond `queue_nbytes`, as long as less than twice `queue_nbytes` waits.
    """

    def __init__(self, limits: IngestLimits) -> None:
        self.limits = limits
        self.nbytes = 0  # waiting, of all ranks
        self._owners, self._jobs = Counter[str](), Counter[tuple[str, str]]()
        self._turns = FairQueue[_WaitingStream]()

    @asynccontextmanager
    async def room(self, rank: DaemonRank, nbytes: int, check: Callable[[], None]) -> AsyncIterator[None]:
        """Wait for space for a message and hold it until the block ends; `check` may raise during the wait."""
        waiting = _WaitingStream(rank, rank.owner, nbytes)
        self._turns.add(waiting.owner, rank.hello.job, waiting)
        self.admit()
        try:
            while not waiting.admitted:
                await waiting.woken.wait()
                waiting.woken.clear()
                check()
            yield
        finally:
            self._leave(waiting)

    def _leave(self, waiting: _WaitingStream) -> None:
        """Give back the space that was held for a message, or its place in the queue."""
        if waiting.admitted:
            waiting.rank.reserved_nbytes -= waiting.nbytes
            self.count(waiting.rank)
        else:
            self._turns.discard(waiting.owner, waiting.rank.hello.job, waiting)

    def count(self, rank: DaemonRank) -> None:
        """Update the waiting bytes of a rank, and admit others if they have become fewer."""
        more = rank.waiting_nbytes - rank.counted_nbytes
        rank.counted_nbytes += more
        self._add(rank, more)
        if more < 0:
            self.admit()

    def _add(self, rank: DaemonRank, nbytes: int) -> None:
        """Add to the waiting bytes of all ranks, of a rank's owner, and of its job."""
        self.nbytes += nbytes
        self._owners[rank.owner] += nbytes
        self._jobs[rank.owner, rank.hello.job] += nbytes
        if not self._jobs[rank.owner, rank.hello.job]:
            del self._jobs[rank.owner, rank.hello.job]
        if not self._owners[rank.owner]:
            del self._owners[rank.owner]

    def hand_over(self, rank: DaemonRank, owner: str) -> None:
        """Count the waiting bytes of a rank as another owner's."""
        self._add(rank, -rank.counted_nbytes)
        rank.owner = owner
        self._add(rank, rank.counted_nbytes)

    def admit(self) -> None:
        """Admit the streams for which there is space, in turn."""
        while self._turns and (first := self._turns.take(self._fits, self._owner_fits, self._job_fits)) is not None:
            first.admitted = True
            first.rank.reserved_nbytes += first.nbytes
            self.count(first.rank)
            first.woken.set()

    def wake(self) -> None:
        """Have all waiting streams check whether they may still wait."""
        for waiting in self._turns:
            waiting.woken.set()

    def _owner_fits(self, owner: str) -> bool:
        return self._owners[owner] <= self._most - self.nbytes

    def _job_fits(self, owner: str, job: str) -> bool:
        return 2 * self._jobs[owner, job] <= self._most - self.nbytes

    @property
    def _most(self) -> int:
        return 2 * self.limits.queue_nbytes

    def _fits(self, waiting: _WaitingStream) -> bool:
        """Return whether there is space for a message whose owner and job may have some."""
        rank, nbytes, limits = waiting.rank, waiting.nbytes, self.limits
        if not rank.waiting_nbytes:
            return self.nbytes < self._most
        left = limits.queue_nbytes - self.nbytes
        owners, jobs = self._owners[waiting.owner], self._jobs[waiting.owner, rank.hello.job]
        has_share = owners + nbytes <= left and 2 * (jobs + nbytes) <= left
        return has_share and rank.waiting_nbytes + nbytes <= limits.rank_queue_nbytes
