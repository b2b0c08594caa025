"""One process that is collected, over all its connections: its packets, its effort, its place in the job."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from deepprof.collectors.live.packets import CollectionLevel, Kind
from deepprof.live.agent import answers
from deepprof.live.agent.accounting import describe_account
from deepprof.live.agent.hello import ProcessHello
from deepprof.live.agent.identity import CollectorRun
from deepprof.live.agent.job_names import name_job
from deepprof.live.agent.pacing import CostSample, Effort, Pacer, Pacing
from deepprof.live.agent.process_decoder import RECORDS, ProcessDecoder, ProcessTick
from deepprof.live.agent.rank_places import find_place
from deepprof.live.agent.rank_spool import RankSpool
from deepprof.live.agent.ranks import ProcessRefusedError
from deepprof.live.wire.figures import CollectorLevel, CollectorStatus
from deepprof.metrics.operators import NOTE

log = logging.getLogger(__name__)

SECOND_NS = 10**9
TELL_S = 5.0  # between two messages on the collector's status, when nothing has changed
RETRY_S = 5.0  # after which a process that was refused is tried again
LEVELS: dict[Effort, CollectorLevel] = {Effort.FULL: "full", Effort.DUTY: "duty", Effort.OFF: "off"}


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end of a socket, as the kernel reports it."""

    pid: int
    uid: int


class ProcessMember:
    """Takes a process's packets and answers with the level from then on. `unix_s` is only for names and display."""

    def __init__(
        self,
        hello: ProcessHello,
        peer: Peer,
        open_rank: Callable[[CollectorRun], RankSpool],
        pacing: Pacing,
        unix_s: float,
    ) -> None:
        self.hello, self.peer, self.open_rank = hello, peer, open_rank
        self.place = find_place(hello.variables)
        self.job = self.place.job or name_job(hello.command.split(), unix_s)
        self.process = ProcessDecoder(hello, lambda: open_rank(self.identity))
        self.pacer = Pacer(pacing)
        self.sampled: ProcessTick | None = None
        self.told_s = -TELL_S
        self.refusal = ""
        self.retry_ns = 0
        self.connections = 0
        self.left_s: float | None = None  # when the last connection was lost

    @property
    def identity(self) -> CollectorRun:
        """The identity that the daemon gets."""
        return CollectorRun(
            job=self.job,
            collector=f"{self.hello.collector}-{self.hello.session}",
            rank=self.place.rank,
            world_size=self.place.world_size,
            format=self.hello.format,
            source=self.hello.command,
            notes=(f"{NOTE}(the one that trains)",) if self.hello.stand_in else (),
        )

    @property
    def level(self) -> CollectionLevel:
        """The level that the process gets."""
        return CollectionLevel.ON if self.pacer.is_collecting and not self.refusal else CollectionLevel.OFF

    def take(self, kind: int, payload: memoryview) -> None:
        """Take a packet. Raises `ProtocolError`."""
        if self.refusal and kind in (*RECORDS, Kind.CONTEXT_SUMS):
            return
        try:
            self.process.take(kind, payload)
        except ProcessRefusedError as refusal:
            self._refuse(str(refusal))
        if kind == Kind.TICK and self.process.tick is not None:
            self._hear(self.process.tick)

    def _refuse(self, why: str) -> None:
        if why != self.refusal:
            log.warning("refused", extra={"pid": self.peer.pid, "job": self.job, "why": why})
        self.refusal = why
        tick = self.process.tick
        self.retry_ns = (tick.mono_ns if tick else 0) + int(RETRY_S * SECOND_NS)
        self.process = ProcessDecoder(self.hello, lambda: self.open_rank(self.identity)).after(self.process)

    def _ask_again(self) -> None:
        """Check whether the rank's place is free by now, without collecting, which would cost the process something."""
        try:
            self.process.open()
        except ProcessRefusedError as refusal:
            self._refuse(str(refusal))
        else:
            self.refusal = ""

    def _hear(self, tick: ProcessTick) -> None:
        """Judge the last second, and send the daemon the collector's status."""
        if self.refusal and tick.mono_ns >= self.retry_ns:
            self._ask_again()
        before = self.sampled
        if before is None:
            self.sampled = tick
            return
        passed_ns = tick.mono_ns - before.mono_ns
        if passed_ns < SECOND_NS:
            return
        self.sampled = tick
        cpu_s = max(tick.collector_cpu_ns - before.collector_cpu_ns, 0) / 1e9
        sample = CostSample(passed_ns / 1e9, cpu_s, self.process.overflowed, self._is_full())
        self.process.overflowed = False
        changed = self.pacer.changed
        self.pacer.hear(tick.mono_ns / 1e9, sample)
        self._tell(tick, is_new=self.pacer.changed != changed)

    def _is_full(self) -> bool:
        rank = self.process.rank
        return rank is not None and rank.has_overflowed()

    def _tell(self, tick: ProcessTick, *, is_new: bool) -> None:
        rank, now_s, pacer = self.process.rank, tick.mono_ns / 1e9, self.pacer
        if rank is None or not (is_new or now_s - self.told_s >= TELL_S):
            return
        self.told_s = now_s
        if is_new:
            log.warning(
                "level", extra={"pid": self.peer.pid, "job": self.job, "level": pacer.effort.name, "why": pacer.reason}
            )
        rank.tell(
            CollectorStatus(
                level=LEVELS[pacer.effort],
                reason="" if pacer.effort is Effort.FULL else pacer.reason,
                since_unix_ns=tick.unix_ns - int((now_s - pacer.since_s) * 1e9) if pacer.changed else 0,
                duty_ratio=pacer.duty_ratio,
                overhead_ratio=pacer.overhead_ratio,
                level_changes=pacer.changed,
                notice=next(reversed(self.process.notices.texts.values()), ""),
            )
        )

    def describe(self) -> answers.ProcessStatus:
        """Return the process as the agent's answer shows it."""
        process, rank = self.process, self.process.rank
        return answers.ProcessStatus(
            pid=self.peer.pid,
            session=self.hello.session,
            job=self.job,
            rank=None if rank is None else rank.number,
            collector=self.hello.collector,
            command=self.hello.command,
            level=LEVELS[self.pacer.effort],
            reason=self.pacer.reason,
            records=process.next,
            lost=process.lost + (rank.intake.lost if rank else 0),
            durable=rank.durable if rank else 0,
            next=rank.intake.next if rank else 0,
            ended=process.ended,
            overhead_ratio=round(self.pacer.overhead_ratio, 6),
            account=describe_account(process.account, rank, ended=process.ended, stand_in=self.hello.stand_in),
            refusal=rank.uplink.refusal if rank else "",
            notices=tuple(answers.CollectorNotice(code, text) for code, text in process.notices.texts.items()),
        )

    def describe_changes(self) -> list[dict[str, str | int | float]]:
        """Return when its effort changed, and why."""
        changes = self.pacer.changes
        return [
            {"pid": self.peer.pid, "effort": LEVELS[each.effort], "reason": each.reason, "at_s": each.at_s}
            for each in changes
        ]
