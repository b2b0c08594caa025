"""Recorded traces sent to a daemon as the ranks of a job: as fast as possible or at the speed of the recording."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from deepprof.collectors.clocks import extremes
from deepprof.collectors.errors import UsageError
from deepprof.collectors.trace import Trace
from deepprof.live.client.endpoint import Endpoint
from deepprof.live.client.repetition import cut_repeated, end_repeated, measure_period
from deepprof.live.client.retrying import CLOCK, Clock
from deepprof.live.client.sender import Sender, SendPolicy, SentTotals
from deepprof.live.wire.checking import check_hello
from deepprof.live.wire.errors import WireError
from deepprof.live.wire.heads import make_hello
from deepprof.live.wire.limits import WireLimits
from deepprof.live.wire.sent_tables import SENT_RECORDS, as_sent
from deepprof.v1.records_pb2 import CLOCK_UNIX, Gap, Hello

Result = TypeVar("Result")
AT_ONCE = 8  # ranks that send at the same time; more would not be faster, because they share one daemon
BATCH_RECORDS, MIN_BATCH_RECORDS = 8192, 64
BATCH_S = 0.2  # how long records wait for their batch at the speed of the recording
LEAST_WINDOW = 1 << 20


@dataclass(frozen=True, slots=True)
class ReplayTotals:
    """Totals over all ranks: numbers of records, and how long the sending took."""

    ranks: int = 0
    records: int = 0
    durable: int = 0
    present: int = 0
    seconds: float = 0.0


Progress = Callable[[int, int], None]
"""A callback that receives how many records are durable, and how many there are in all."""


@dataclass(frozen=True, slots=True)
class TraceReplay:
    """How traces are sent. `speed` is relative to the recording's own time, None as fast as the daemon accepts them.

    `repeat` is how often each trace is sent, one after the other in time. `collector` names the transmission; the same
    name continues an earlier one. By default the name is derived from the traces, so that no record arrives twice.
    """

    job: str
    speed: float | None = None
    repeat: int = 1
    collector: str | None = None
    policy: SendPolicy = field(default_factory=SendPolicy)


def check_words(job: str, collector: str | None = None) -> None:
    """Raise `UsageError` for names that no daemon accepts; call it before reading traces, which may last long."""
    try:
        check_hello(Hello(job=job, collector=collector or "send", clock=CLOCK_UNIX), WireLimits())
    except WireError as error:
        raise UsageError(f"{error}; choose another name") from error


def replay(  # noqa: PLR0913 - what is sent, how, and who is told
    endpoint: Endpoint,
    traces: Sequence[Trace],
    how: TraceReplay,
    *,
    clock: Clock = CLOCK,
    watch: Progress | None = None,
    notice: Callable[[str], None] | None = None,
) -> ReplayTotals:
    """Send `traces`, the numbered ranks of one job, and return when all records are durable.

    `notice` is called for every lost connection. Raises `DaemonError`, and `UsageError` for what no daemon accepts.
    """
    began = clock.now_s()
    sending = ReplayRun(endpoint, traces, how, clock, watch, notice)
    sent = _finish(sending.run())
    totals = {name: sum(getattr(each, name) for each in sent) for name in ("records", "durable", "present")}
    return ReplayTotals(len(sent), **totals, seconds=clock.now_s() - began)


@dataclass(slots=True, eq=False)
class ReplayRun:
    """The sending of all ranks to one daemon."""

    endpoint: Endpoint
    traces: Sequence[Trace]
    how: TraceReplay
    clock: Clock
    watch: Progress | None
    notice: Callable[[str], None] | None
    durable: list[int] = field(init=False)
    hellos: list[Hello] = field(init=False)
    zeros: list[int] = field(init=False)
    turns: asyncio.Semaphore = field(init=False)
    policy: SendPolicy = field(init=False)
    began_s: float = 0.0

    def __post_init__(self) -> None:
        self.traces = [as_sent(trace) for trace in self.traces]
        self.durable = [0] * len(self.traces)
        self.hellos = [self.greet(trace) for trace in self.traces]
        self.zeros = find_zeros(self.traces)
        at_once = max(1, len(self.traces) if self.how.speed is not None else min(len(self.traces), AT_ONCE))
        self.turns = asyncio.Semaphore(at_once)
        self.policy = self.how.policy
        window = max(self.policy.window_nbytes // at_once, LEAST_WINDOW)
        self.policy = replace(self.policy, window_nbytes=min(window, self.policy.window_nbytes))

    async def run(self) -> list[SentTotals]:
        """Send every rank; the first failure cancels all others."""
        self.began_s = self.clock.now_s()
        tasks = [asyncio.create_task(self.send(number)) for number in range(len(self.traces))]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def send(self, number: int) -> SentTotals:
        """Send one rank when its turn comes."""
        trace, how = self.traces[number], self.how
        records = choose_records(trace, how.speed)
        last_ns = (extremes(trace) or (0, 0))[1] + measure_period(trace) * (how.repeat - 1)
        async with (
            self.turns,
            Sender(self.endpoint, self.hellos[number], self.policy, clock=self.clock, notice=self.notice) as sender,
        ):
            for batch, count in cut_repeated(trace, how.repeat, records):
                if isinstance(batch, Gap):
                    await sender.gap(batch)
                    continue
                await self.pace(min(batch.complete_until_ns, last_ns) - self.zeros[number])
                await sender.send(batch, count)
                self.show(number, sender.sent)
            sent = await sender.end(end_repeated(trace, how.repeat))
        self.show(number, sent)
        return sent

    async def pace(self, time_ns: int) -> None:
        """Wait until `time_ns` of the recording have passed at its speed."""
        if self.how.speed is not None:
            ahead = self.began_s + time_ns / 1e9 / self.how.speed - self.clock.now_s()
            if ahead > 0:
                await self.clock.sleep(ahead)

    def show(self, number: int, sent: SentTotals) -> None:
        """Report the progress to `watch`."""
        self.durable[number] = sent.durable
        if self.watch is not None:
            total = sum(trace.accounting.kept for trace in self.traces) * self.how.repeat
            self.watch(sum(self.durable), total)

    def greet(self, trace: Trace) -> Hello:
        """Return the Hello of a rank; raises `UsageError` for a job or a rank that no daemon accepts."""
        collector = self.how.collector or name_sending(trace, self.how)
        try:
            return make_hello(trace, self.how.job, collector=collector, host=socket.gethostname())
        except WireError as error:
            raise UsageError(f"{trace.path}: cannot be sent: {error}; choose another name") from error


def choose_records(trace: Trace, speed: float | None) -> int:
    """Return the records of a batch: `BATCH_RECORDS`, or with a speed as many as arrive in `BATCH_S`."""
    ends = extremes(trace)
    if speed is None or ends is None:
        return BATCH_RECORDS
    per_second = trace.accounting.kept / max((ends[1] - ends[0]) / 1e9, 1e-9) * speed
    return int(max(MIN_BATCH_RECORDS, min(BATCH_RECORDS, per_second * BATCH_S)))


def find_zeros(traces: Sequence[Trace]) -> list[int]:
    """Return where the recording begins on every rank's clock: at one common time where all are on the unix clock."""
    starts = [(extremes(trace) or (0, 0))[0] for trace in traces]
    together = all(trace.clock == "unix" for trace in traces)
    return [min(starts)] * len(starts) if together and starts else starts


def name_sending(trace: Trace, how: TraceReplay) -> str:
    """Return a name derived only from what is sent, so that sending it again continues and duplicates nothing."""
    told = [trace.path, trace.format, trace.rank, how.repeat, choose_records(trace, how.speed), *trace.breaks_ns]
    digest = hashlib.sha256(repr([*told, trace.accounting]).encode())
    for table in SENT_RECORDS:
        rows = getattr(trace, table)
        digest.update(rows[rows.columns[0]].to_numpy().tobytes())
    return f"send-{digest.hexdigest()[:24]}"


def _finish(work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of `work`, run in its own event loop; in a new thread where this one already runs a loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    found: list[Result | BaseException] = []

    def run() -> None:
        try:
            found.append(asyncio.run(work))
        except BaseException as error:  # raised again in the waiting thread
            found.append(error)

    thread = threading.Thread(target=run, name="deepprof-sending")
    thread.start()
    thread.join()
    (result,) = found
    if isinstance(result, BaseException):
        raise result
    return result
