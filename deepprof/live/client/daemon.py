"""Queries to a daemon: jobs, ranks, iterations, findings, the raw records of its window, and those of a running job."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from io import BytesIO
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import grpc
import numpy as np
import polars as pl

from deepprof.collectors.context_nodes import select_needed
from deepprof.collectors.trace import CONTEXT_NODES, RECORD_TABLES, TABLES, Accounting, Trace, empty_table
from deepprof.live.client.endpoint import Endpoint
from deepprof.live.client.errors import DaemonError, explain
from deepprof.live.wire.assembly import NEVER_NS, TraceAssembly
from deepprof.live.wire.declarations import build
from deepprof.live.wire.figures import (
    ActiveFinding,
    Capture,
    ContextHistory,
    Findings,
    FollowedLoop,
    JobState,
    LoopFigures,
    RankState,
    SenderState,
    WatchState,
)
from deepprof.live.wire.heads import CLOCKS
from deepprof.live.wire.limits import WIDEST
from deepprof.plurals import counted, verb
from deepprof.v1 import admin_pb2 as admin
from deepprof.v1 import query_pb2 as query
from deepprof.v1.admin_pb2_grpc import AdminStub
from deepprof.v1.query_pb2_grpc import QueryStub

if TYPE_CHECKING:
    from deepprof.job.part import Between
    from deepprof.live.client.replay import ReplayTotals

Value = TypeVar("Value")
PAGE = 1000  # jobs, ranks or loops of one page
PAGES = 100_000  # of one list: no daemon has more
DRAIN_S = 600.0
PIECE_RECORDS = 1 << 19  # of one answer at a time: what is read is kept in memory until it is given
LATE_RANK_S = 60.0  # how long ranks that have sent nothing are waited for
MOST_WAITING = 1 << 20  # records of a rank, as in the daemon: a sender may never promise that no earlier one comes


class Daemon:
    """A daemon, as `deepprof.connect` returns it; close it, or use it in a `with` statement.

    Every method raises `DaemonError` when no daemon answers, the token does not allow the query, or the job is unknown.
    """

    def __init__(self, endpoint: Endpoint, timeout_s: float = 30.0) -> None:
        self.endpoint, self.timeout_s = endpoint, timeout_s
        self.channel = endpoint.open()
        self.closed = False
        self.query: Any = QueryStub(self.channel)
        self.admin: Any = AdminStub(self.channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self.closed = True
        self.channel.close()

    def jobs(self, *, past: bool = False) -> tuple[JobState, ...]:
        """Return the jobs, newest first; with `past` also those that exist only in the history."""
        pages = self.pages(
            self.query.ListJobs, lambda token: query.ListJobsRequest(page_size=PAGE, page_token=token, past=past)
        )
        return tuple(build(JobState, job) for page in pages for job in page.jobs)

    def ranks(self, job: str) -> tuple[RankState, ...]:
        """Return the ranks of a job, by number."""
        pages = self.pages(
            self.query.ListRanks, lambda token: query.ListRanksRequest(job=job, page_size=PAGE, page_token=token)
        )
        return tuple(build(RankState, rank) for page in pages for rank in page.ranks)

    def loops(self, job: str, rank: int | None = None) -> tuple[FollowedLoop, ...]:
        """Return the loops that were followed on a job's devices (or on those of one rank), latest last."""

        def ask(token: str) -> query.ListLoopsRequest:
            return query.ListLoopsRequest(job=job, rank=rank, page_size=PAGE, page_token=token)

        return tuple(build(FollowedLoop, loop) for page in self.pages(self.query.ListLoops, ask) for loop in page.loops)

    def iterations(self, job: str, rank: int | None = None, device: int | None = None) -> pl.DataFrame:
        """Return all iterations of a job (or of one rank or device), oldest first: a table with a rank column.

        Takes the memory of the table, some 150 bytes per iteration.
        """

        def ask(token: str) -> query.ListIterationsRequest:
            return query.ListIterationsRequest(job=job, rank=rank, device=device, page_token=token)

        tables = [self.read_table(page.arrow) for page in self.pages(self.query.ListIterations, ask)]
        return pl.concat([table for table in tables if table.height] or tables[:1])

    def metrics(self, job: str) -> tuple[LoopFigures, ...]:
        """Return the metrics of Table III of every loop that is followed now, over the latest iterations."""
        answer = self.ask(self.query.GetMetrics, query.GetMetricsRequest(job=job))
        return tuple(build(LoopFigures, figures) for figures in answer.metrics)

    def contexts(
        self, job: str, *, rank: int | None = None, start_ns: int | None = None, end_ns: int | None = None
    ) -> ContextHistory:
        """Return what calling contexts of a job (or of one rank) did, by window of time: minutes, or hours where older.

        Windows that overlap `start_ns` ≤ t < `end_ns`, on the ranks' clock (Unix ns of a running job), count whole.
        """
        answer = self.ask(
            self.query.GetContexts, query.GetContextsRequest(job=job, rank=rank, start_ns=start_ns, end_ns=end_ns)
        )
        return ContextHistory(
            job=job,
            rank=rank,
            nodes=self.read_table(answer.nodes),
            sums=self.read_table(answer.sums),
            windows=answer.windows,
            folded=answer.folded,
            step_ns=answer.step_ns,
            earliest_ns=answer.earliest_ns if answer.HasField("earliest_ns") else None,
        )

    def findings(self, job: str) -> Findings:
        """Return the findings of the rules in the job's latest records."""
        answer = self.ask(self.query.GetFindings, query.GetFindingsRequest(job=job))
        found = tuple(build(ActiveFinding, finding) for finding in answer.findings)
        return Findings(found, answer.examined_unix_ns, answer.report)

    def captures(self, job: str = "") -> tuple[Capture, ...]:
        """Return the raw windows that the daemon keeps as traces, of one job or of all, oldest first."""
        answer = self.ask(self.query.ListCaptures, query.ListCapturesRequest(job=job))
        return tuple(build(Capture, capture) for capture in answer.captures)

    def watch(self, job: str = "", interval_ms: int = 1000) -> Generator[WatchState, None, None]:
        """Yield the state of all jobs, or of one with its ranks: now, and after every change, without an end."""
        request = query.WatchRequest(job=job, interval_ms=interval_ms)
        yield from (build(WatchState, answer) for answer in self.stream(self.query.Watch, request))

    def look(self, job: str = "") -> WatchState:
        """Return the present state of all jobs, or of one with its ranks."""
        with closing(self.watch(job)) as states:
            state = next(states, None)
        if state is None:
            raise DaemonError(self.endpoint.address, "did not tell its state", "check its version")
        return state

    def window(self, job: str, ranks: Iterable[int] = (), *, between: Between | None = None) -> list[Trace]:
        """Return the latest raw records of a job's ranks (or of some of them) as traces, for `deepprof.analyze`.

        Ranks are numbered and their clocks aligned as in `deepprof.read_job`, and `between` means the same as there. A
        note states how many records arrived before the window. Takes the memory of the tables.
        """
        from deepprof.live.client.traces import read_traces

        wanted, found = set(ranks), set[int]()
        request = query.ReadWindowRequest(job=job, ranks=sorted(wanted))

        def note(answer: query.ReadWindowResponse) -> query.ReadWindowResponse:
            found.add(answer.rank)
            return answer

        answers = map(note, self.stream(self.query.ReadWindow, request))
        traces = read_traces(answers, self.endpoint.address, job, between)
        if wanted - found:
            absent = ", ".join(map(str, sorted(wanted - found)[:8]))
            raise DaemonError(
                self.endpoint.address, f"knows no rank {absent} of job {job!r}", "ranks() lists those it knows"
            )
        return traces

    def follow(self, job: str) -> JobRecords:
        """Return the raw records of a running job as they arrive, each once: call its `read` again and again."""
        return JobRecords(self, job)

    def send(self, traces: Trace | Sequence[Trace], job: str, *, speed: float | None = None) -> ReplayTotals:
        """Send recorded traces as the ranks of `job`, and return when all records are durable.

        Records that the daemon already has are not sent again. `speed` is relative to the recording's own time; None is
        as fast as the daemon accepts records.
        """
        from deepprof.collectors.processes import split_all
        from deepprof.collectors.trace import Trace
        from deepprof.job import number_ranks
        from deepprof.live.client.replay import TraceReplay, replay

        ranks = number_ranks(split_all([traces] if isinstance(traces, Trace) else traces))
        return replay(self.endpoint, ranks, TraceReplay(job, speed))

    def capture(self, job: str, rank: int) -> Capture:
        """Have the daemon keep the latest raw records of a rank as a trace in its store."""
        answer = self.ask(self.admin.CaptureWindow, admin.CaptureWindowRequest(job=job, rank=rank))
        return build(Capture, answer.capture)

    def forget(self, job: str) -> int:
        """Have the daemon remove a job, and return how many iterations were removed."""
        return int(self.ask(self.admin.ForgetJob, admin.ForgetJobRequest(job=job)).iterations)

    def senders(self) -> tuple[SenderState, ...]:
        """Return the senders by name, with what each uses of the daemon and its limits. Requires the scope `admin`."""
        return tuple(
            build(SenderState, each) for each in self.ask(self.admin.ListSenders, admin.ListSendersRequest()).senders
        )

    def drain(self) -> int:
        """Have the daemon refuse new records and save all others; returns how many were still to be processed."""
        return int(self.ask(self.admin.Drain, admin.DrainRequest(), DRAIN_S).records)

    def pages(self, call: Callable[..., Any], request: Callable[[str], Any]) -> Iterator[Any]:
        """Yield the pages of a list."""
        token = ""
        for _ in range(PAGES):
            page = self.ask(call, request(token))
            yield page
            token = page.next_page_token
            if not token:
                return
        raise DaemonError(self.endpoint.address, f"its list has no end after {PAGES:,} pages", "report it")

    def ask(self, call: Callable[..., Value], request: object, timeout_s: float | None = None) -> Value:
        """Return the daemon's answer to one query."""
        with self.explaining():
            return call(request, timeout=timeout_s or self.timeout_s, metadata=self.endpoint.metadata())

    def stream(self, call: Callable[..., Any], request: object) -> Generator[Any, None, None]:
        """Yield the daemon's answers to one query; closing the generator cancels the call."""
        with self.explaining():
            answers = call(request, metadata=self.endpoint.metadata())
            try:
                yield from answers
            finally:
                answers.cancel()

    def read_table(self, arrow: bytes) -> pl.DataFrame:
        """Return a table from its Arrow bytes."""
        try:
            return pl.read_ipc_stream(BytesIO(arrow))
        except (pl.exceptions.PolarsError, ValueError, OSError) as error:
            raise DaemonError(self.endpoint.address, "sent a table that cannot be read", "check its version") from error

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Turn gRPC's errors into `DaemonError`, which is also raised where the connection was closed."""
        if self.closed:
            raise DaemonError(self.endpoint.address, "the connection was closed", "open another with deepprof.connect")
        try:
            yield
        except grpc.RpcError as error:
            raise explain(error, self.endpoint.address) from error


