"""The ranks that this node sends: one place each, one process at a time, and the spools a former agent has left."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from deepprof.live.agent.identity import CollectorRun, is_run_of, make_hello, name_runs
from deepprof.live.agent.rank_spool import RankSpool
from deepprof.live.agent.spool import Spool, SpoolBudget, SpoolError, find_spools
from deepprof.live.agent.uplink import Uplink
from deepprof.live.client.endpoint import Endpoint
from deepprof.live.process.supervision import FirstFailure
from deepprof.live.wire.errors import WireError
from deepprof.v1.records_pb2 import Hello

log = logging.getLogger(__name__)

MOST_RANKS = 1024  # on one node, at one time
RETURNING_S = 30.0  # for processes to come back to a new agent, before ranks that an old one left are ended
REMEMBERED = 256  # ranks that have ended
MOST_ENDED = 4096  # collectors of ended ranks

Key = tuple[str, int]


class ProcessRefusedError(Exception):
    """This process is not collected; the text states why."""


@dataclass(frozen=True, slots=True)
class _EndedRank:
    """What became of a rank that has ended."""

    job: str
    rank: int
    records: int
    lost: int


@dataclass(slots=True, eq=False)
class _ActiveRank:
    """A rank that is being sent, and the task that sends it; `rank` is None while its process has not come back."""

    spool: Spool
    uplink: Uplink
    task: asyncio.Task[None]
    rank: RankSpool | None = None


@dataclass(slots=True)
class AgentRanks:
    """All ranks. `endpoint` leads to the daemon, spools are under `root`.

    `awaits` returns whether the process of a collector is here, and may still have records for a rank that was left.
    """

    endpoint: Endpoint
    root: Path
    budget: SpoolBudget = field(default_factory=SpoolBudget)
    notice: Callable[[str], None] = lambda _: None
    active: dict[Key, _ActiveRank] = field(default_factory=dict)
    former: list[_ActiveRank] = field(
        default_factory=list
    )  # have ended and are still sent; the rank that has the place now is sent after them
    sent: list[_EndedRank] = field(default_factory=list)
    awaits: Callable[[str], bool] = lambda _: False
    ended: dict[str, int] = field(default_factory=dict)  # the latest ended collectors, and after how many records
    has_put_off: bool = False  # whether spools wait because their rank's place was taken
    vitals: FirstFailure = field(default_factory=FirstFailure)  # of the agent that runs it

    def resume(self) -> None:
        """Go on with the spools that a former agent left. Needs a running loop."""
        for spool in find_spools(self.root, self.budget):
            key = (spool.hello.job, spool.hello.rank)
            if key in self.active:  # two collectors of one rank, one after the other: the daemon takes them in turn
                self.has_put_off = True
                spool.close()
                continue
            log.info("resuming", extra={"job": key[0], "rank": key[1], "nbytes": spool.nbytes})
            self._carry(key, spool)
        if self.active:
            self._look_later()

    def _look_later(self) -> None:
        look = self.vitals.guard("what closes ranks that were left", self.close_left)
        asyncio.get_running_loop().call_later(RETURNING_S, look)

    def close_left(self) -> None:
        """End the ranks whose process has not come back, and check again later while one may."""
        left = [active for active in self.active.values() if active.rank is None]
        for active in left:
            if not self.awaits(active.spool.hello.collector):
                _end_left(active)
        if any(not active.spool.ended for active in left):
            self._look_later()

    def let_go(self, collector: str) -> None:
        """End the ranks left by a collector whose process has ended."""
        for active in self.active.values():
            if active.rank is None and is_run_of(active.spool.hello.collector, collector):
                _end_left(active)

    def open(self, identity: CollectorRun) -> RankSpool:
        """Return the rank of `identity`, new or continued. Raises `ProcessRefusedError`."""
        collector = identity.collector
        identity = self._name_again(identity)
        number = self._free_number(identity) if identity.rank is None else identity.rank
        try:
            hello = make_hello(identity, number)
        except WireError as error:
            raise ProcessRefusedError(str(error)) from error
        key = (hello.job, hello.rank)
        self._check_room(key, hello)
        before = self._take_over(key)
        try:
            spool = Spool.open(self.root, hello, self.budget)
        except (SpoolError, OSError) as error:
            raise ProcessRefusedError(str(error)) from error
        active = self._carry(key, spool, before)
        active.rank = RankSpool(identity, number, spool, active.uplink, self._count_former(collector))
        return active.rank

    def _name_again(self, identity: CollectorRun) -> CollectorRun:
        """Return the identity, with a new name if this collector has ended: nothing may follow an End."""
        ending = {active.spool.hello.collector for active in self.all if active.spool.ended}
        left = [each.spool.hello for each in self.active.values() if each.rank is None and not each.spool.ended]
        names = [hello.collector for hello in left if hello.job == identity.job]  # a former agent may have named it so
        own = [name for name in names if is_run_of(name, identity.collector)]
        free = (name for name in name_runs(identity.collector) if name not in ending | self.ended.keys())
        return replace(identity, collector=own[0] if own else next(free))

    def _count_former(self, collector: str) -> int:
        """Return how many records a process has given to its own ranks that have ended."""
        ended = self.ended | {each.spool.hello.collector: each.spool.source_next for each in self.former}
        return max((count for name, count in ended.items() if is_run_of(name, collector)), default=0)

    def _free_number(self, identity: CollectorRun) -> int:
        """Return the number that this collector had before, else the lowest that is free."""
        for (job, number), active in self.active.items():
            if job == identity.job and active.spool.hello.collector == identity.collector:
                return number
        taken = {number for job, number in self.active if job == identity.job}
        return next(number for number in range(len(taken) + 1) if number not in taken)

    def _check_room(self, key: Key, hello: Hello) -> None:
        """Raise `ProcessRefusedError` if the rank's place is taken, or none is left."""
        active = self.active.get(key)
        if len(self.all) >= MOST_RANKS and (active is None or active.spool.ended):
            raise ProcessRefusedError(f"there are {MOST_RANKS} ranks on this node already")
        if active is None or active.spool.ended:
            return
        theirs = active.spool.hello.collector
        if active.rank is not None or theirs != hello.collector:
            raise ProcessRefusedError(f"rank {key[1]} of job {key[0]} is collected already ({theirs})")

    def _take_over(self, key: Key) -> asyncio.Task[None] | None:
        """Take a place that a former agent, or a process that has ended, holds; returns a task that must end first."""
        active = self.active.pop(key, None)
        if active is None:
            return None
        if active.spool.ended:
            self.former.append(active)
            return active.task
        active.task.cancel()
        active.spool.close()
        return None

    def _carry(self, key: Key, spool: Spool, before: asyncio.Task[None] | None = None) -> _ActiveRank:
        uplink = Uplink(self.endpoint, spool, notice=self.notice)
        active = _ActiveRank(spool, uplink, asyncio.get_running_loop().create_task(_send_behind(before, uplink)))
        self.active[key] = active
        close = self.vitals.guard("what closes ranks", self._close)
        active.task.add_done_callback(partial(close, key, active))
        return active

    def _close(self, key: Key, active: _ActiveRank, task: asyncio.Task[None]) -> None:
        """Drop a rank whose sending has ended."""
        if active not in self.all or task.cancelled():
            return
        if (error := task.exception()) is not None:
            self.vitals.fail("what sends a rank", error)
            active.spool.close()
        elif active.uplink.state.ended:
            lost = active.rank.lost if active.rank else 0
            extra = {"job": key[0], "rank": key[1], "records": active.uplink.state.durable, "lost": lost}
            log.info("arrived", extra=extra)
            self.sent = [*self.sent, _EndedRank(key[0], key[1], active.uplink.state.durable, lost)][-REMEMBERED:]
            ended = self.ended | {active.spool.hello.collector: active.spool.source_next}
            self.ended = dict(list(ended.items())[-MOST_ENDED:])
            active.spool.remove()
        else:
            active.spool.close()
        if self.active.get(key) is active:
            del self.active[key]
        else:
            self.former.remove(active)
        if self.has_put_off:
            self.has_put_off = False
            self.resume()

    def settle(self) -> None:
        """Write the ends for which the disk had no space before."""
        for active in self.all:
            if active.rank is not None:
                active.rank.settle()

    @property
    def all(self) -> list[_ActiveRank]:
        """All ranks that are being sent, or wait for a former one to be sent."""
        return [*self.former, *self.active.values()]

    @property
    def is_idle(self) -> bool:
        """Whether everything has arrived."""
        return not self.all

    @property
    def is_sending(self) -> bool:
        """Whether a daemon uses something at present."""
        return any(active.uplink.state.connected for active in self.all)

    async def close(self) -> None:
        """Stop sending; what has not arrived stays in the spools."""
        tasks = [active.task for active in self.all]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for active in self.all:
            active.spool.close()
        self.active.clear()
        self.former.clear()


async def _send_behind(before: asyncio.Task[None] | None, uplink: Uplink) -> None:
    """Send a rank once the former one of its place is sent: a daemon that gets a new one closes the former."""
    if before is not None:
        await asyncio.wait([before])
    await uplink.run()


def _end_left(active: _ActiveRank) -> None:
    """End a rank whose process does not come back."""
    if not active.spool.ended:
        RankSpool(CollectorRun(job="", collector=""), 0, active.spool, active.uplink).end()
