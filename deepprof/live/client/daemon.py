"""Queries to a daemon: jobs, ranks, iterations, findings, and the raw records of its window."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from io import BytesIO
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import grpc
import polars as pl

from deepprof.live.client.endpoint import Endpoint
from deepprof.live.client.errors import DaemonError, explain
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
from deepprof.v1 import admin_pb2 as admin
from deepprof.v1 import query_pb2 as query
from deepprof.v1.admin_pb2_grpc import AdminStub
from deepprof.v1.query_pb2_grpc import QueryStub

if TYPE_CHECKING:
    from deepprof.collectors.trace import Trace
    from deepprof.job.part import Between
    from deepprof.live.client.job_records import JobRecords
    from deepprof.live.client.replay import ReplayTotals

Value = TypeVar("Value")
PAGE = 1000  # jobs, ranks or loops of one page
PAGES = 100_000  # of one list: no daemon has more
DRAIN_S = 600.0


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
        """Return the metrics of Table III of each loop that is followed now, over the latest iterations."""
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
        note states how many records came before the window. Takes the memory of the tables.
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
        from deepprof.live.client.job_records import JobRecords

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
