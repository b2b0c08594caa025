"""`Ingest`: the records of a stream are checked, made durable and acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.message import Message

from deepprof.live.service.access.caller import CALLER
from deepprof.live.service.daemon_rank import QueuedMessage, waiting_nbytes
from deepprof.live.service.missing_names import check_after_loss
from deepprof.live.service.refusal import RefusedError
from deepprof.live.wire.checking import check_batch, check_end, check_gap, check_hello, check_status, count_records
from deepprof.live.wire.declarations import build, encode
from deepprof.live.wire.errors import WireError
from deepprof.live.wire.figures import CollectorStatus
from deepprof.live.wire.requests import read_request
from deepprof.v1 import ingest_pb2 as wire
from deepprof.v1 import records_pb2 as pb
from deepprof.v1.records_pb2 import TABLE_KIND_DEVICES

if TYPE_CHECKING:
    from deepprof.live.service.daemon_rank import DaemonRank
    from deepprof.live.service.engine import Engine
    from deepprof.live.service.journal import Kind
    from deepprof.live.wire.records import CheckedRecords

log = logging.getLogger(__name__)
Context = grpc.aio.ServicerContext[wire.SendRequest, wire.SendResponse]

SERVICE = wire.DESCRIPTOR.services_by_name["Ingest"].full_name
INVALID = "invalid-message"  # breaks a limit, or cannot be read
HELLO_S = 30.0  # in which the Hello of a new stream must come
LAST_ANSWER_S = 10.0
SHOWN_S = 5.0  # for which the acknowledgement of an End waits at most until everything is shown
ALIVE_S = 5.0  # between answers; clients give up a daemon that sends nothing for 30 s


class IngestServicer:
    """Takes records; see proto/deepprof/v1/ingest.proto for what clients may expect."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the service; unlike in the generated code, messages are checked before protobuf builds them."""
        send = grpc.stream_stream_rpc_method_handler(
            self.Send, request_deserializer=self.read, response_serializer=wire.SendResponse.SerializeToString
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Send": send}),))

    def read(self, content: bytes) -> wire.SendRequest | WireError:
        """Return a message, or the error where it cannot be one: gRPC would hide an exception."""
        try:
            return read_request(content, self.engine.limits)
        except WireError as error:
            return error

    async def Send(self, _: object, context: Context) -> None:  # noqa: N802
        """Serve one stream of one collector."""
        hello = pb.Hello()
        try:
            async with self.engine.stream(context):
                hello = await _read_hello(context, self.engine)
                rank = await self.engine.attach(hello, context, CALLER.get())
                await IngestConnection(self.engine, rank, context).run()
        except RefusedError as refusal:
            self.note("stream-refused", refusal.reason, refusal, hello, context)
            await context.abort(getattr(grpc.StatusCode, refusal.code), str(refusal))
        except WireError as error:
            self.note("message-refused", INVALID, error, hello, context)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))

    def note(self, event: str, reason: str, problem: Exception, hello: pb.Hello, context: Context) -> None:
        """Count a refused stream or message, and log it."""
        sender = CALLER.get()
        self.engine.refusals.note(reason, sender)
        who = {"peer": context.peer(), "token": sender, "job": hello.job, "rank": hello.rank}
        log.warning(event, extra={**who, "reason": reason, "problem": str(problem)})


async def _read_hello(context: Context, engine: Engine) -> pb.Hello:
    """Return the stream's first message, a Hello. Raises `RefusedError` or `WireError` without one."""
    try:
        async with asyncio.timeout(HELLO_S):
            message: Any = await context.read()
    except TimeoutError:
        raise RefusedError("DEADLINE_EXCEEDED", f"no Hello came within {HELLO_S:.0f} s") from None
    if isinstance(message, WireError):
        raise message
    if not isinstance(message, wire.SendRequest) or message.WhichOneof("message") != "hello":
        raise WireError("message", "the first one must be a Hello")
    check_hello(message.hello, engine.limits)
    return message.hello