class JobRecords:
    """The records of a job's ranks as they arrive. `ended`: all ranks that the daemon has have ended, all was given.

    A read asks only for what follows the records that are known. Records are given once no earlier one of their rank
    can come by what its sender has promised, so that they are in order of time; of too many that wait the older half is
    given, and what then comes late is out of order.

    Where ranks state how many there are, those that have sent nothing are waited for, a minute from the last record on.
    `missed` counts records that had left the daemon's window before they were read. Times of every rank are on its own
    clock; side tables are left out.
    """

    def __init__(self, daemon: Daemon, job: str, piece_records: int = PIECE_RECORDS) -> None:
        self.daemon, self.job, self.piece_records = daemon, job, piece_records
        self.ranks: dict[int, _RankRecords] = {}
        self.former: list[_RankRecords] = []  # of collectors that others have replaced
        self.world_size = 0  # as the ranks state it, 0: unknown
        self.ended = False
        self._all_ended_s: float | None = None  # since when all ranks that the daemon has have ended

    @property
    def missed(self) -> int:
        """How many records had left the daemon's window before they were read."""
        return sum(rank.missed for rank in (*self.former, *self.ranks.values()))

    @property
    def dropped(self) -> Counter[str]:
        """How many records the senders that have ended read and did not send, by reason."""
        return sum((Counter(rank.assembly.dropped) for rank in (*self.former, *self.ranks.values())), Counter())

    def read(self) -> Iterator[Trace]:
        """Yield the records that can be given by now, as a trace of every rank that has some, or several.

        Raises `DaemonError`; nothing is lost by it, and `read` may be called again.
        """
        states = self.daemon.ranks(self.job)
        waiting, whole = sorted(state.rank for state in states), True
        while waiting:
            stopped = self._fetch(waiting)
            whole = whole and stopped is None
            yield from self._release(waiting)
            waiting = [] if stopped is None else [rank for rank in waiting if rank > stopped]
        if whole and all(state.ended for state in states):
            yield from self.rest()
            self.ended = not self._may_begin(states)
        else:
            self._all_ended_s = None

    def _may_begin(self, states: Sequence[RankState]) -> bool:
        """Return whether one more rank may begin now that all which the daemon has have ended."""
        now_s = time.monotonic()
        self._all_ended_s = now_s if self._all_ended_s is None else self._all_ended_s
        self.world_size = max((state.world_size for state in states), default=0)
        age_s = (time.time_ns() - max((state.last_record_unix_ns for state in states), default=0)) / 1e9
        recent = age_s < LATE_RANK_S and now_s - self._all_ended_s < LATE_RANK_S
        return recent and len(states) < self.world_size

    def rest(self) -> Iterator[Trace]:
        """Yield the records that were read and wait for earlier ones: no more will be read."""
        yield from self._release(list(self.ranks), final=True)

    def notes(self) -> list[str]:
        """Return sentences on the records that are missing."""
        missed = self.missed
        notes = [f"{counted(missed, 'record')} {verb(missed, 'was', 'were')} missed: {TOO_LATE}"] if missed else []
        again = sorted({rank.number for rank in self.former})
        notes += [f"rank {rank} was started again; {OF_FORMER}" for rank in again]
        absent = self.world_size - len(self.ranks)
        notes += (
            [f"{absent:,} of {self.world_size:,} ranks {verb(absent, 'has', 'have')} sent nothing"]
            if absent > 0
            else []
        )
        parts = (*self.former, *self.ranks.values())
        return notes + [f"rank {part.number}: {text}" for part in parts for text in part.assembly.remarks()]

    def _fetch(self, ranks: Sequence[int]) -> int | None:
        """Read what ranks have sent, up to a limit; returns the rank at which it was reached, None where it was not."""
        after = [self.ranks[rank].position for rank in ranks if rank in self.ranks]
        request = query.ReadWindowRequest(job=self.job, ranks=ranks, after=after)
        begin = self._count()
        try:
            with closing(self.daemon.stream(self.daemon.query.ReadWindow, request)) as answers:
                for answer in answers:
                    self._take(answer)
                    if self._count() - begin >= self.piece_records:
                        return int(answer.rank)
        except ValueError as error:
            problem = f"sent records that cannot be read ({error})"
            raise DaemonError(self.daemon.endpoint.address, problem, "check its version") from error
        return None

    def _count(self) -> int:
        return sum(part.taken for part in (*self.former, *self.ranks.values()))

    def _take(self, answer: query.ReadWindowResponse) -> None:
        """Take one message; raises `ValueError` for one that breaks the contract."""
        if answer.WhichOneof("message") != "hello":
            if answer.rank not in self.ranks:
                raise ValueError(f"rank {answer.rank} has said no Hello")
            self.ranks[answer.rank].take(answer)
            return
        known = self.ranks.get(answer.rank)
        if known is not None and known.assembly.hello.collector == answer.hello.collector:
            known.skip(answer.skipped)
            return
        if known is not None:
            self.former.append(known)
        self.ranks[answer.rank] = _RankRecords(answer)

    def _release(self, ranks: Sequence[int], *, final: bool = False) -> Iterator[Trace]:
        """Yield what can be given of ranks; of those whose collector was replaced all, once."""
        parts = [(part, True) for part in self.former] + [
            (self.ranks[rank], final) for rank in ranks if rank in self.ranks
        ]
        for part, whole in parts:
            trace = part.release(self.job, final=whole)
            if part in self.former:
                part.forget_names()
            if trace.accounting.kept:
                yield trace


