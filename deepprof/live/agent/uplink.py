"""Sends one spool to the daemon, however long that is away; the spool keeps the messages, the uplink contains a few."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import polars as pl
from grpc import StatusCode

from deepprof.collectors.errors import DeepProfError
from deepprof.live.agent.identity import name_runs
from deepprof.live.agent.spool import Spool, SpoolCursor, SpoolMessage
from deepprof.live.agent.spool.fillers import make_gap, make_names
from deepprof.live.agent.spool.reading import DAMAGED
from deepprof.live.client.endpoint import Endpoint
from deepprof.live.client.retrying import CLOCK, Clock, RetrySchedule
from deepprof.live.client.sender import Sender, SendPolicy
from deepprof.live.client.stream import StreamBrokenError
from deepprof.live.client.window import WindowEntry
from deepprof.live.wire.checking import encode_status
from deepprof.live.wire.figures import CollectorStatus
from deepprof.live.wire.kinds import UNKNOWN_KIND, count_kinds
from deepprof.live.wire.records import TABLE_OF
from deepprof.v1 import records_pb2 as pb
from deepprof.v1.ingest_pb2 import SendRequest

log = logging.getLogger(__name__)

POLICY = SendPolicy(window_nbytes=8 << 20, patience_s=None, reach_s=None, counted=True)
NOT_KEPT, REFUSED = "not-kept", "refused"  # reasons of gaps
BARE = pb.End(await_account=True)
REFUSALS = 3  # of the message at the same record: this many are not from a daemon that is just being set up


@dataclass(frozen=True, slots=True)
class _UplinkState:
    """The state of an uplink: `problem` in one line if there is one, `since_s` (of its clock) when this state began.

    `durable` is the number below which the daemon has all records; `ended`: everything has arrived.
    """

    connected: bool = False
    durable: int = 0
    problem: str = ""
    since_s: float = 0.0
    ended: bool = False


@dataclass(frozen=True, slots=True)
class _LeftOut:
    """Records before the number `end`, by kind, in whose place a gap is sent."""

    end: int
    reason: str
    kinds: Counter[str]


class Uplink:
    """Sends a spool: `run` it as a task, and `wake` it after each append.

    A daemon that is away is waited for. One that has lost its store, or was restored from a copy, gets the kept
    messages after a gap `not-kept` for the others, under the same name: sending begins anew at the daemon's own number,
    and no name is lost. A message that the daemon refuses three times is left out, with a gap `refused`; after any
    other refusal sending is tried again, with pauses of at most 10 s, as a token or a limit may be corrected. A spool
    of which the daemon has an End already goes on under another name. `notice` is called with every failure.
    """

    def __init__(  # noqa: PLR0913 - what is sent and where; the rest by name
        self,
        endpoint: Endpoint,
        spool: Spool,
        *,
        policy: SendPolicy = POLICY,
        clock: Clock = CLOCK,
        notice: Callable[[str], None] | None = None,
        is_left: bool = False,
    ) -> None:
        """`is_left`: no process appends any more (`find_spools`): done when all has arrived, even without an End."""
        self.endpoint, self.spool, self.policy, self.clock = endpoint, spool, policy, clock
        self.notice, self.is_left = notice, is_left
        self.patience = RetrySchedule(clock)
        self._sender: Sender | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._state = _UplinkState(since_s=clock.now_s())
        self._broken_at = 0  # how many connections there had been at the last failure
        self._refused = (-1, 0)  # the record at which messages were refused, and how often
        self._status: pb.Status | None = None
        self._cursor = SpoolCursor()
        self._ends_bare = False  # the End's counts were refused
        self._leaving: list[_LeftOut] = []  # their gaps are not durable yet
        self.left_out: dict[str, Counter[str]] = {}  # records by reason and kind that will not arrive
        self.refusal = ""  # the daemon's text on the message that it refused last
        self.account: pb.Account | None = None  # the daemon's latest; None: it sends none
        self.counted = 0  # all records below this number are in the account

    @property
    def state(self) -> _UplinkState:
        """The present state."""
        self._look()
        return self._state

    def wake(self) -> None:
        """Signal that something was appended; from any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._wake)

    def tell(self, status: CollectorStatus) -> None:
        """Send the daemon the collector's status, now and on every later connection. From the event loop."""
        self._status = encode_status(status)
        if self._sender is not None:
            self._sender.tell(self._status)

    async def run(self) -> None:
        """Send until the End is durable; the caller may then remove the spool.

        Does not end for a daemon that is away or refuses, nor for a disk that cannot be read, nor for a bug.
        """
        self._loop = asyncio.get_running_loop()
        while not self._state.ended:
            try:
                await self._send()
            except (DeepProfError, OSError) as error:  # of the daemon; of the spool's disk
                self._count_refusal(error)
                self._hear(str(error))
                await self.clock.sleep(self.patience.fail() or 0.0)
            except Exception as error:  # a bug: it may concern one record or one moment, and the spool keeps all
                log.exception("sending-failed", extra={"job": self.spool.hello.job, "rank": self.spool.hello.rank})
                self._hear(f"sending has met a bug ({type(error).__name__}: {error})")
                await self.clock.sleep(self.patience.fail() or 0.0)
            finally:
                self._sender = None

    async def _send(self) -> None:
        """Send over one sender, which survives lost connections, until the end or a failure that ends the sender."""
        self._broken_at = 0
        async with Sender(self.endpoint, self.spool.hello, self.policy, clock=self.clock, notice=self._hear) as sender:
            self._sender = sender
            if self._status is not None:
                sender.tell(self._status)
            while not sender.sent.connections:
                await sender.wait()
            if await self._is_over(sender):
                self.account, self.counted = None, 0  # those of the new name follow
                self.spool.rename(name_runs(self.spool.hello.collector))
                return
            for entry in self._begin(sender):
                await sender.put(entry)
            await self._follow(sender)
            while sender.window.ended and not sender.is_over:  # until the daemon reports what became of all records
                await sender.wait()
            self._hear_account(sender)
        self._set(connected=False, durable=sender.window.durable, ended=True)

    async def _is_over(self, sender: Sender) -> bool:
        """Return whether the daemon has an End although the spool has more: a former agent took the process for gone.

        A spool that has no more may have lost the End on its disk, or its process may still send something.
        """
        durable = sender.window.durable
        while sender.window.ended and self.spool.next <= durable and not (self.spool.ended or self.is_left):
            await sender.wait()
        return sender.window.ended and self.spool.next > durable

    def _begin(self, sender: Sender) -> Iterator[WindowEntry]:
        """Yield the entries that must come before the spool's messages, and find the first of these messages."""
        durable = sender.window.durable
        self._settle_left_out(durable)
        self._leaving = []  # what was not durable is sent again, or refused again
        self.spool.skip(durable)
        self._cursor = self.spool.seek(durable)
        first, names, reason = max(self.spool.first, durable), self.spool.names_first, NOT_KEPT
        message = next(self.spool.read(self._cursor), None)
        if message is not None and message.first < durable:  # it ends within a message that was cut differently
            first, names, self._cursor = message.end, message.names, message.after
        elif self._is_refused(durable):
            first, names, reason = *self._leave_out((first, names)), REFUSED
        if first > durable and reason == NOT_KEPT:
            self._note_left_out(first, NOT_KEPT, Counter({UNKNOWN_KIND: first - durable}))
        yield from self._fill(durable, first, (sender.names, names), reason)

    def _leave_out(self, known: tuple[int, int]) -> tuple[int, int]:
        """Skip the next message that has records; returns the numbers of records and names `known` after it."""
        for message in self.spool.read(self._cursor):
            if message.is_end:
                self._ends_bare = True
                break
            known, self._cursor = (message.end, message.names), message.after
            if message.count:
                self._note_left_out(message.end, REFUSED, _count_kinds_in(message))
                break
        return known

    def _note_left_out(self, end: int, reason: str, kinds: Counter[str]) -> None:
        """Note records before the number `end` in whose place a gap is sent."""
        self._leaving.append(_LeftOut(end, reason, kinds))

    def _settle_left_out(self, durable: int) -> None:
        """Count records that were left out once the daemon has the gap that reports them."""
        for each in self._leaving:
            if each.end <= durable:
                self.left_out.setdefault(each.reason, Counter()).update(each.kinds)
        self._leaving = [each for each in self._leaving if each.end > durable]

    def _fill(self, durable: int, first: int, names: tuple[int, int], reason: str) -> Iterator[WindowEntry]:
        """Yield the names that the daemon lacks, and the gap of the records [durable, first), if there are any."""
        for request in make_names(durable, names[0], self.spool.read_names(*names)):
            yield WindowEntry(request, durable, 0, request.ByteSize())
        if first > durable:
            gap = make_gap(durable, first - durable, reason)
            yield WindowEntry(gap, durable, first - durable, gap.ByteSize())

    async def _follow(self, sender: Sender) -> None:
        """Send the spool's messages as they come, and remove those that are durable."""
        while not self._is_done(sender):
            sent = False
            for message in self.spool.read(self._cursor):
                await sender.put(self._to_entry(message))
                self._cursor, sent = message.after, True
                self._trim(sender)
            if not sent:
                await sender.wait()
                self._trim(sender)

    def _trim(self, sender: Sender) -> None:
        self.spool.trim(sender.window.durable, self._cursor)
        if sender.window.durable > self._state.durable:
            self.patience.succeed()
            self._look()

    def _is_done(self, sender: Sender) -> bool:
        arrived = sender.window.durable >= self.spool.next and not sender.window.awaits_answer
        return sender.window.ended or (self.is_left and not self.spool.ended and arrived)

    def _count_refusal(self, error: Exception) -> None:
        """Count how often a message at the same place was refused for its content."""
        cause, sender = error.__cause__, self._sender
        if sender is None or not sender.sent.connections or not isinstance(cause, StreamBrokenError):
            return
        if cause.code() is StatusCode.INVALID_ARGUMENT:
            place, times = self._refused
            durable = sender.window.durable
            self._refused = (durable, times + 1 if place == durable else 1)
            self.refusal = cause.details() or ""
            self._status = None  # the status may have been the cause

    def _is_refused(self, durable: int) -> bool:
        """Return whether the message at `durable` was refused often enough; the count then begins anew."""
        if self._refused[0] != durable or self._refused[1] < REFUSALS:
            return False
        self._refused = (-1, 0)
        return True

    def _wake(self) -> None:
        """Have the sender's loop check for more."""
        if self._sender is not None:
            self._sender.wake()

    def _hear(self, problem: str) -> None:
        if self._sender is not None:
            self._broken_at = self._sender.sent.connections
        self._set(connected=False, durable=self._state.durable, problem=problem)
        if self.notice is not None:
            self.notice(problem)

    def _look(self) -> None:
        """Note how far the sender has come."""
        if self._sender is not None and self._sender.sent.connections > self._broken_at:
            self._set(connected=True, durable=self._sender.window.durable)
            self._hear_account(self._sender)

    def _hear_account(self, sender: Sender) -> None:
        """Note what became of the records, as the daemon reported it last."""
        self._settle_left_out(sender.window.durable)
        self.account, self.counted = sender.account, sender.counted

    def _set(self, *, connected: bool, durable: int, problem: str = "", ended: bool = False) -> None:
        """Set the state; `since_s` stays while only numbers change."""
        old = self._state
        same = (old.connected, old.problem, old.ended) == (connected, problem, ended)
        self._state = _UplinkState(connected, durable, problem, old.since_s if same else self.clock.now_s(), ended)

    def _to_entry(self, message: SpoolMessage) -> WindowEntry:
        request = SendRequest(end=BARE) if message.is_end and self._ends_bare else message.parse()
        if message.count and request.gap.reason == DAMAGED:
            self._note_left_out(message.end, DAMAGED, Counter({UNKNOWN_KIND: message.count}))
        return WindowEntry(request, message.first, message.count, len(message.payload), message.is_end)


def _count_kinds_in(message: SpoolMessage) -> Counter[str]:
    """Return the records of a spooled batch by kind; of unknown kind if they cannot be read."""
    tables = {table.kind: table.arrow for table in message.parse().batch.tables}
    try:
        kinds = count_kinds({TABLE_OF[kind]: pl.read_ipc_stream(arrow) for kind, arrow in tables.items()})
    except (pl.exceptions.PolarsError, KeyError, ValueError, OSError):
        kinds = Counter()
    return kinds if kinds.total() == message.count else Counter({UNKNOWN_KIND: message.count})
