"""The ranks that this node sends: one place each, one process at a time, and what a former agent has left."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from deepprof.agent.identity import Identity, make_hello
from deepprof.agent.rank import Rank
from deepprof.agent.spool import Budget, Spool, SpoolError, find_spools
from deepprof.agent.uplink import Uplink
from deepprof.client.channel import Door
from deepprof.v1.records_pb2 import Hello
from deepprof.wire.errors import WireError

__all__ = ["Refused", "Roster", "Sent"]

log = logging.getLogger(__name__)

MOST_RANKS = 1024  # on one node, at one time
RETURNING_S = 30.0  # for processes to come back to a new agent, before what an old one left is closed
REMEMBERED = 256  # ranks that have ended

Key = tuple[str, int]


class Refused(Exception):  # noqa: N818 - an answer, not a failure
    """This process is not collected; the text says why."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of a rank that has ended."""

    job: str
    rank: int
    records: int
    lost: int


@dataclass(slots=True)
class Active:
    """A rank that is being sent, and the task that does it; `rank` is None for one whose process has not come back."""

    spool: Spool
    uplink: Uplink
    task: asyncio.Task[None]
    rank: Rank | None = None


@dataclass(slots=True)
class Roster:
    """All ranks. `door` leads to the daemon, spools lie under `root`."""

    door: Door
    root: Path
    budget: Budget = field(default_factory=Budget)
    notice: Callable[[str], None] = lambda _: None
    active: dict[Key, Active] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)

    def resume(self) -> None:
        """Go on with what a former agent left. Needs a running loop."""
        for spool in find_spools(self.root, self.budget):
            key = (spool.hello.job, spool.hello.rank)
            if key in self.active:  # two collectors of one rank, one after the other: the daemon takes them in turn
                spool.close()
                continue
            log.info("resuming", extra={"job": key[0], "rank": key[1], "nbytes": spool.nbytes})
            self._carry(key, spool)
        if self.active:
            asyncio.get_running_loop().call_later(RETURNING_S, self.close_left)

    def close_left(self) -> None:
        """End what nobody has come back for."""
        for active in self.active.values():
            if active.rank is None:
                Rank(Identity(job="", collector=""), 0, active.spool, active.uplink).end()

    def open(self, identity: Identity) -> Rank:
        """Return the rank of `identity`, begun or gone on with. Raises `Refused`."""
        number = self._free_number(identity) if identity.rank is None else identity.rank
        try:
            hello = make_hello(identity, number)
        except WireError as error:
            raise Refused(str(error)) from error
        key = (hello.job, hello.rank)
        self._make_room(key, hello)
        try:
            spool = Spool.open(self.root, hello, self.budget)
        except (SpoolError, OSError) as error:
            raise Refused(str(error)) from error
        active = self._carry(key, spool)
        active.rank = Rank(identity, number, spool, active.uplink)
        return active.rank

    def _free_number(self, identity: Identity) -> int:
        """Return the number that this collector had before, else the lowest that nobody has."""
        for (job, number), active in self.active.items():
            if job == identity.job and active.spool.hello.collector == identity.collector:
                return number
        taken = {number for job, number in self.active if job == identity.job}
        return next(number for number in range(len(taken) + 1) if number not in taken)

    def _make_room(self, key: Key, hello: Hello) -> None:
        """Take the rank's place over from what an agent before us left of it. Raises `Refused` where it is taken."""
        active = self.active.get(key)
        if active is None:
            if len(self.active) >= MOST_RANKS:
                raise Refused(f"there are {MOST_RANKS} ranks on this node already")
            return
        theirs = active.spool.hello.collector
        if active.rank is not None or theirs != hello.collector:
            state = "is still being sent" if active.spool.ended else "is collected already"
            raise Refused(f"rank {key[1]} of job {key[0]} {state} ({theirs})")
        active.task.cancel()
        active.spool.close()
        del self.active[key]

    def _carry(self, key: Key, spool: Spool) -> Active:
        uplink = Uplink(self.door, spool, notice=self.notice)
        active = Active(spool, uplink, asyncio.get_running_loop().create_task(uplink.run()))
        self.active[key] = active
        active.task.add_done_callback(lambda task: self._close(key, active, task))
        return active

    def _close(self, key: Key, active: Active, task: asyncio.Task[None]) -> None:
        """Let go of a rank whose sending has come to its end."""
        if self.active.get(key) is not active or task.cancelled():
            return
        if task.exception() is not None:
            log.error("sending-failed", exc_info=task.exception(), extra={"job": key[0], "rank": key[1]})
            active.spool.close()
        elif active.uplink.state.ended:
            lost = active.rank.lost if active.rank else 0
            self.sent = [*self.sent, Sent(key[0], key[1], active.uplink.state.durable, lost)][-REMEMBERED:]
            active.spool.remove()
        else:
            active.spool.close()
        del self.active[key]

    def settle(self) -> None:
        """Try again what had no room on the disk."""
        for active in self.active.values():
            if active.rank is not None:
                active.rank.settle()

    @property
    def is_idle(self) -> bool:
        """Whether everything has arrived."""
        return not self.active

    @property
    def is_sending(self) -> bool:
        """Whether a daemon takes something at present."""
        return any(active.uplink.state.connected for active in self.active.values())

    async def close(self) -> None:
        """Stop sending; what has not arrived stays in the spools."""
        tasks = [active.task for active in self.active.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for active in self.active.values():
            active.spool.close()
        self.active.clear()
