"""A directory where reports appear: each that is done is sent as `deepprof send` would.

Reports of profilers that run once (`nsys`, PyTorch's `tensorboard_trace_handler`) come as files. A file is done when it
has not changed for a while; the files sent are recorded on disk, so that another agent sends none of them twice.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from deepprof.collectors.errors import DeepProfError, TraceError, UsageError
from deepprof.collectors.importers import covers, look_at, read, recognise
from deepprof.collectors.importers.archives import is_archive
from deepprof.collectors.importers.files import NSYS_REPORTS
from deepprof.collectors.processes import split_processes
from deepprof.collectors.trace import Trace
from deepprof.files import write_file
from deepprof.job import read_unaligned
from deepprof.job.ranks import number_ranks, rank_in_name
from deepprof.live.agent.job_names import clean_name
from deepprof.live.agent.notices import NoticeLog
from deepprof.live.client.endpoint import Endpoint
from deepprof.live.client.errors import DaemonError
from deepprof.live.client.replay import ReplayRun, TraceReplay
from deepprof.live.client.retrying import CLOCK, Clock

log = logging.getLogger(__name__)

LOOK_S = 1.0
SETTLE_S = 5.0
EXPORT_S = 60.0  # for the .sqlite to appear next to an .nsys-rep, which `nsys profile --export` makes last
RETRY_S = 30.0  # while the daemon is away
ENTRIES = 10_000
MEMORY_NBYTES = 4 << 20
DATABASE = ".sqlite"
# Such directories contain files of other kinds too: only for these a line reports that they are no trace.
REPORTS = (DATABASE, ".rpd", ".pt.trace.json", ".pt.trace.json.gz", ".xplane.pb", *NSYS_REPORTS)
SUFFIXES = frozenset(
    {
        *(".gz", ".zst", ".json", ".trace", ".pt", ".sqlite", ".rpd", ".pb", ".xplane", ".csv", ".parquet", ".arrow"),
        *(".zip", ".tgz", ".tar", ".db", ".sql", ".nvvp", *NSYS_REPORTS),
    }
)


@dataclass(frozen=True, slots=True)
class ReportFile:
    """The state of a file: size, and when it changed."""

    nbytes: int
    changed_ns: int


@dataclass(frozen=True, slots=True, eq=False)
class _ReportShipment:
    """The content of a report: ranks of the job `job`, and files next to it with the same content."""

    job: str
    traces: Sequence[Trace]
    covered: Sequence[Path] = ()


Send = Callable[[_ReportShipment], Awaitable[int]]


def sender_to(endpoint: Endpoint, notices: NoticeLog, clock: Clock = CLOCK) -> Send:
    """Return a function that sends a shipment to a daemon and returns how many records are durable there."""

    async def send(shipment: _ReportShipment) -> int:
        sending = ReplayRun(endpoint, shipment.traces, TraceReplay(shipment.job), clock, None, notices.say)
        try:
            return sum(sent.durable for sent in await sending.run())
        except UsageError:
            _check_files(endpoint)
            raise

    return send


def _check_files(endpoint: Endpoint) -> None:
    """Raise a passing `DaemonError` if a token or certificate does not work: that is no fault of a report."""
    try:
        endpoint.metadata()
        endpoint.tls()
    except UsageError as error:
        raise DaemonError(endpoint.address, f"cannot be shown who asks ({error})", "mend it", passing=True) from error


def read_report(path: Path, job: str) -> _ReportShipment | None:
    """Return the content of a file, None for one that is no report. Raises `TraceError` for one that cannot be read.

    A file that names its rank, inside or by its name, is that rank of `job`. Any other file is its own job,
    `job/NAME`, and each process whose work it contains is a rank of it.
    """
    job = clean_name(job) or "reports"
    alone = clean_name(f"{job}/{name_of(path)}") or job
    head = look_at(path)
    importer = recognise(head, path)
    if importer is None and is_archive(head):
        return _ReportShipment(alone, read_unaligned([path], shapes=False))
    if importer is None and not path.name.endswith(REPORTS):
        return None
    trace = read(path, shapes=False)
    beside = tuple(covers(importer, path)) if importer else ()
    parts = split_processes(trace)
    if len(parts) > 1:
        return _ReportShipment(alone, number_ranks(parts), beside)
    rank = trace.rank if trace.rank is not None else rank_in_name(str(path))
    return _ReportShipment(alone if rank is None else job, [replace(trace, rank=rank or 0)], beside)


def name_of(path: Path) -> str:
    """Return a file's name without the suffixes of its format."""
    name = path
    while name.suffix in SUFFIXES and name.stem:
        name = name.with_suffix("")
    return name.name


@dataclass(slots=True)
class ReportMemory:
    """Which reports were handled, and their state then; kept in the file `path` if there is one."""

    path: Path | None = None
    reports: dict[str, ReportFile] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path is not None and self.path.is_file() and self.path.stat().st_size <= MEMORY_NBYTES:
            try:
                self.reports = msgspec.json.decode(self.path.read_bytes(), type=dict[str, ReportFile])
            except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
                self.reports = {}  # the daemon recognises reports that are sent again

    def has(self, name: str, report: ReportFile) -> bool:
        """Return whether this report was handled in its present state."""
        return self.reports.get(name) == report

    def add(self, name: str, report: ReportFile, present: Mapping[str, object]) -> None:
        """Record that a report was handled, and forget those that are no longer `present`."""
        kept = {other: was for other, was in self.reports.items() if other in present}
        self.reports = {**kept, name: report}
        if self.path is not None:
            write_file(self.path, msgspec.json.encode(self.reports))


