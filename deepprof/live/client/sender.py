"""Sends one rank's messages to a daemon, across lost connections, in bounded memory and with nothing skipped silently.

The connection lives in a task of its own: it writes what the window holds, lets go of what the daemon calls durable,
and after a failure connects again and goes on where the daemon says.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Literal, Self

from grpc import StatusCode

from deepprof.live.client.endpoint import Endpoint
from deepprof.live.client.errors import DaemonError, explain, is_passing
from deepprof.live.client.overflow import DroppedBatches
from deepprof.live.client.retrying import CLOCK, Clock, RetrySchedule
from deepprof.live.client.stream import IngestStream, StreamBrokenError
from deepprof.live.client.window import SendWindow, WindowEntry
from deepprof.v1.ingest_pb2 import SendRequest, SendResponse
from deepprof.v1.records_pb2 import Account, Batch, End, Gap, Hello, Status

__all__ = ["SendPolicy", "Sender", "SentTotals"]

JUMPS = 2  # with no record taken in between: the daemon's numbers and ours do not meet


@dataclass(frozen=True, slots=True)
class SendPolicy:
    """How a sender behaves while the daemon is slow or away.

    `on_full`: with `window_nbytes` unacknowledged, `wait` holds the caller up, `gap` lets batches go and says so.
    `silence_s` is how long an answer may take before the connection counts as lost, `patience_s` how long to go on
    trying without any success (None: for ever), `reach_s` the same before the daemon has ever answered. `counted`: an
    End that says `await_account` is over once the daemon has told what became of all records, as far as it can.
    """

    window_nbytes: int = 64 << 20
    on_full: Literal["wait", "gap"] = "wait"
    silence_s: float = 30.0
    patience_s: float | None = 60.0
    reach_s: float | None = 5.0
    counted: bool = False


@dataclass(frozen=True, slots=True)
class SentTotals:
    """What a sender has done: numbers of records.

    `durable` is the daemon's count, `present` how many of them it had from a former run, `lost` what did not fit.
    """

    records: int = 0  # given to the sender
    durable: int = 0
    present: int = 0
    lost: int = 0
    connections: int = 0


class Sender:
    """Sends the messages of one rank: `async with Sender(endpoint, hello) as sender: await sender.send(batch) …`.

    `notice` is told of every failure that it goes on after. Everything raises `DeepProfError` once the daemon has
    refused the messages, or patience is at an end.
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
        self.names = 0  # that the daemon has of this rank
        self.account: Account | None = None  # as the daemon last told it; None: it does not say
        self.counted = 0  # all records below this number are in it
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
        """Send a batch of `count` records whose numbers follow the former's; returns when it is kept, or let go."""
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
        """Say that records are missing."""
        await self.put(WindowEntry(SendRequest(gap=gap), gap.first, gap.lost, gap.ByteSize()))

    def tell(self, status: Status) -> None:
        """Say how the collector is, as soon as there is a connection, and again on every later one; the latest counts.

        Never waits and never fails: a daemon that does not understand it is not told.
        """
        self.status = status
        self.wake()

    async def end(self, end: End) -> SentTotals:
        """Send the end, and wait until everything is durable."""
        for entry in self.overflow.close():
            self.window.put(entry)
        await self.put(WindowEntry(SendRequest(end=end), 0, 0, end.ByteSize(), is_end=True))
        while not self.window.ended:
            await self.wait()
        return self.sent

    async def put(self, entry: WindowEntry) -> None:
        """Put a message into the window as soon as there is room."""
        self.check()
        while self.window.is_full and not entry.is_end:
            await self.wait()
        self.window.put(entry)
        self.wake()
        await asyncio.sleep(0)  # let the connection have its turn

    async def wait(self) -> None:
        """Wait until something has changed; raises what has ended the sending."""
        self.check()
        await self.changed.wait()
        self.check()

    def check(self) -> None:
        """Raise what has ended the sending."""
        if self.error is not None:
            raise self.error

    def wake(self) -> None:
        """Tell everybody who waits that something has changed."""
        self.changed.set()
        self.changed = asyncio.Event()

    def count(self, **more: int) -> None:
        """Add to what was done."""
        self.sent = replace(self.sent, **{name: getattr(self.sent, name) + value for name, value in more.items()})

    async def carry(self) -> None:
        """Keep up a connection until the end is durable, or nothing can be done any more."""
        try:
            while not self.window.ended:
                await self.try_once()
        except Exception as error:  # a bug's too: who waits for us would wait for ever
            self.error = error
        finally:
            self.is_over = True
            self.wake()

    async def try_once(self) -> None:
        """Converse over one connection; after its failure wait a while. Raises `DeepProfError` when it is enough."""
        try:
            async with IngestStream(self.endpoint, self.hello, self.policy.silence_s) as stream:
                await self.converse(stream)
        except StreamBrokenError as broken:
            if self.window.ended:  # it closed before it had told the account
                return
            pause = self.judge(broken)
            if self.notice is not None:
                self.notice(str(explain(broken, self.endpoint.address)))
            await self.clock.sleep(pause)

    def judge(self, broken: StreamBrokenError) -> float:
        """Return how long to wait after a failure; raises it where waiting does not help."""
        jumped = broken.code() is StatusCode.OUT_OF_RANGE
        self.jumps += jumped
        passing = self.jumps < JUMPS if jumped else is_passing(broken)
        pause = self.patience.fail() if passing else None
        if pause is None:
            raise explain(broken, self.endpoint.address) from broken
        return pause

    async def converse(self, stream: IngestStream) -> None:
        """Go on where the daemon says, write, and hear its answers until the end is durable."""
        self.welcome(await stream.hear(lambda: True))
        writing = asyncio.create_task(self.write(stream))
        try:
            while not self.window.ended or self.awaits_account:
                self.take(await stream.hear(lambda: self.window.awaits_answer or self.window.ended))
        finally:
            writing.cancel()
        await stream.close()

    def welcome(self, answer: SendResponse) -> None:
        """Take the daemon's first answer on a connection."""
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
        """Take an answer."""
        if answer.durable > self.window.durable:
            self.patience.succeed()
            self.jumps = 0
        self.window.acknowledge(answer.durable, ended=answer.ended)
        self.show(answer)

    @property
    def awaits_account(self) -> bool:
        """Whether the daemon is still to tell what became of some records."""
        return self.policy.counted and self.account is not None and self.counted < self.window.durable

    def show(self, answer: SendResponse) -> None:
        """Tell what is durable to everybody who waits."""
        self.sent = replace(self.sent, durable=max(self.sent.durable, answer.durable))
        self.names = answer.names
        self.account = answer.account if answer.HasField("account") else None
        self.counted = answer.counted
        self.wake()

    async def write(self, stream: IngestStream) -> None:
        """Write what the window holds, as it comes, and the status that holds now before it."""
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