class IngestConnection:
    """One connection: reads until the client is done, and acknowledges while it reads."""

    def __init__(self, engine: Engine, rank: DaemonRank, context: Context) -> None:
        self.engine, self.rank, self.context = engine, rank, context
        self.done = self.holds = False  # `holds`: the stream stays open until all records are counted
        self.shows = False  # the acknowledgement of the End waits, for a while, until all is shown
        self.waits = False  # a message waits for space

    async def run(self) -> None:
        """Serve the stream to its end."""
        try:
            with self.engine.listening(self.rank) as self.changed:
                await self.serve()
        finally:
            self.engine.detach(self.rank, self.context)
        if self.rank.broken:
            raise self.rank.broken

    async def serve(self) -> None:
        """Read and answer at the same time."""
        self.reading = asyncio.create_task(self.read())
        answering = asyncio.create_task(self.answer())
        try:
            self.holds = await self.read_on()
            self.shows = self.rank.closing and not self.rank.ended
        finally:
            self.done = True
            self.changed.set()
            late = asyncio.get_running_loop().call_later(SHOWN_S, self.end_show)
            try:
                await finish(answering)
            finally:
                late.cancel()

    async def read_on(self) -> bool:
        """Return what `read` does; a client that sends nothing more, and waits, is not waited for by a broken rank."""
        try:
            return await self.reading
        except asyncio.CancelledError:
            if not self.rank.broken:
                raise
            return False

    def end_show(self) -> None:
        """Acknowledge the End now, though not all is shown yet."""
        self.shows = False
        self.changed.set()

    async def read(self) -> bool:
        """Take messages until the client has sent its last; return whether it waits for the account of them all."""
        message: Any = None
        while not self.rank.broken and not self.rank.closing:
            message = await self.context.read()
            if message is grpc.aio.EOF:
                return False
            if isinstance(message, WireError):
                raise message
            self.engine.check_owner(self.rank, self.context)
            await self.take(message)
        return message is not None and message.end.await_account

    async def take(self, message: wire.SendRequest) -> None:
        """Check one message, and hand it to the journal."""
        kind = message.WhichOneof("message")
        if kind == "status":
            self.take_status(message.status)
        elif kind in {"batch", "gap", "end"}:
            await self.wait(message)
        else:
            raise WireError("message", "a Hello comes once, first" if kind == "hello" else "is empty")

    async def wait(self, message: wire.SendRequest) -> None:
        """Take a message once there is space for it.

        It is decoded only then, because that multiplies its size, and many messages wait when the queues are full.
        """
        self.waits = True
        owner, nbytes = self.rank.owner, message.ByteSize()
        with self.engine.outside.hold(owner, nbytes):
            await self.engine.senders.keep_pace(owner, lambda: self.engine.check_owner(self.rank, self.context))
            self.engine.senders.check_kept(owner)
            async with self.engine.room(self.rank, waiting_nbytes(nbytes)):
                self.waits = False
                self.engine.check_owner(self.rank, self.context)
                self.take_admitted(message)

    def take_admitted(self, message: wire.SendRequest) -> None:
        """Check a message for which there is space, and hand it on."""
        if message.HasField("batch"):
            self.take_batch(message.batch)
        elif message.HasField("gap"):
            self.take_gap(message.gap)
        else:
            self.take_end(message.end)

    def take_end(self, end: pb.End) -> None:
        """Check an end."""
        check_end(end, self.engine.limits)
        self.submit("end", end, self.rank.next, 0, missing=dict(end.dropped))

    def take_batch(self, batch: pb.Batch) -> None:
        """Check a batch; every record in it is counted, whatever its outcome."""
        rank = self.rank
        if batch.first < rank.next or not batch.tables or (batch.names and batch.first_name < rank.names):
            claimed = count_records(batch, self.engine.limits)
            if self.was_sent(batch, claimed):
                rank.accounts.arrive(claimed)
                rank.accounts.repeat(claimed)
                return
        records = self.check(batch)
        rank.accounts.arrive(records.count)
        self.submit("batch", batch, records.first, records.count, records=records, devices=find_devices(batch))

    def check(self, batch: pb.Batch) -> CheckedRecords:
        """Return the records of a batch that continues the one before. Raises `WireError` and `RefusedError`."""
        rank, limits = self.rank, self.engine.limits
        try:
            self.expect(batch.first)
            if batch.names and batch.first_name > rank.names and rank.accounts.has_gaps:
                return check_after_loss(batch, limits, rank.names, rank.names_nbytes)
            if batch.names and batch.first_name != rank.names:
                raise WireError("first_name", f"{batch.first_name}, expected {rank.names}")
            return check_batch(batch, limits, rank.names, rank.names_nbytes)
        except (WireError, RefusedError):
            claimed = count_records(batch, limits)
            rank.accounts.arrive(claimed)
            rank.accounts.refuse(claimed)
            raise

    def was_sent(self, batch: pb.Batch, claimed: int) -> bool:
        """Return whether all that a batch brings is known, because it was sent again after a lost acknowledgement."""
        names = batch.first_name + len(batch.names)
        end = batch.first + claimed
        return (batch.first < self.rank.next and end <= self.rank.next) or (
            not claimed and end == self.rank.next and 0 < names <= self.rank.names and bool(batch.names)
        )

    def take_gap(self, gap: pb.Gap) -> None:
        """Check a gap; one that is already known is ignored."""
        check_gap(gap, self.engine.limits)
        if gap.first < self.rank.next and gap.first + gap.lost <= self.rank.next:
            return
        self.expect(gap.first)
        if not gap.lost and not self.rank.note_bare_gap(gap.first, gap.reason):
            return
        self.submit("gap", gap, gap.first, gap.lost, lost=gap.lost or None, missing={gap.reason: gap.lost})

    def take_status(self, status: pb.Status) -> None:
        """Show the collector's status; a change of its level is logged as an event."""
        check_status(status)
        before, now = self.rank.status, build(CollectorStatus, status)
        self.rank.note_status(now)
        if now.level != ("full" if before is None else before.level):
            job, number = self.rank.key
            more = {"collects": now.level, "reason": now.reason, "notice": now.notice}
            log.info("collector-level", extra={"job": job, "rank": number, **more})

    def expect(self, first: int) -> None:
        """Raise `RefusedError` unless the message continues the one before."""
        if first != self.rank.next:
            text = f"record {first} came where {self.rank.next} was expected; send what is missing, or a Gap"
            raise RefusedError("OUT_OF_RANGE", text)

    def submit(self, kind: Kind, message: Message, first: int, count: int, **more: Any) -> None:
        """Hand a message to the journal."""
        item = QueuedMessage(
            kind, message.SerializeToString(), first, count, arrived_ns=self.engine.clock.monotonic_ns(), **more
        )
        self.engine.submit(self.rank, item)

    async def answer(self) -> None:
        """Send how far the records are durable: at first, whenever that changes, once all are counted, at the end."""
        told = None
        while True:
            if self.rank.broken:
                self.reading.cancel()
            durable, counted = self.rank.durable, self.rank.counted
            ended = self.rank.ended and not (self.shows and self.is_open())
            now = (durable, self.rank.durable_names, ended, counted if counted[0] == durable else None)
            if now != told:
                told = now
                await self.context.write(self.make_answer(durable, ended, counted[0]))
                continue  # more may have become durable meanwhile
            held = (self.holds or self.shows) and self.is_open()
            if self.done and not self.rank.submitted and not held:
                return
            if not await self.hear() and (self.waits or self.rank.submitted or held):
                told = None  # send it again, so that a waiting client does not give up

    async def hear(self) -> bool:
        """Wait for a change, for `ALIVE_S` at most; return whether there was one."""
        try:
            async with asyncio.timeout(ALIVE_S):
                await self.changed.wait()
        except TimeoutError:
            return False
        self.changed.clear()
        return True

    def make_answer(self, durable: int, ended: bool, counted: int) -> wire.SendResponse:
        """Return an answer; the account is read after `counted`, so it contains all records up to there."""
        rank = self.rank
        return wire.SendResponse(
            durable=durable,
            names=rank.durable_names,
            ended=ended,
            takes_status=True,
            account=encode(pb.Account, rank.accounts.view()),
            counted=counted,
        )

    def is_open(self) -> bool:
        """Return whether the account of all records, which is shown, is still to come."""
        return not self.rank.broken and not self.rank.is_counted


def find_devices(batch: pb.Batch) -> bytes:
    """Return the table that describes the devices, empty where the batch has none."""
    return next((table.arrow for table in batch.tables if table.kind == TABLE_KIND_DEVICES), b"")


async def finish(answering: asyncio.Task[None]) -> None:
    """Wait for the last answer: gRPC supports no second operation during a write, not even the call's end.

    The wait also ends if the client does not read, or has disconnected.
    """
    try:
        await asyncio.wait({answering}, timeout=LAST_ANSWER_S)
    finally:
        answering.cancel()
        with contextlib.suppress(asyncio.CancelledError, grpc.aio.BaseError, grpc.aio.UsageError):
            await answering
