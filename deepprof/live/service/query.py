"""`Query`: the daemon's data, page by page."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import grpc

from deepprof.collectors.times import TIME_LIMIT_NS
from deepprof.live.service.access.caller import CALLER
from deepprof.live.service.context_windows import count_folded
from deepprof.live.service.fair_lock import FairLock
from deepprof.live.service.folder import StoreError
from deepprof.live.service.kept_contexts import read_contexts
from deepprof.live.service.latest_looks import LatestLooks
from deepprof.live.service.refusal import RefusedError
from deepprof.live.service.stream_leases import StreamLeases
from deepprof.live.wire.declarations import encode, merge
from deepprof.live.wire.figures import ContextFigures, DeviceState, JobState, LeadingFigures, RankState
from deepprof.v1 import query_pb2 as wire
from deepprof.v1 import query_pb2_grpc

if TYPE_CHECKING:
    import polars as pl

    from deepprof.live.service.daemon_rank import DaemonRank
    from deepprof.live.service.engine import Engine
    from deepprof.live.service.examiner import Examiner
    from deepprof.live.service.history.values import ContextAnswer, JobSummary
    from deepprof.live.service.views import LoopView, RankView

log = logging.getLogger(__name__)

T = TypeVar("T")
Kept = tuple[str, int]
"""The sender of a job, and how many bytes are kept of it."""
Context = grpc.aio.ServicerContext[Any, Any]

PAGE, LARGEST_PAGE = 100, 1000
ROWS, LARGEST_ROWS = 8192, 65_536
READERS, STALLED_S = 16, 60.0  # readers of raw records at a time, and for how long one may read nothing
MOST_POSITIONS = 65_536  # of a reader of raw records, one for every rank
NAME_CHARS, NAMES_NBYTES = 4096, 32 << 20  # of a context's name, and of all of an answer
WATCHERS = 512  # at a time
NOBODY: Kept = "", 0
MOST_LINES = 5  # of code, of a rank: a thousand ranks are one message
INTERVAL_MS = (100, 1000, 60_000)  # shortest, usual, longest


class QueryServicer(query_pb2_grpc.QueryServicer):
    """Answers questions; see proto/deepprof/v1/query.proto for limits and errors."""

    def __init__(self, engine: Engine, examiner: Examiner) -> None:
        self.engine, self.examiner = engine, examiner
        self.readers = StreamLeases("readers", "raw windows are read", READERS)
        self.watchers = StreamLeases("watchers", "watch", WATCHERS)
        self.looks = LatestLooks(self.watched, engine.clock)
        # Callers take turns, both with work on the event loop and with work on the history.
        self.turns, self.history_turns = FairLock(), FairLock()

    async def ListJobs(self, request: wire.ListJobsRequest, context: Context) -> wire.ListJobsResponse:  # noqa: N802
        """List the jobs, newest first."""
        jobs = list((await self.take_turn(lambda: self.watched(""))).jobs)
        if request.past:
            here = {job.job for job in jobs}
            jobs += [_past_job_of(job, self.kept(job.job)) for job in await self.past(context) if job.job not in here]
        jobs.sort(key=lambda job: (-job.first_seen_unix_ns, job.job))
        page, token = await _cut_page(jobs, request.page_size, request.page_token, context)
        return wire.ListJobsResponse(jobs=page, next_page_token=token)

    async def ListRanks(self, request: wire.ListRanksRequest, context: Context) -> wire.ListRanksResponse:  # noqa: N802
        """List the ranks of a job."""
        ranks = await self.ranks(request.job, context)
        page, token = await _cut_page(ranks, request.page_size, request.page_token, context)
        views = await self.take_turn(lambda: [rank_of(rank.view) for rank in page])
        return wire.ListRanksResponse(ranks=views, next_page_token=token)

    async def ListLoops(self, request: wire.ListLoopsRequest, context: Context) -> wire.ListLoopsResponse:  # noqa: N802
        """List the loops that were followed."""
        wanted = request.rank if request.HasField("rank") else None
        ranks = [each for each in await self.ranks(request.job, context) if wanted in (None, each.hello.rank)]
        loops = await self.take_turn(lambda: list(_loops_of(ranks)))
        page, token = await _cut_page(loops, request.page_size, request.page_token, context)
        return wire.ListLoopsResponse(loops=page, next_page_token=token)

    async def ListIterations(  # noqa: N802
        self, request: wire.ListIterationsRequest, context: Context
    ) -> wire.ListIterationsResponse:
        """List iterations, a page as an Arrow IPC stream."""
        ranks = await self.ranks(request.job, context, past=True)
        limit = await _check_size(request.page_size, ROWS, LARGEST_ROWS, context)
        rank = request.rank if request.HasField("rank") else None
        device = request.device if request.HasField("device") else None

        def read() -> tuple[pl.DataFrame, str]:
            self.engine.worker.save(r for r in ranks if rank in (None, r.hello.rank))
            return self.engine.history.iterations(request.job, rank, device, request.page_token, limit)

        try:
            async with self.history_turns.hold(CALLER.get(), request.job):
                rows, token = await self.engine.order(read)
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"page_token: {error}")
        except (OSError, StoreError) as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"the history cannot be read: {str(error)[:200]}")
        return wire.ListIterationsResponse(arrow=to_arrow(rows), next_page_token=token)

    async def GetMetrics(self, request: wire.GetMetricsRequest, context: Context) -> wire.GetMetricsResponse:  # noqa: N802
        """Return Table III of the job's loops, over the latest examined records."""
        await self.ranks(request.job, context)
        return wire.GetMetricsResponse(metrics=self.examiner.metrics(request.job))

    async def GetContexts(self, request: wire.GetContextsRequest, context: Context) -> wire.GetContextsResponse:  # noqa: N802
        """Return what calling contexts did in a time, those of the minutes that are not over with them."""
        ranks = await self.ranks(request.job, context, past=True)
        rank = request.rank if request.HasField("rank") else None
        start = request.start_ns if request.HasField("start_ns") else -TIME_LIMIT_NS
        end = request.end_ns if request.HasField("end_ns") else TIME_LIMIT_NS
        try:
            async with self.history_turns.hold(CALLER.get(), request.job):
                found = await read_contexts(self.engine, request.job, rank, (start, end), ranks)
            return await asyncio.to_thread(_contexts_of, found)
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except (OSError, StoreError) as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"the history cannot be read: {str(error)[:200]}")

    async def GetFindings(self, request: wire.GetFindingsRequest, context: Context) -> wire.GetFindingsResponse:  # noqa: N802
        """Return the findings of the rules."""
        await self.ranks(request.job, context)
        return self.examiner.findings(request.job)

    async def ReadWindow(  # noqa: N802
        self, request: wire.ReadWindowRequest, context: Context
    ) -> None:
        """Stream the raw records that are still kept; the call of a reader that does not read is ended."""
        ranks = await self.ranks(request.job, context)
        known = await _read_positions(request.after, context)
        wanted = set(request.ranks)
        chosen = [rank for rank in ranks if not wanted or rank.hello.rank in wanted]
        try:
            with self.readers.hold(CALLER.get()):
                stalled = await self.write_windows(chosen, known, context)
        except RefusedError as refusal:
            await self.refuse(refusal, context)
        if stalled is not None:
            await stalled  # gRPC supports no other operation during a write, not even the call's end
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"nothing was read for {STALLED_S:.0f} s")

    async def write_windows(
        self, ranks: Sequence[DaemonRank], known: Mapping[int, wire.ReadPosition], context: Context
    ) -> asyncio.Task[None] | None:
        """Write the messages of ranks; return the write that was not finished in time, None where all were."""
        for rank in ranks:
            found = self.examiner.read_window(rank, known.get(rank.hello.rank))
            async with contextlib.aclosing(found) as messages:
                async for message in messages:
                    if (stalled := await write(context, message)) is not None:
                        return stalled
        return None

    async def ListCaptures(self, request: wire.ListCapturesRequest, _: Context) -> wire.ListCapturesResponse:  # noqa: N802
        """List the raw windows that were kept."""
        found = self.examiner.captures.listed()
        return wire.ListCapturesResponse(captures=[c for c in found if request.job in ("", c.job)])

    async def Watch(self, request: wire.WatchRequest, context: Context) -> AsyncIterator[wire.WatchResponse]:  # noqa: N802
        """Yield the state now, and again whenever it has changed."""
        shortest, usual, longest = INTERVAL_MS
        interval = request.interval_ms or usual
        if not shortest <= interval <= longest:
            text = f"interval_ms: {interval} is not between {shortest} and {longest}"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
        if request.job:
            await self.ranks(request.job, context)
        try:
            with self.watchers.hold(CALLER.get()):
                async for state in self.changes(request.job, interval):
                    now = self.engine.clock.unix_ns()
                    yield wire.WatchResponse(jobs=state.jobs, ranks=state.ranks, now_unix_ns=now)
        except RefusedError as refusal:
            await self.refuse(refusal, context)

    async def changes(self, job: str, interval_ms: int) -> AsyncIterator[wire.WatchResponse]:
        """Yield the state of a job, or of all jobs, whenever it has changed, until the daemon stops."""
        shown = None
        while not self.engine.stopping:
            state = await self.take_turn(lambda: self.looks.look(job))
            if state is not shown and state != shown:
                yield state
            shown = state
            await asyncio.sleep(interval_ms / 1000)

    async def take_turn(self, work: Callable[[], T]) -> T:
        """Do work on the event loop in the turn of its caller, and let other tasks run in between."""
        async with self.turns.hold(CALLER.get(), ""):
            found = work()
            await asyncio.sleep(0)  # so that all calls that are due are queued before the next one has its turn
            return found

    async def refuse(self, refusal: RefusedError, context: Context) -> NoReturn:
        """End a call that is not served, count it and log it."""
        caller = CALLER.get()
        self.engine.refusals.note(refusal.reason, caller)
        who = {"peer": context.peer(), "token": caller, "reason": refusal.reason, "problem": str(refusal)}
        log.warning("call-refused", extra=who)
        await context.abort(getattr(grpc.StatusCode, refusal.code), str(refusal))

    def watched(self, job: str) -> wire.WatchResponse:
        """Return the state of a job with its ranks, or of all jobs."""
        jobs = self.engine.roster.jobs
        chosen = {name: ranks for name, ranks in jobs.items() if job in ("", name)}
        views = {name: [rank.view for _, rank in sorted(ranks.items())] for name, ranks in chosen.items()}
        ranks = [rank_of(view) for view in views.get(job, ())] if job else []
        return wire.WatchResponse(jobs=[self.job(name, found) for name, found in views.items()], ranks=ranks)

    def job(self, name: str, ranks: Sequence[RankView]) -> wire.Job:
        """Return a job from its ranks, its sender and its size."""
        return job_of(name, ranks, self.kept(name), self.examiner.order(name))

    def kept(self, job: str) -> Kept:
        """Return the sender of a job and the bytes kept of it, as measured last."""
        return self.engine.senders.kept_of(job)

    async def ranks(self, job: str, context: Context, *, past: bool = False) -> list[DaemonRank]:
        """Return a job's ranks by number; ends the call for an unknown job, with `past` if the history lacks it too."""
        found = self.engine.roster.jobs.get(job)
        if found is None and not self.engine.ready:
            text = "the daemon is starting, or stopping; try again in a minute"
            await context.abort(grpc.StatusCode.UNAVAILABLE, text)
        if found is None and not (past and await self.was_known(job, context)):
            known = ", ".join(list(self.engine.roster.jobs)[:8]) or "none"
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no job {job[:128]!r}; there are: {known}")
        return [rank for _, rank in sorted((found or {}).items())]

    async def was_known(self, job: str, context: Context) -> bool:
        """Return whether the history has a job."""
        return any(known.job == job for known in await self.past(context))

    async def past(self, context: Context) -> list[JobSummary]:
        """Return the jobs that the history has; ends the call where it cannot be read."""
        try:
            async with self.history_turns.hold(CALLER.get(), ""):
                return await asyncio.to_thread(self.engine.history.jobs)
        except (OSError, StoreError) as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"the history cannot be read: {str(error)[:200]}")


