"""Sends one rank's messages to a daemon, across lost connections, in bounded memory and with nothing skipped silently.

A task of its own runs the connection: it writes the messages of the window, removes those that the daemon reports as
durable, and after a failure connects again and resumes at the record number that the daemon returns.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Literal, Self

import polars as pl
from grpc import StatusCode

from deepprof.live.client.endpoint import Endpoint
from deepprof.live.client.errors import DaemonError, explain, is_passing
from deepprof.live.client.retrying import CLOCK, Clock, RetrySchedule
from deepprof.live.client.stream import IngestStream, StreamBrokenError
from deepprof.live.client.window import SendWindow, WindowEntry
from deepprof.live.wire.limits import LIMITS, MESSAGE_RECORDS
from deepprof.live.wire.naming import NewNames
from deepprof.v1.ingest_pb2 import SendRequest, SendResponse
from deepprof.v1.records_pb2 import Account, Batch, End, Gap, Hello, Status

REASON = "buffer-full"


@dataclass(slots=True)
class DroppedBatches:
    """Consecutive batches that were dropped: the number of their records, and their names, which later batches need."""

    first: int = 0
    lost: int = 0
    first_name: int = 0
    names: list[str] = field(default_factory=list)
    open: bool = False

    def add(self, batch: Batch, count: int) -> None:
        """Count a batch of `count` records that is dropped."""
        if not self.open:
            self.first, self.lost, self.names, self.open = batch.first, 0, [], True
        if batch.names and not self.names:
            self.first_name = batch.first_name
        self.lost += count
        self.names.extend(batch.names)

    def close(self, complete_until_ns: int | None = None) -> Iterator[WindowEntry]:
        """Yield the messages to send before the next batch: the gap, and then batches that contain only names.

        `complete_until_ns` None: no batch follows, and the names are not needed.
        """
        end = self.first + self.lost
        for first in range(self.first, end, MESSAGE_RECORDS) if self.open else ():
            gap = Gap(first=first, lost=min(end - first, MESSAGE_RECORDS), reason=REASON)
            yield WindowEntry(SendRequest(gap=gap), first, gap.lost, gap.ByteSize())
        names = NewNames(pl.Series(self.names, dtype=pl.String), LIMITS)
        for at, texts in names.take(0 if complete_until_ns is None else len(self.names)):
            name = self.first_name + at
            batch = Batch(first=end, names=texts, first_name=name, complete_until_ns=complete_until_ns)
            yield WindowEntry(SendRequest(batch=batch), end, 0, batch.ByteSize())
        self.names, self.open = [], False


JUMPS = 2  # such refusals in a row, with no record accepted, mean that the record numbers of daemon and sender differ


@dataclass(frozen=True, slots=True)
class SendPolicy:
    """How a sender behaves while the daemon is slow or away.

    `on_full`: with `window_nbytes` unacknowledged, `wait` blocks the caller, `gap` drops batches and reports a gap.
    `silence_s` is how long an answer may take before the connection counts as lost, `patience_s` how long to retry
    without any success (None: for ever), `reach_s` the same before the daemon has ever answered. `counted`: an End with
    `await_account` is complete once the daemon has reported what became of all records, as far as it can.
    """

    window_nbytes: int = 64 << 20
    on_full: Literal["wait", "gap"] = "wait"
    silence_s: float = 30.0
    patience_s: float | None = 60.0
    reach_s: float | None = 5.0
    counted: bool = False


@dataclass(frozen=True, slots=True)
class SentTotals:
    """What a sender has done: numbers of records, and of connections.

    `durable` is the daemon's count, `present` how many of them it had from an earlier run, `lost` the records that did
    not fit into the window.
    """

    records: int = 0  # given to the sender
    durable: int = 0
    present: int = 0
    lost: int = 0
    connections: int = 0


class Sender:
    """Sends the messages of one rank: `async with Sender(endpoint, hello) as sender: await sender.send(batch) …`.

    `notice` is called for every failure after which it retries. Every method that sends raises `DeepProfError` once the
    daemon has refused the messages, or the time to retry is over.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        hello: Hello,
        policy: SendPolicy | None = None,
        *,
        clock: Clock = CLOCK,
        notice: Callable[[str], None] | None = None,
    ) -> None:
        self.endpoint, self.hello, self.policy = endpoint, hello, policy or SendPolicy()
        self.clock, self.notice = clock, notice
        self.window = SendWindow(self.policy.window_nbytes)
        self.patience = RetrySchedule(clock, self.policy.reach_s)
        self.overflow = DroppedBatches()
        self.sent = SentTotals()
        self.error: Exception | None = None
        self.jumps = 0
        self.status: Status | None = None
        self.takes_status = False
        self.names = 0  # names of this rank that the daemon has
        self.account: Account | None = None  # as the daemon last reported it; None: it does not report one
        self.counted = 0  # all records below this number are in the account
        self.is_over = False  # there is no connection, and will be none
        self.changed = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self.task = asyncio.create_task(self.carry())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if self.task is not None:
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.task

    async def send(self, batch: Batch, count: int) -> None:
        """Send a batch of `count` records whose numbers follow the last batch; returns when it is kept or dropped."""
        self.check()
        self.count(records=count)
        if count and batch.first + count <= self.window.durable:
            return
        if self.policy.on_full == "gap" and self.window.is_full:
            self.overflow.add(batch, count)
            self.count(lost=count)
            return
        for entry in self.overflow.close(batch.complete_until_ns):
            self.window.put(entry)
        await self.put(WindowEntry(SendRequest(batch=batch), batch.first, count, batch.ByteSize()))

    async def gap(self, gap: Gap) -> None:
        """Report that records are missing."""
        await self.put(WindowEntry(SendRequest(gap=gap), gap.first, gap.lost, gap.ByteSize()))

    def tell(self, status: Status) -> None:
        """Report the collector's status as soon as a connection exists, and on every later one; the latest counts.

        Never waits and never fails: it is not sent to a daemon that does not support it.
        """
        self.status = status
        self.wake()

    async def end(self, end: End) -> SentTotals:
        """Send the end, wait until everything is durable, and return the totals."""
        for entry in self.overflow.close():
            self.window.put(entry)
        await self.put(WindowEntry(SendRequest(end=end), 0, 0, end.ByteSize(), is_end=True))
        while not self.window.ended:
            await self.wait()
        return self.sent

    async def put(self, entry: WindowEntry) -> None:
        """Put a message into the window as soon as there is space."""
        self.check()
        while self.window.is_full and not entry.is_end:
            await self.wait()
        self.window.put(entry)
        self.wake()
        await asyncio.sleep(0)  # let the connection have its turn

    async def wait(self) -> None:
        """Wait until something has changed; raises the error that has ended the sending."""
        self.check()
        await self.changed.wait()
        self.check()

    def check(self) -> None:
        """Raise the error that has ended the sending, if any."""
        if self.error is not None:
            raise self.error

    def wake(self) -> None:
        """Wake all tasks that wait for a change."""
        self.changed.set()
        self.changed = asyncio.Event()

    def count(self, **more: int) -> None:
        """Add to the totals."""
        self.sent = replace(self.sent, **{name: getattr(self.sent, name) + value for name, value in more.items()})

    async def carry(self) -> None:
        """Keep up a connection until the end is durable or an error ends the sending."""
        try:
            while not self.window.ended:
                await self.try_once()
        except Exception as error:  # also that of a bug: otherwise the waiting tasks would wait for ever
            self.error = error
        finally:
            self.is_over = True
            self.wake()

    async def try_once(self) -> None:
        """Exchange messages over one connection; after a failure wait. Raises `DeepProfError` when retrying ends."""
        try:
            async with IngestStream(self.endpoint, self.hello, self.policy.silence_s) as stream:
                await self.converse(stream)
        except StreamBrokenError as broken:
            if self.window.ended:  # the daemon closed the stream before it had reported the account
                return
            pause = self.judge(broken)
            if self.notice is not None:
                self.notice(str(explain(broken, self.endpoint.address)))
            await self.clock.sleep(pause)

    def judge(self, broken: StreamBrokenError) -> float:
        """Return how many seconds to wait after a failure; raises it as `DaemonError` where waiting does not help."""
        jumped = broken.code() is StatusCode.OUT_OF_RANGE
        self.jumps += jumped
        passing = self.jumps < JUMPS if jumped else is_passing(broken)
        pause = self.patience.fail() if passing else None
        if pause is None:
            raise explain(broken, self.endpoint.address) from broken
        return pause

    async def converse(self, stream: IngestStream) -> None:
        """Resume at the daemon's record number, write, and read its answers until the end is durable."""
        self.welcome(await stream.hear(lambda: True))
        writing = asyncio.create_task(self.write(stream))
        try:
            while not self.window.ended or self.awaits_account:
                self.take(await stream.hear(lambda: self.window.awaits_answer or self.window.ended))
        finally:
            writing.cancel()
        await stream.close()

    def welcome(self, answer: SendResponse) -> None:
        """Process the daemon's first answer on a connection."""
        if not self.sent.connections:
            self.count(present=answer.durable)
        self.count(connections=1)
        self.patience.limit_s = self.policy.patience_s
        self.takes_status = answer.takes_status
        if not self.window.resume(answer.durable, ended=answer.ended):
            had, has = self.window.durable, answer.durable
            problem = f"it has {has:,} records of this rank, and had acknowledged {had:,}: its store was replaced"
            raise DaemonError(self.endpoint.address, problem, "send again under another collector name")
        if not self.window.entries:
            self.patience.succeed()
        self.show(answer)

    def take(self, answer: SendResponse) -> None:
        """Process a later answer."""
        if answer.durable > self.window.durable:
            self.patience.succeed()
            self.jumps = 0
        self.window.acknowledge(answer.durable, ended=answer.ended)
        self.show(answer)

    @property
    def awaits_account(self) -> bool:
        """Whether the daemon has not yet reported what became of some records."""
        return self.policy.counted and self.account is not None and self.counted < self.window.durable

    def show(self, answer: SendResponse) -> None:
        """Store the daemon's counts, and wake all tasks that wait."""
        self.sent = replace(self.sent, durable=max(self.sent.durable, answer.durable))
        self.names = answer.names
        self.account = answer.account if answer.HasField("account") else None
        self.counted = answer.counted
        self.wake()

    async def write(self, stream: IngestStream) -> None:
        """Write the messages of the window as they arrive, each after the present status if that is new."""
        told: Status | None = None
        while True:
            changed = self.changed
            if self.takes_status and self.status is not told and self.status is not None:
                told = self.status
                stream.tell(SendRequest(status=told))
            entry = self.window.take_next()
            if entry is None:
                await changed.wait()
            else:
                stream.write(entry.request)
                if entry.is_end:
                    return
