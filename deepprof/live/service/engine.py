"""The daemon without its endpoints: ranks, journal, history and the threads between them."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from deepprof.live.process.supervision import FirstFailure
from deepprof.live.service.admission import Admission
from deepprof.live.service.clock import DaemonClock
from deepprof.live.service.config import Config
from deepprof.live.service.daemon_rank import DaemonRank, QueuedMessage
from deepprof.live.service.fair_lock import FairLock
from deepprof.live.service.folder import StoreError
from deepprof.live.service.history import History
from deepprof.live.service.journal import Journal
from deepprof.live.service.rank_eviction import LimitReached, RankPriority, choose_spare, find_standing
from deepprof.live.service.ranks import DaemonRanks
from deepprof.live.service.refusal import Refusals, RefusedError
from deepprof.live.service.senders import Senders
from deepprof.live.service.session import RankSession, SessionEvent
from deepprof.live.service.stream_leases import StreamLeases
from deepprof.live.service.worker import SessionWorker
from deepprof.live.service.writer import JournalWriter, WriteResult

if TYPE_CHECKING:
    from deepprof.v1 import records_pb2 as pb


class _OpenStreams:
    """Counts the streams, each known by its connection; for the event loop only.

    To free a place, the oldest stream that has sent no Hello yet is ended; else the one that `spare` returns, whose
    client connects again when it has something to send. `spare` raises `RefusedError` where there is none.
    """

    def __init__(self, most: int, spare: Callable[[], object]) -> None:
        self.most, self.spare = most, spare
        self._lives: dict[object, asyncio.Timeout] = {}
        self._strangers: OrderedDict[object, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._lives)

    @asynccontextmanager
    async def open(self, connection: Any) -> AsyncIterator[None]:
        """Hold a place for a stream until the block ends. Raises `RefusedError` without one, or if it was cut."""
        self._make_room()
        try:
            async with asyncio.timeout(None) as life:
                self._lives[connection] = life
                self._strangers[connection] = None
                try:
                    yield
                finally:
                    self._forget(connection)
        except TimeoutError:
            if life.expired():
                raise RefusedError("UNAVAILABLE", "let go to make room for others; connect again", "cut") from None
            raise

    def greet(self, connection: Any) -> None:
        """Note that a stream has sent its Hello."""
        self._strangers.pop(connection, None)

    def cut(self, connection: Any) -> None:
        """End a stream from outside; its place is free at once."""
        life = self._lives.get(connection)
        self._forget(connection)
        if life is not None:
            life.reschedule(asyncio.get_running_loop().time())

    def _make_room(self) -> None:
        """Free a place if there is none. Raises `RefusedError` where all are taken by streams that send records."""
        if len(self) < self.most:
            return
        self.cut(next(iter(self._strangers), None) or self.spare())

    def _forget(self, connection: Any) -> None:
        self._lives.pop(connection, None)
        self._strangers.pop(connection, None)


log = logging.getLogger(__name__)

SILENT_NS = 24 * 3600 * 10**9
DOUBT_NS = 3600 * 10**9  # for which a rank must stay silent, because the time of day may have jumped
ATTACH_S = 30.0  # in which the messages of a former stream must become durable
T = TypeVar("T")
Notice = Callable[[DaemonRank, "SessionEvent"], None]


class Engine:
    """Takes in ranks and their messages; all methods are for the event loop unless their docstring names a thread."""

    def __init__(self, config: Config, journal: Journal, history: History, clock: DaemonClock) -> None:
        self.config, self.limits, self.clock = config, config.wire_limits(), clock
        self.journal, self.history = journal, history
        self.roster = DaemonRanks(config.limits.jobs, config.limits.ranks, config.limits.ranks_total)
        self.vitals = FirstFailure()
        self.writer = JournalWriter(journal, self._tell, self.vitals)
        self.notice: Notice = lambda rank, event: None  # may be replaced from outside; the worker's thread calls it
        self.worker = SessionWorker(journal, history, clock, room=self._wake, vitals=self.vitals)
        self.worker.leading = config.exporter.contexts
        self.worker.noticed = self._notice
        self.worker.ranks = lambda: iter(self.roster)
        self.senders = Senders(self.roster, clock)
        self.streams = _OpenStreams(config.limits.streams, self._find_idle)
        self.refusals = Refusals()
        self.history_nbytes = 0  # as last measured
        self.ready = self.draining = self.stopping = False
        self._silent: dict[int, int] = {}  # sessions silent for long, with the time when that was noticed
        self.admission = Admission(config.limits)
        self.outside = StreamLeases("limits.waiting_nbytes", "bytes of messages wait", config.limits.waiting_nbytes)
        self._changed = asyncio.Event()  # more was written, or mined
        self._attaching = FairLock()
        self._listeners: defaultdict[int, set[asyncio.Event]] = defaultdict(set)  # by the rank's number
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Begin to work on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self.note_start()
        self.writer.start()
        self.worker.start()
        self.ready = True

    def note_start(self) -> None:
        """Give the clients that sent ranks before the start time to connect again."""
        for rank in self.roster:
            rank.left_ns = self.clock.monotonic_ns()

    def close(self) -> None:
        """Make the queued messages durable, mine them, and save everything. Blocks."""
        self.ready = False
        self.writer.close()
        self.worker.close()

    @property
    def queued_nbytes(self) -> int:
        """The bytes that wait to be durable, or to be mined."""
        return self.admission.nbytes

    # -- streams --

    def stream(self, connection: object) -> AbstractAsyncContextManager[None]:
        """Hold a place for a stream until the block ends. Raises `RefusedError` without one, and while draining."""
        if self.draining or not self.ready:
            raise RefusedError("UNAVAILABLE", "the daemon takes no records now; try again in a minute")
        return self.streams.open(connection)

    def _find_idle(self) -> object:
        """Return the connection of a rank that has sent nothing so far. Raises `RefusedError` where there is none."""
        ranks = [rank for rank in self.roster if rank.connection is not None]
        full = LimitReached("limits.streams", self.streams.most, "let one end, or raise the limit", ranks)
        spare = choose_spare(full, self.clock.monotonic_ns())
        if not spare:
            raise RefusedError("RESOURCE_EXHAUSTED", str(full), full.limit)
        return spare[0].connection

    async def attach(self, hello: pb.Hello, connection: object, owner: str = "") -> DaemonRank:
        """Return the rank that a Hello names, and make `connection` its stream. Raises `RefusedError`."""
        self.streams.greet(connection)
        self.senders.check_job(owner, hello.job)
        self.senders.check_kept(owner)
        async with self._attaching.hold(owner, hello.job):
            rank = await self.find(hello, owner)
            try:
                if rank is None or rank.owner != owner:
                    await self.make_room(hello, owner)
                rank = rank or await self.begin(hello)
            finally:
                if rank is None:  # the former collector's session is closed, and no stream continues it
                    self.roster.remove(hello.job, hello.rank)
            await self.hand_over(rank, owner)
            rank.connection = connection  # a former stream of this collector notices at once
            self.admission.wake()
        try:
            await self.quiet(rank)
            self.check_owner(rank, connection)
        except BaseException:  # the client may have disconnected meanwhile
            self.detach(rank, connection)
            raise
        rank.mend()
        rank.show()
        return rank

    async def find(self, hello: pb.Hello, owner: str) -> DaemonRank | None:
        """Return the rank if this collector sends it; one of another collector is ended. Raises `RefusedError`."""
        rank = self.roster.find(hello.job, hello.rank)
        if rank is None:
            return None
        if rank.hello.collector == hello.collector:
            self.check_sender(rank, owner)
            return rank
        if rank.connection is not None and not rank.ended:
            text = f"rank {hello.rank} of job {hello.job!r} is sent by {rank.hello.collector!r}; stop that first"
            raise RefusedError("ALREADY_EXISTS", text)
        if rank.owner != owner:
            await self.make_room(hello, owner)  # first, so that a sender without space does not end another's rank
        rank.connection = None  # of a stream that has ended, and is about to go
        await self.quiet(rank)
        await self.record(partial(self.end, rank))
        return None  # the old rank is shown until another one takes its place

    def check_sender(self, rank: DaemonRank, owner: str) -> None:
        """Raise `RefusedError` where another sender uses the collector's name of a rank that is still needed."""
        needed = rank.connection is not None or find_standing(rank, self.clock.monotonic_ns()) is RankPriority.NEEDED
        if needed and owner != rank.owner and rank.owner:
            text = f"rank {rank.hello.rank} of job {rank.hello.job[:128]!r} is sent by {rank.owner}, not by {owner}"
            raise RefusedError("ALREADY_EXISTS", f"{text}; name another job", "another-sender")

    async def hand_over(self, rank: DaemonRank, owner: str) -> None:
        """Give a rank to another sender, and save the sender in the history."""
        if rank.owner != owner:
            await self.record(lambda: self.history.save_sender(*rank.key, owner))
            self.admission.hand_over(rank, owner)

    async def begin(self, hello: pb.Hello) -> DaemonRank:
        """Take in a rank that is new, or new from this collector."""
        now, begun = self.clock.unix_ns(), self.journal.end
        number = await self.record(
            lambda: self.history.begin(hello.job, hello.rank, hello.collector, hello.SerializeToString(), now)
        )
        rank = DaemonRank(number, hello, RankSession(), first_seen_unix_ns=now, begun=begun)
        rank.saved_ns = rank.left_ns = self.clock.monotonic_ns()
        self.roster.put(rank)
        log.info("rank-began", extra={"job": hello.job, "rank": hello.rank, "collector": hello.collector})
        return rank

    async def make_room(self, hello: pb.Hello, owner: str) -> None:
        """Let go of ranks that are not needed until there is space for another one. Raises `RefusedError`."""
        where = hello.job, hello.rank
        while full := self.senders.find_full(owner, *where) or self.roster.find_full(*where):
            spare = choose_spare(full, self.clock.monotonic_ns())
            if not spare:
                raise RefusedError("RESOURCE_EXHAUSTED", str(full), full.limit)
            for rank in spare:
                await self.send_away(rank)

    async def send_away(self, rank: DaemonRank) -> None:
        """Let go of a rank to free its space, and end its stream, which has brought nothing."""
        connection, rank.connection = rank.connection, None
        if connection is not None:
            self.streams.cut(connection)
        await self.let_go(rank)
        log.info("rank-let-go", extra={"job": rank.hello.job, "rank": rank.hello.rank, "token": rank.owner})

    def end(self, rank: DaemonRank) -> None:
        """Close a rank that is replaced or let go, with the records that arrived. For the worker's thread."""
        while rank.queue:  # these items are durable, so they must be mined
            self.worker.mine(rank)
        self.worker.save([rank])
        if rank.unsaved:
            raise StoreError(self.history.path, self.worker.problem)
        if not rank.mined_end and not rank.failed and rank.position is not None:
            self.finish(rank)
        if rank.durable_items:
            self.history.close_session(rank.number)
        else:
            self.history.forget_session(rank.number)

    def finish(self, rank: DaemonRank) -> None:
        """End a rank's session, or leave it unchanged where the result cannot be written to the history."""
        before = rank.session.save()
        rank.session.end()
        rank.mined_end = rank.unsaved = True
        self.worker.advance(rank)
        self.worker.save([rank])
        if rank.unsaved:
            rank.session, rank.rows, rank.contexts = RankSession.restore(before), [], []
            rank.mined_end, rank.unsaved = False, False
            raise StoreError(self.history.path, self.worker.problem)

    async def expire(self) -> None:
        """Let go of ranks that have been silent for so long that no client is expected back; their history stays."""
        async with self._attaching.hold("", ""):
            oldest = self.clock.unix_ns() - SILENT_NS
            silent = [
                rank
                for rank in self.roster
                if rank.connection is None
                and not (rank.submitted or rank.queue)
                and max(rank.last_record_unix_ns, rank.first_seen_unix_ns) < oldest
            ]
            now = self.clock.monotonic_ns()
            self._silent = {rank.number: self._silent.get(rank.number, now) for rank in silent}
            for rank in silent:
                if now - self._silent[rank.number] >= DOUBT_NS:
                    await self.let_go(rank)

    async def let_go(self, rank: DaemonRank) -> None:
        """Remove a rank from memory; its history stays."""
        await self.record(partial(self.end, rank))
        self.roster.remove(*rank.key)

    async def quiet(self, rank: DaemonRank) -> None:
        """Wait until no item of a rank is on its way to the journal. Raises `RefusedError` after `ATTACH_S`."""
        with self.listening(rank) as changed:
            try:
                async with asyncio.timeout(ATTACH_S):
                    while rank.submitted:
                        await changed.wait()
                        changed.clear()
            except TimeoutError:
                raise RefusedError("UNAVAILABLE", "the disk is too slow; try again in a minute") from None

    @contextmanager
    def listening(self, rank: DaemonRank) -> Iterator[asyncio.Event]:
        """Give an event that is set whenever items of a rank become durable or are mined, or cannot become durable."""
        changed = asyncio.Event()
        self._listeners[rank.number].add(changed)
        try:
            yield changed
        finally:
            self._listeners[rank.number].discard(changed)
            if not self._listeners[rank.number]:
                del self._listeners[rank.number]

    def check_owner(self, rank: DaemonRank, connection: object) -> None:
        """Raise `RefusedError` where another stream has taken over, or the daemon drains."""
        if rank.connection is None:
            raise RefusedError("UNAVAILABLE", "let go to make room for others; connect again", "cut")
        if rank.connection is not connection:
            raise RefusedError("ABORTED", "another stream of this collector took over")
        if self.draining:
            raise RefusedError("UNAVAILABLE", "the daemon is stopping; try again in a minute")

    def detach(self, rank: DaemonRank, connection: object) -> None:
        """Detach a stream."""
        if rank.connection is connection:
            rank.connection, rank.left_ns = None, self.clock.monotonic_ns()
            rank.show()

    # -- messages --

    def room(self, rank: DaemonRank, nbytes: int) -> AbstractAsyncContextManager[None]:
        """Hold space in the queues for a message of the rank's present stream; `nbytes` is that of a `QueuedMessage`.

        Entering waits until there is space. Raises `RefusedError` if meanwhile the rank gets another stream or none, or
        the daemon drains.
        """
        connection = rank.connection
        return self.admission.room(rank, nbytes, lambda: self.check_owner(rank, connection))

    def submit(self, rank: DaemonRank, item: QueuedMessage) -> None:
        """Hand a checked message to the journal; the caller holds space for it."""
        rank.note_submitted(item)
        if item.kind == "batch":
            self.senders.note_records(rank.owner, item.count)
        rank.last_record_unix_ns = self.clock.unix_ns()
        self.admission.count(rank)
        try:
            self.writer.submit(rank, item)
        except BaseException:  # the item is not on its way, and the rank would wait for it for ever
            self._settle(
                [WriteResult(rank, item, None, RefusedError("UNAVAILABLE", "it could not be queued; send again"))]
            )
            raise

    def _tell(self, group: Sequence[WriteResult]) -> None:
        """Pass on the results of the journal's thread. For that thread."""
        for done in group:
            if done.place is not None:
                self.worker.put(done.rank, done.item, done.place)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.vitals.guard("the event loop", self._settle), group)

    def _settle(self, group: Sequence[WriteResult]) -> None:
        for done in group:
            if done.place is not None:
                done.rank.note_durable(done.item)
            else:
                done.rank.note_lost(done.item, done.why)
                if done.item.kind == "batch":
                    done.rank.accounts.drop(done.item.count, "journal-failed")
        for rank in {done.rank for done in group}:
            self.admission.count(rank)
            self._tell_listeners(rank.number)
        self._changed.set()

    def _notice(self, rank: DaemonRank, event: SessionEvent) -> None:
        self.notice(rank, event)

    def _wake(self, rank: DaemonRank) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.vitals.guard("the event loop", self._tell_mined), rank)

    def _tell_mined(self, rank: DaemonRank) -> None:
        self.admission.count(rank)
        self._changed.set()
        self._tell_listeners(rank.number)

    def _tell_listeners(self, number: int) -> None:
        for listener in self._listeners.get(number, ()):
            listener.set()

    # -- orders --

    async def drain(self) -> int:
        """Take no more records, mine the queued ones and save everything; return how many were queued."""
        self.stop_taking()
        waiting = sum(rank.accounts.in_flight for rank in self.roster)
        while any(rank.submitted or rank.queue for rank in self.roster):
            self._changed.clear()
            await self._changed.wait()
        await self.order(lambda: self.worker.save(self.roster))
        return waiting

    def stop_taking(self) -> None:
        """Take no more records, not even those that wait for space."""
        self.draining = True
        self.admission.wake()

    async def forget(self, job: str) -> int:
        """Remove a job; return how many iterations the history had. Raises `RefusedError`."""
        async with self._attaching.hold("", job):
            ranks = list(self.roster.jobs.get(job, {}).values())
            if any(rank.connection is not None for rank in ranks):
                raise RefusedError("FAILED_PRECONDITION", f"job {job[:128]!r} sends records now; stop it first")
            for rank in ranks:
                await self.quiet(rank)
            gone = await self.record(partial(self._forget, job, ranks))
            if not ranks and not gone:
                raise RefusedError("NOT_FOUND", f"no job {job[:128]!r}")
            self.roster.remove(job)
            return gone

    def _forget(self, job: str, ranks: Sequence[DaemonRank]) -> int:
        for rank in ranks:
            self.worker.drop(rank)
        gone = sum(summary.iterations for summary in self.history.jobs() if summary.job == job)
        self.history.forget(job)
        return gone

    # -- the worker's thread --

    async def record(self, what: Callable[[], T]) -> T:
        """Have the worker's thread write to the history. Raises `RefusedError` where that fails."""
        try:
            return await self.order(what)
        except (OSError, StoreError) as error:
            log.warning("history-failed", extra={"problem": str(error)[:200]})
            raise RefusedError("UNAVAILABLE", f"the history cannot be written: {str(error)[:200]}") from error

    async def order(self, what: Callable[[], T]) -> T:
        """Have the worker's thread do something, and return what it returns."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            if not future.done():
                future.set_exception(error) if error is not None else future.set_result(result)  # type: ignore[arg-type]

        def do() -> None:
            result, error = None, None
            try:
                result = what()
            except Exception as problem:  # it is raised in the caller
                error = problem
            if self._loop is not None:
                self._loop.call_soon_threadsafe(settle, result, error)

        self.worker.call(do)
        return await future