def _past_job_of(summary: JobSummary, kept: Kept) -> wire.Job:
    """Return a job of which only the history is left."""
    return wire.Job(
        job=summary.job,
        ranks=summary.ranks,
        ended=summary.ranks,
        first_seen_unix_ns=summary.first_seen_unix_ns,
        last_record_unix_ns=summary.latest_unix_ns,
        iterations=summary.iterations,
        sender=kept[0],
        kept_nbytes=kept[1],
    )


def job_of(name: str, ranks: Sequence[RankView], kept: Kept = NOBODY, order: Sequence[str] = ()) -> wire.Job:
    """Return a job from its ranks, with its sender and size; `order` are rules in the order of its report."""
    loud = {rule for rank in ranks for rule, severity in rank.findings.items() if severity != "info"}
    told = [rule for rule in order if rule in loud]
    devices = [device for rank in ranks for device in rank.devices]
    merged = {**merge(DeviceState, devices), **merge(RankState, ranks)}
    state = JobState(
        name,
        len(ranks),
        **{each.name: merged[each.name] for each in fields(JobState) if each.name in merged},
        active_findings=(*told, *sorted(loud.difference(told))),
        sender=next((rank.sender for rank in ranks if rank.sender), kept[0]),
        kept_nbytes=kept[1],
    )
    return encode(wire.Job, state)