TOO_LATE = "they left the daemon's window before they were read"
OF_FORMER = "the last records of its former run may be missing"


class _RankRecords:
    """What is known of one collector of a rank: how far its records were read, and those that wait for earlier ones."""

    def __init__(self, answer: query.ReadWindowResponse) -> None:
        self.number, self.missed, self.taken = answer.rank, 0, 0
        self.assembly = TraceAssembly(answer.hello, limits=WIDEST)
        self.skip(answer.skipped)
        self.waiting = {table: empty_table(TABLES[table]) for table in RECORD_TABLES}
        self.contexts = empty_table(CONTEXT_NODES)  # that the sums among them need
        self.complete_until_ns = NEVER_NS
        self.gaps: set[tuple[int, str]] = set()  # of unknown size, at the position
        self.names = pl.Series("name", [], pl.String)

    @property
    def position(self) -> query.ReadPosition:
        """How far the rank is available."""
        known = self.assembly
        return query.ReadPosition(
            rank=self.number, collector=known.hello.collector, next=known.expected, names=len(known.names)
        )

    def skip(self, number: int) -> None:
        """Count the records before `number` that are unknown: the daemon no longer has them."""
        gone = number - self.assembly.expected
        if gone > 0:
            self.missed += gone
            self.assembly.expected = number

    def take(self, answer: query.ReadWindowResponse) -> None:
        """Take a batch, a gap or an End; raises `ValueError`."""
        kind = answer.WhichOneof("message")
        if kind == "batch":
            before = self.assembly.expected
            self.assembly.add_batch(answer.batch)
            self.taken += self.assembly.expected - before
            self.complete_until_ns = max(self.complete_until_ns, answer.batch.complete_until_ns)
        elif kind == "gap" and not self._is_repeated(answer.gap.first, answer.gap.lost, answer.gap.reason):
            self.assembly.add_gap(answer.gap)
        elif kind == "end":
            self.assembly.add_end(answer.end)

    def _is_repeated(self, first: int, lost: int, reason: str) -> bool:
        """Return whether a gap is one of unknown size that was taken: what is at the position comes again."""
        repeated = not lost and (first, reason) in self.gaps
        self.gaps = {gap for gap in self.gaps if gap[0] == first} | ({(first, reason)} if not lost else set())
        return repeated

    def release(self, job: str, *, final: bool) -> Trace:
        """Return the records before which no other can come, or all."""
        taken = self.assembly.take_rows()
        contexts = pl.concat([self.contexts, taken.pop("context_nodes")])
        contexts = contexts.unique("context", keep="first", maintain_order=True).sort("context")
        known = {table: _merge(self.waiting[table], rows) for table, rows in taken.items()}
        self._make_room(known)
        ready = {}
        for table, rows in known.items():
            end = rows.height if final else int(rows.to_series(0).search_sorted(self.complete_until_ns))
            ready[table], self.waiting[table] = rows.head(end), rows.slice(end).rechunk()
        self.contexts = select_needed(contexts, self.waiting["context_sums"]["context"])
        if len(self.names) < len(self.assembly.names):
            self.names = pl.Series("name", self.assembly.names, pl.String)
        kept = sum(rows.height for rows in ready.values())
        hello = self.assembly.hello
        return Trace(
            path=job,
            format=hello.format,
            names=self.names,
            accounting=Accounting(kept, kept),
            rank=self.number,
            clock="unix" if hello.clock == CLOCKS["unix"] else "session",
            context_nodes=select_needed(contexts, ready["context_sums"]["context"]),
            **ready,  # type: ignore[arg-type]
        )

    def forget_names(self) -> None:
        """Forget the names: no records follow."""
        self.assembly.names = []
        self.names = self.names.clear()

    def _make_room(self, known: Mapping[str, pl.DataFrame]) -> None:
        """Take the older half of the records that wait as complete where there are too many."""
        starts = np.concatenate([rows.to_series(0).to_numpy() for rows in known.values()])
        waiting = np.sort(starts[starts >= self.complete_until_ns])
        if len(waiting) > MOST_WAITING:
            self.complete_until_ns = int(waiting[-(MOST_WAITING // 2) - 1]) + 1


def _merge(waiting: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """Return rows that wait and new ones in order of time."""
    return pl.concat([waiting, new]).sort(new.columns[0], maintain_order=True)
