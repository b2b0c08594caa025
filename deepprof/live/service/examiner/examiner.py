"""Decides when jobs are examined, and keeps the results."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import polars as pl

from deepprof.collectors.errors import DeepProfError
from deepprof.live.service.config import Config
from deepprof.live.service.examination import END_OF_MESSAGES, LENGTH, ExaminationResult, pack_history
from deepprof.live.service.examiner.captures import Captures, KeptCapture
from deepprof.live.service.examiner.examined import LatestExamination
from deepprof.live.service.examiner.windows import is_whole, later_messages, latest, window_messages
from deepprof.live.service.folder import StoreError
from deepprof.live.service.journal import JournalPlace
from deepprof.live.service.kept_contexts import read_rank
from deepprof.live.service.refusal import RefusedError
from deepprof.v1 import query_pb2 as wire

if TYPE_CHECKING:
    from deepprof.live.service.daemon_rank import DaemonRank
    from deepprof.live.service.engine import Engine
    from deepprof.live.service.session import SessionEvent

log = logging.getLogger(__name__)

LOOK_S = 0.5
PAUSE_S = 30.0  # after a failure that the examined job did not cause
PIN_S = 60.0  # for which a reader keeps the journal from removing segments; a slower reader may find a gap
EXAMINED = "examined/"
LOOK_BACK_NS = 24 * 3600 * 10**9  # over which the history of calling contexts is examined
LOOK_BACK_NBYTES = 64 << 20  # of the histories of all ranks together; the first ranks are examined
QUIET_NS = 600 * 10**9  # between two automatic captures of one rank
WINDOW_NBYTES = 256 << 20  # most bytes of messages in one run of the rules
SETTLE_NBYTES = 512 << 20  # most bytes of messages of an ended rank that is analysed as a whole
DOCUMENTS_NBYTES = 8 << 20  # most bytes of a job's documents of the page
ALL_DOCUMENTS_NBYTES = 64 << 20  # of those of all jobs
CAPTURE_NBYTES = 32 << 20  # most bytes of messages in a capture
ALONE = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Examiner:
    """Examines one job at a time, in a separate process; each job at most once every `examine.every`."""

    def __init__(self, engine: Engine, config: Config, captures: Captures) -> None:
        self.engine, self.config, self.captures = engine, config.examine, captures
        self.known: dict[str, LatestExamination] = {}
        self.done = self.failures = 0
        self._captured: dict[tuple[str, int], int] = {}
        self._wanted: list[tuple[DaemonRank, str]] = []  # captures requested because of anomalies
        self._postponed: dict[int, int] = {}  # by session: the time before which it is not settled again
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        """Examine jobs until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self.look()
            except RefusedError as refusal:
                log.warning("capture-refused", extra={"problem": str(refusal)[:200]})
            except (OSError, DeepProfError) as error:
                log.warning("examiner-failed", extra={"problem": str(error)[:200]})
                await asyncio.sleep(PAUSE_S)
            except Exception:
                log.exception("examiner-failed")
                await asyncio.sleep(PAUSE_S)

    async def look(self) -> None:
        """Do the work that is due: captures first, then ranks that have ended, then the job that waits longest."""
        self.let_go()
        if self._wanted:
            await self.capture(*self._wanted.pop(0))
        if (ended := next((rank for rank in self.engine.roster if self.can_settle(rank)), None)) is not None:
            await self.settle(ended)
        elif (job := self.next_job()) is not None:
            await self.examine(job)

    def let_go(self) -> None:
        """Remove the data of jobs and ranks that the daemon no longer has."""
        jobs = self.engine.roster.jobs
        self.known = {job: known for job, known in self.known.items() if job in jobs}
        for key in [key for key in list(self._captured) if self.engine.roster.find(*key) is None]:
            del self._captured[key]
        for number in self._postponed.keys() - {rank.number for rank in self.engine.roster}:
            del self._postponed[number]

    def is_here(self, rank: DaemonRank) -> bool:
        """Return whether the daemon still has a rank: its job may be removed while it is examined."""
        return self.engine.roster.find(*rank.key) is rank

    def next_job(self) -> str | None:
        """Return the job whose examination has been due longest, or None."""
        now, due = self.engine.clock.monotonic_ns(), []
        for job, ranks in self.engine.roster.jobs.items():
            known = self.known.get(job, LatestExamination(at_ns=-self.config.every_ns))
            if now - known.at_ns >= self.config.every_ns and _accepted(ranks.values()) != known.records:
                due.append((known.at_ns, job))
        return min(due)[1] if due else None

    async def examine(self, job: str) -> None:
        """Run the rules over the latest records of a job."""
        ranks = list(self.engine.roster.jobs.get(job, {}).values())
        known = self.known.setdefault(job, LatestExamination())
        known.at_ns, known.records = self.engine.clock.monotonic_ns(), _accepted(ranks)
        chosen = _choose(ranks, self.config.ranks)
        result = await self.ask(chosen, documents=True)
        if result is not None and (here := [rank for rank in ranks if self.is_here(rank)]):
            self.learn(job, result, here)

    def learn(self, job: str, result: ExaminationResult, ranks: Sequence[DaemonRank]) -> None:
        """Store and show the result of an examination."""
        known = self.known.setdefault(job, LatestExamination())
        known.learn(result, self.engine.clock.unix_ns())
        if result.documents_problem:
            log.warning("documents-failed", extra={"job": job, "problem": result.documents_problem[:200]})
        self.bound_documents()
        for rank in ranks:
            _show(rank, known)
        content = known.encode()
        self.note(lambda: self.engine.history.save_text(f"{EXAMINED}{job}", content, job))

    def bound_documents(self) -> None:
        """Drop the documents of the jobs that were examined longest ago, where there are too many."""
        total = sum(known.documents_nbytes for known in self.known.values())
        for known in sorted(self.known.values(), key=lambda known: known.unix_ns):
            if total <= ALL_DOCUMENTS_NBYTES:
                return
            total -= known.documents_nbytes
            known.documents = {}

    def note(self, change: Callable[[], None]) -> None:
        """Have the worker's thread change the examinations in the history; an error, such as a full disk, is logged."""

        def do() -> None:
            try:
                change()
            except (OSError, StoreError) as error:
                log.warning("examiner-failed", extra={"problem": str(error)[:200]})

        self.engine.worker.call(do)

    def remember(self) -> None:
        """Load the examinations that were saved before the daemon was last stopped."""
        for key, content in self.engine.history.list_texts(EXAMINED).items():
            known = LatestExamination.decode(content)
            if known is not None:
                self.known[key.removeprefix(EXAMINED)] = known
        for rank in self.engine.roster:
            if rank.hello.job in self.known:
                _show(rank, self.known[rank.hello.job])

    # -- ranks that have ended --

    def can_settle(self, rank: DaemonRank) -> bool:
        """Return whether a rank has ended and all its records can be analysed as a whole now."""
        if not rank.mined_end or rank.settled or rank.unsettled:
            return False
        if self.engine.clock.monotonic_ns() < self._postponed.get(rank.number, 0):
            return False
        places = self.engine.journal.window(rank.number)
        rank.unsettled = not is_whole(self.engine.journal, rank, places) or _size_of(places) > SETTLE_NBYTES
        return not rank.unsettled

    async def settle(self, rank: DaemonRank) -> None:
        """Replace the iterations of a rank that has ended by those of an analysis of all its records."""
        places = self.engine.journal.window(rank.number)
        alone = len(self.engine.roster.jobs.get(rank.hello.job, {})) == 1
        result = await self.ask([rank], {rank.number: places}, whole=True, documents=alone)
        rank.unsettled = result is None
        if result is None or not self.is_here(rank):
            return
        rows = pl.read_ipc_stream(io.BytesIO(result.iterations))
        self._postponed[rank.number] = self.engine.clock.monotonic_ns() + self.config.every_ns  # should that fail
        await self.engine.order(lambda: self.engine.worker.settle(rank, rows, result.loops))
        if len(self.engine.roster.jobs.get(rank.hello.job, {})) == 1:
            known = self.known.setdefault(rank.hello.job, LatestExamination())
            known.at_ns, known.records = self.engine.clock.monotonic_ns(), _accepted([rank])
            self.learn(rank.hello.job, result, [rank])

    # -- what is kept --

    def notice(self, rank: DaemonRank, event: SessionEvent) -> None:
        """Request a capture for an event of a session; called in the worker's thread."""
        now, last = self.engine.clock.monotonic_ns(), self._captured.get(rank.key)
        if event.kind not in ("slow", "lost", "gap") or (last is not None and now - last < QUIET_NS):
            return
        if not self.captures.most:
            return
        self._captured[rank.key] = now
        self._wanted.append((rank, REASONS[event.kind]))

    async def capture(self, rank: DaemonRank, reason: str) -> wire.Capture:
        """Keep the latest raw records of a rank as a store. Raises `RefusedError`."""
        if not self.captures.most:
            raise RefusedError("FAILED_PRECONDITION", "no captures are kept here; raise captures.count")
        places = latest(self.engine.journal, rank, CAPTURE_NBYTES)
        now = self.engine.clock.unix_ns()
        name = self.captures.name(now)
        if await self.run_process([rank], {rank.number: places}, "--keep", str(self.captures.folder / name)) is None:
            self.captures.discard(name)
            raise RefusedError("RESOURCE_EXHAUSTED", "the window could not be kept; the daemon's log says why")
        if not self.is_here(rank):
            self.captures.discard(name)
            raise RefusedError("NOT_FOUND", f"job {rank.hello.job!r} was forgotten meanwhile")
        kept = KeptCapture(name, rank.hello.job, rank.hello.rank, reason, now, self.captures.measure(name))
        try:
            self.captures.add(kept)
        except (OSError, ValueError) as error:
            raise RefusedError("RESOURCE_EXHAUSTED", f"the window could not be kept: {error}") from error
        log.info("captured", extra={"job": kept.job, "rank": kept.rank, "reason": reason, "capture": name})
        return wire.Capture(**msgspec.structs.asdict(kept))

    # -- the process --

    async def ask(
        self,
        ranks: Sequence[DaemonRank],
        places: dict[int, list[JournalPlace]] | None = None,
        *,
        whole: bool = False,
        documents: bool = False,
    ) -> ExaminationResult | None:
        """Return the result of the process for the latest records of ranks; None where it fails.

        With `whole` a damaged record is such a failure, otherwise it becomes a gap. With `documents` it has those of
        the page.
        """
        if places is None:
            share = WINDOW_NBYTES // max(1, len(ranks))
            places = {rank.number: latest(self.engine.journal, rank, share) for rank in ranks}
        wanted = ("--documents", str(DOCUMENTS_NBYTES)) if documents else ()
        output = await self.run_process(ranks, places, *wanted, whole=whole, tail=await self.look_back(ranks))
        if output is None:
            return None
        return msgspec.msgpack.decode(output, type=ExaminationResult)

    async def look_back(self, ranks: Sequence[DaemonRank]) -> bytes:
        """Return the history of the contexts of ranks, as the process reads it after the messages."""
        found, now, room = [], self.engine.clock.unix_ns(), LOOK_BACK_NBYTES
        for rank in (each for each in ranks if each.view.contexts is not None):
            try:
                packed = pack_history(await read_rank(self.engine, *rank.key, (now - LOOK_BACK_NS, now)))
                room -= len(packed.nodes) + len(packed.sums)
                if room < 0:
                    break
                found.append(packed)
            except (OSError, StoreError, ValueError) as error:
                extra = {"job": rank.hello.job, "rank": rank.hello.rank, "problem": str(error)[:200]}
                log.warning("history-not-examined", extra=extra)
        return END_OF_MESSAGES + msgspec.msgpack.encode(found)

    async def run_process(
        self,
        ranks: Sequence[DaemonRank],
        places: dict[int, list[JournalPlace]],
        *args: str,
        whole: bool = False,
        tail: bytes = b"",
    ) -> bytes | None:
        """Run one process at a time and return its output; None, and a line in the log, where it fails.

        It gets the messages of ranks, and then `tail`.
        """
        command = [sys.executable, "-m", "deepprof.live.service.examination", "--data", str(self.config.memory_nbytes)]
        async with self._turn:
            process = await asyncio.create_subprocess_exec(
                *command, *args, stdin=-1, stdout=-1, stderr=-1, env={**os.environ, **ALONE}
            )
            try:
                async with asyncio.timeout(self.config.timeout_ns / 1e9):
                    feeding = self.feed(process, ranks, places, whole=whole, tail=tail)
                    _, (output, problem) = await asyncio.gather(feeding, _collect(process))
            except TimeoutError:
                output, problem = b"", b"it took too long"
            except (OSError, StoreError) as error:
                output, problem = b"", str(error).encode()
            finally:
                if process.returncode is None:
                    process.kill()
                await process.wait()
        if process.returncode == 0:
            self.done += 1
            return output
        self.failures += 1
        last = problem.decode(errors="replace").strip().splitlines()[-1:]
        log.warning("examination-failed", extra={"job": ranks[0].hello.job, "problem": (last or ["killed"])[0][:200]})
        return None

    async def feed(
        self,
        process: asyncio.subprocess.Process,
        ranks: Sequence[DaemonRank],
        places: dict[int, list[JournalPlace]],
        *,
        whole: bool,
        tail: bytes,
    ) -> None:
        """Write the messages of ranks to the process, and what follows them."""
        stream = process.stdin
        if stream is None:
            raise RuntimeError("the process has no stdin")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the exit of the process shows why
            for rank in ranks:
                async for message in self.messages(rank, places[rank.number], whole=whole):
                    content = message.SerializeToString()
                    stream.write(len(content).to_bytes(LENGTH, "little") + content)
                    await stream.drain()
            stream.write(tail)
            await stream.drain()
            stream.close()
            await stream.wait_closed()

    async def messages(
        self, rank: DaemonRank, places: list[JournalPlace], *, whole: bool = False
    ) -> AsyncGenerator[wire.ReadWindowResponse]:
        """Yield the messages of a window, as `read_messages` does."""
        messages = window_messages(self.engine.journal, rank, places, whole=whole)
        async with contextlib.aclosing(self.read_messages(messages)) as found:
            async for message in found:
                yield message

    async def read_messages(
        self, messages: Iterator[wire.ReadWindowResponse]
    ) -> AsyncGenerator[wire.ReadWindowResponse]:
        """Yield messages of the journal, read in another thread; the journal keeps them for `PIN_S`.

        The time is limited because a reader that never reads would let the journal grow until the disk is full.
        """
        with contextlib.ExitStack() as held:
            held.enter_context(self.engine.journal.pin())
            timer = asyncio.get_running_loop().call_later(PIN_S, held.close)
            held.callback(timer.cancel)
            while (message := await asyncio.to_thread(next, messages, None)) is not None:
                yield message

    # -- what is available --

    async def read_window(
        self, rank: DaemonRank, known: wire.ReadPosition | None = None
    ) -> AsyncGenerator[wire.ReadWindowResponse]:
        """Yield all messages of a rank that the journal still has, or those after what its reader has."""
        journal = self.engine.journal
        if known is not None and known.collector == rank.hello.collector:
            messages = self.read_messages(later_messages(journal, rank, known))
        else:
            messages = self.messages(rank, journal.window(rank.number))
        async with contextlib.aclosing(messages) as found:
            async for message in found:
                yield message

    def order(self, job: str) -> list[str]:
        """Return the rules with findings in a job, in the report's order."""
        known = self.known.get(job)
        return [] if known is None else known.order()

    def findings(self, job: str) -> wire.GetFindingsResponse:
        """Return the findings of a job."""
        known = self.known.get(job)
        return wire.GetFindingsResponse() if known is None else known.findings()

    def metrics(self, job: str) -> list[wire.LoopMetrics]:
        """Return the figures of a job's loops."""
        known = self.known.get(job)
        return [] if known is None else known.figures()

    def forget(self, job: str) -> None:
        """Remove the examination and the captures of a job."""
        self.known.pop(job, None)
        self._wanted = [(rank, reason) for rank, reason in self._wanted if rank.hello.job != job]
        self.note(lambda: self.engine.history.delete_text(f"{EXAMINED}{job}"))  # one may just have been written
        self.captures.forget(job)