def rank_of(rank: RankView) -> wire.Rank:
    """Return a rank, with the first of the lines of code that lead; the rest of them is part of the others."""
    found = rank.contexts
    if found is None or len(found.lines) <= MOST_LINES:
        return encode(wire.Rank, rank)
    other = merge(ContextFigures, (found.other, *found.lines[MOST_LINES:]))
    shown = LeadingFigures(found.lines[:MOST_LINES], ContextFigures("", **other), found.window_ns)
    return encode(wire.Rank, rank, contexts=encode(wire.LeadingFigures, shown))


def _loop_of(rank: int, device: int, loop: LoopView) -> wire.Loop:
    return wire.Loop(rank=rank, device=device, iterations=loop.iterations, **loop.shown())


def _loops_of(ranks: Iterable[DaemonRank]) -> Iterator[wire.Loop]:
    for rank in ranks:
        for device in rank.view.devices:
            for loop in device.loops:
                yield _loop_of(rank.hello.rank, device.device, loop)


async def write(context: Context, message: wire.ReadWindowResponse) -> asyncio.Task[None] | None:
    """Write a message; return the write if the client does not take it within `STALLED_S`."""
    writing = asyncio.ensure_future(context.write(message))
    try:
        await asyncio.wait({writing}, timeout=STALLED_S)
    except asyncio.CancelledError:
        writing.cancel()
        raise
    if not writing.done():
        return writing
    writing.result()
    return None