@dataclass(slots=True)
class ReportSource:
    """Watches `folder` and has `send` send each report that appears there under the name `job`, one after the other."""

    folder: Path
    job: str
    send: Send
    notices: NoticeLog
    memory: ReportMemory = field(default_factory=ReportMemory)
    settle_s: float = SETTLE_S
    clock: Clock = CLOCK
    present: dict[str, ReportFile] = field(default_factory=dict)
    since_s: dict[str, float] = field(default_factory=dict)  # when a file was first seen as it is
    retry_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self.look()
            await self.clock.sleep(LOOK_S)

    def state(self) -> dict[str, Any]:
        """Return the state, for the agent's answer."""
        return {
            "source": "reports",
            "path": str(self.folder),
            "job": self.job,
            "files": len(self.present),
            "waiting": sum(not self.memory.has(name, report) for name, report in self.present.items()),
            "counts": dict(self.counts),
            "notices": self.notices.latest,
        }

    async def look(self) -> None:
        """List the directory once, and handle all files that are done."""
        found = await asyncio.to_thread(self.list_files)
        now_s = self.clock.now_s()
        self.since_s = {n: self.since_s[n] if self.present.get(n) == r else now_s for n, r in found.items()}
        self.present = found
        if now_s < self.retry_s:
            return
        for name in self.find_settled(now_s):
            if self.memory.has(name, found[name]):  # another file had the same content
                continue
            if not await self.deal_with(name):
                self.retry_s = self.clock.now_s() + RETRY_S
                return

    def list_files(self) -> dict[str, ReportFile]:
        """Return the directory's own regular files; links and hidden files are ignored."""
        try:
            with os.scandir(self.folder) as entries:
                listed = list(islice(entries, ENTRIES + 1))
        except OSError as error:
            self.notices.say(
                f"{self.folder}: cannot be listed ({error.strerror}); reports in it are sent once it can be"
            )
            return {}
        if len(listed) > ENTRIES:
            self.notices.say(f"{self.folder}: has more than {ENTRIES:,} entries, of which the others are not looked at")
        return {entry.name: report for entry in listed[:ENTRIES] if (report := _look_up(entry)) is not None}

    def find_settled(self, now_s: float) -> list[str]:
        """Return the files that are done and new, oldest first."""
        done = [
            name
            for name, report in self.present.items()
            if now_s - self.since_s[name] >= self.patience_s(name) and not self.memory.has(name, report)
        ]
        return sorted(done, key=lambda name: (self.present[name].changed_ns, name))

    def patience_s(self, name: str) -> float:
        """Return how long a file must not have changed: a raw report may still be being exported."""
        return max(EXPORT_S, self.settle_s) if name.endswith(NSYS_REPORTS) else self.settle_s

    async def deal_with(self, name: str) -> bool:
        """Send one file and record that it was sent; return whether to go on with others."""
        report, path = self.present[name], self.folder / name
        try:
            if not self.is_exported(path):
                await self.ship(path)
        except DaemonError as error:
            self.notices.say(f"{path} waits: {error}")
            if error.passing:
                return False
            self.counts["refused"] += 1
        except DeepProfError as error:
            self.counts["unreadable"] += 1
            self.notices.say(str(error))
        except Exception as error:  # a bug that this file triggers: others are still sent
            log.exception("source-failed", extra={"path": str(path)})
            self.counts["unreadable"] += 1
            self.notices.say(f"{path} is left out, which has met a bug ({type(error).__name__}: {error})")
        self.remember(name, report)
        return True

    def is_exported(self, path: Path) -> bool:
        """Return whether a raw report is there as a database too."""
        return path.name.endswith(NSYS_REPORTS) and path.with_suffix(DATABASE).name in self.present

    async def ship(self, path: Path) -> None:
        """Read and send one file. Raises `DeepProfError`."""
        try:
            shipment = await asyncio.to_thread(read_report, path, self.job)
        except OSError as error:
            raise TraceError(path, f"cannot be read: {error.strerror}", "check its permissions") from error
        if shipment is None:
            self.counts["other"] += 1
            return
        records = await self.send(shipment)
        self.counts.update(reports=1, records=records)
        for beside in shipment.covered:
            if beside.name in self.present:
                self.remember(beside.name, self.present[beside.name])

    def remember(self, name: str, report: ReportFile) -> None:
        """Record that a file was handled."""
        try:
            self.memory.add(name, report, self.present)
        except (OSError, DeepProfError) as error:
            self.notices.say(f"cannot write down what was sent: {error}; another agent would send it again")


def _look_up(entry: os.DirEntry[str]) -> ReportFile | None:
    """Return an entry's report, None if it is hidden, empty or no regular file."""
    try:
        if entry.name.startswith(".") or not entry.is_file(follow_symlinks=False):
            return None
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return None
    return ReportFile(found.st_size, found.st_mtime_ns) if found.st_size else None
