"""Who may bring the next message while the queues are full: callers and jobs take turns, and none has all the room."""

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

__all__ = ["Admission"]


@dataclass(slots=True, eq=False)
class WaitingStream:
    """A stream with a message for which there is no room yet."""

    rank: DaemonRank
    owner: str
    nbytes: int
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    admitted: bool = False


class Admission:
    """Gives out the room of the queues, in bytes as of an `Item`; belongs to the event loop.

    What an owner has waiting may never be more than what is left of all the room, and what a job has not more than half
    of that: so there is always some for a job, or an owner, that has nothing. A rank without a message that waits may
    bring one beyond `queue_nbytes`, as long as there is not twice that.
    """

    def __init__(self, limits: IngestLimits) -> None:
        self.limits = limits
        self.nbytes = 0  # that all have waiting
        self._owners, self._jobs = Counter[str](), Counter[tuple[str, str]]()
        self._turns = FairQueue[WaitingStream]()

    @asynccontextmanager
    async def room(self, rank: DaemonRank, nbytes: int, check: Callable[[], None]) -> AsyncIterator[None]:
        """Hold room for a message as soon as there is some, until the block ends; `check` may raise while it waits."""
        waiting = WaitingStream(rank, rank.owner, nbytes)
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

    def _leave(self, waiting: WaitingStream) -> None:
        """Give the room back that was held for a message, or the place in the line."""
        if waiting.admitted:
            waiting.rank.reserved_nbytes -= waiting.nbytes
            self.count(waiting.rank)
        else:
            self._turns.discard(waiting.owner, waiting.rank.hello.job, waiting)

    def count(self, rank: DaemonRank) -> None:
        """Take note of what a rank has waiting now, and let others in where that has become less."""
        more = rank.waiting_nbytes - rank.counted_nbytes
        rank.counted_nbytes += more
        self._add(rank, more)
        if more < 0:
            self.admit()

    def _add(self, rank: DaemonRank, nbytes: int) -> None:
        """Add to what all have waiting, a rank's owner, and its job."""
        self.nbytes += nbytes
        self._owners[rank.owner] += nbytes
        self._jobs[rank.owner, rank.hello.job] += nbytes
        if not self._jobs[rank.owner, rank.hello.job]:
            del self._jobs[rank.owner, rank.hello.job]
        if not self._owners[rank.owner]:
            del self._owners[rank.owner]

    def hand_over(self, rank: DaemonRank, owner: str) -> None:
        """Have what a rank has waiting count as another owner's."""
        self._add(rank, -rank.counted_nbytes)
        rank.owner = owner
        self._add(rank, rank.counted_nbytes)

    def admit(self) -> None:
        """Let in those for whom there is room, in turn."""
        while self._turns and (first := self._turns.take(self._fits, self._owner_fits, self._job_fits)) is not None:
            first.admitted = True
            first.rank.reserved_nbytes += first.nbytes
            self.count(first.rank)
            first.woken.set()

    def wake(self) -> None:
        """Have all who wait look whether they still may."""
        for waiting in self._turns:
            waiting.woken.set()

    def _owner_fits(self, owner: str) -> bool:
        return self._owners[owner] <= self._most - self.nbytes

    def _job_fits(self, owner: str, job: str) -> bool:
        return 2 * self._jobs[owner, job] <= self._most - self.nbytes

    @property
    def _most(self) -> int:
        return 2 * self.limits.queue_nbytes

    def _fits(self, waiting: WaitingStream) -> bool:
        """Return whether there is room for a message, of an owner and a job for whom there may be some."""
        rank, nbytes, limits = waiting.rank, waiting.nbytes, self.limits
        if not rank.waiting_nbytes:
            return self.nbytes < self._most
        left = limits.queue_nbytes - self.nbytes
        owners, jobs = self._owners[waiting.owner], self._jobs[waiting.owner, rank.hello.job]
        has_share = owners + nbytes <= left and 2 * (jobs + nbytes) <= left
        return has_share and rank.waiting_nbytes + nbytes <= limits.rank_queue_nbytes