async def _read_positions(after: Sequence[wire.ReadPosition], context: Context) -> dict[int, wire.ReadPosition]:
    """Return the positions of a reader by rank; ends the call for too many, or two of one rank."""
    known = {position.rank: position for position in after}
    if len(after) > MOST_POSITIONS or len(known) < len(after):
        text = f"after: {len(after)} positions of {len(known)} ranks; give each rank once, {MOST_POSITIONS} at most"
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
    return known


async def _check_size(size: int, usual: int, largest: int, context: Context) -> int:
    """Return the page size that the call requests, or the usual one; ends the call if it is too large."""
    if size > largest:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"page_size: {size} is above {largest}")
    return size or usual


async def _cut_page(items: Sequence[T], size: int, token: str, context: Context) -> tuple[Sequence[T], str]:
    """Return the page that begins at `token`, the number of its first item, and the next one's token."""
    limit = await _check_size(size, PAGE, LARGEST_PAGE, context)
    if token and not (token.isascii() and token.isdecimal() and len(token) <= 9):
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "page_token: is none of ours; begin without one")
    first = int(token or 0)
    return items[first : first + limit], str(first + limit) if first + limit < len(items) else ""


def _contexts_of(found: ContextAnswer) -> wire.GetContextsResponse:
    """Return an answer on calling contexts; the last contexts are left out where texts would make it too large."""
    names = found.nodes["name"].str.slice(0, NAME_CHARS)
    nodes = found.nodes.with_columns(names)
    fits = int((names.str.len_bytes().cum_sum() <= NAMES_NBYTES).sum())
    sums, folded = found.sums, found.folded
    if fits < nodes.height:
        stays = sums["context"].is_in(nodes["context"][:fits].implode())
        sums, folded = sums.filter(stays), count_folded(sums.filter(~stays), folded)
    return wire.GetContextsResponse(
        nodes=to_arrow(nodes[:fits]),
        sums=to_arrow(sums),
        windows=found.windows,
        folded=folded,
        step_ns=found.step_ns,
        earliest_ns=found.earliest_ns,
    )


def to_arrow(rows: pl.DataFrame) -> bytes:
    """Return a frame as an Arrow IPC stream."""
    buffer = io.BytesIO()
    rows.write_ipc_stream(buffer, compression="uncompressed")
    return buffer.getvalue()