REASONS = {"slow": "slow-iteration", "lost": "miner-lost", "gap": "gap"}


async def _collect(process: asyncio.subprocess.Process) -> tuple[bytes, bytes]:
    if process.stdout is None or process.stderr is None:
        raise RuntimeError("the process has no pipes")
    output, problem = await asyncio.gather(process.stdout.read(), process.stderr.read())
    await process.wait()
    return output, problem


def _show(rank: DaemonRank, known: LatestExamination) -> None:
    rank.findings = known.active(rank.hello.rank)
    rank.stages = known.stages.get(rank.hello.rank, ())
    rank.show()


def _accepted(ranks: Iterable[DaemonRank]) -> int:
    return sum(rank.view.account.accepted for rank in ranks)


def _size_of(places: Sequence[JournalPlace]) -> int:
    """Return the size in bytes of the messages at `places`."""
    return sum(place.length for place in places)


def _choose(ranks: Sequence[DaemonRank], most: int) -> list[DaemonRank]:
    """Return the ranks to examine for a job: all, or the first, the slowest and quickest, and some evenly between."""
    ordered = sorted(ranks, key=lambda rank: rank.hello.rank)
    if len(ordered) <= most:
        return ordered
    by_time = sorted(ordered, key=lambda rank: max((d.compute_ns_total for d in rank.view.devices), default=0))
    even = [ordered[i * len(ordered) // most] for i in range(most)]
    chosen = list(dict.fromkeys([ordered[0], by_time[0], by_time[-1], *even]))[:most]
    return sorted(chosen, key=lambda rank: rank.hello.rank)
