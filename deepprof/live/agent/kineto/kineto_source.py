"""Windows of unmodified PyTorch jobs: a socket for Kineto's requests, and reading the files that it writes."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deepprof.collectors.errors import DeepProfError
from deepprof.collectors.trace import Trace
from deepprof.live.agent.identity import CollectorRun
from deepprof.live.agent.kineto.datagrams import close_datagrams, open_datagrams
from deepprof.live.agent.kineto.handler import KinetoHandler
from deepprof.live.agent.kineto.processes import KinetoProcess, KinetoProcesses, TraceWindow
from deepprof.live.agent.kineto.schedule import WindowSchedule
from deepprof.live.agent.kineto.window_folder import MOST_NBYTES, WindowFile, WindowFolder
from deepprof.live.agent.notices import NoticeLog
from deepprof.live.agent.ranks import ProcessRefusedError
from deepprof.live.agent.traces import RankReceiver, send_trace
from deepprof.live.client.retrying import CLOCK, Clock
from deepprof.live.wire.sent_tables import NOT_SENT

log = logging.getLogger(__name__)

LOOK_S = 0.5
GAP = "duty-cycle"


def read_window(path: Path) -> Trace:
    """Return the trace in a window's file; without a device its operators become kernels. Raises `TraceError`."""
    from deepprof.collectors.importers import read
    from deepprof.metrics.cpu_fallback import stand_in

    trace = read(path)
    return stand_in(trace) or trace


@dataclass(slots=True)
class KinetoSource:
    """Asks each process for a window now and then and gives the records to its rank.

    `address` is a path for the socket, or an abstract name that begins with a null character. `open_rank` raises
    `ProcessRefusedError`. `job` names the job where the process's environment does not.
    """

    address: str
    folder: WindowFolder
    open_rank: Callable[[CollectorRun], RankReceiver]
    notices: NoticeLog
    schedule: WindowSchedule = field(default_factory=WindowSchedule)
    job: str | None = None
    clock: Clock = CLOCK
    unix_s: Callable[[], float] = time.time
    processes: KinetoProcesses = field(default_factory=KinetoProcesses)
    counts: Counter[str] = field(default_factory=Counter)
    handler: KinetoHandler = field(init=False)

    def __post_init__(self) -> None:
        told = (self.processes, self.folder, self.schedule, self.job, self.clock, self.unix_s)
        self.handler = KinetoHandler(*told, self.notices, self.counts)

    async def run(self) -> None:
        """Serve until cancelled; then close everything. Raises `UsageError` if the socket cannot be opened."""
        endpoint, loop = open_datagrams(self.address), asyncio.get_running_loop()
        loop.add_reader(endpoint.fileno(), self.handler.hear, endpoint)
        try:
            while True:
                await self.look()
                await self.clock.sleep(LOOK_S)
        finally:
            loop.remove_reader(endpoint.fileno())
            close_datagrams(endpoint, self.address)
            for process in self.processes:
                self.end(process)
            self.folder.close()

    def state(self) -> dict[str, Any]:
        """Return the state, for the agent's answer."""
        return {
            "source": "kineto",
            "address": self.address.replace("\0", "@"),
            "every_s": self.schedule.every_s,
            "window_ms": self.schedule.window_ms,
            "processes": len(self.processes),
            "waiting": sum(process.window is not None for process in self.processes),
            "counts": dict(self.counts),
            "notices": self.notices.latest,
        }

    async def look(self) -> None:
        """Take windows that are done, and drop processes that are gone."""
        for process in self.processes:
            window = process.window
            if window is not None:
                await self.follow(process, window)
            if process.window is None and self.processes.is_gone(process, self.clock.now_s()):
                self.end(process)

    async def follow(self, process: KinetoProcess, window: TraceWindow) -> None:
        """Take the window's file when it is there and no longer changes; give it up when it is too late."""
        now_s, found = self.clock.now_s(), self.folder.find(window.token)
        still = found is not None and found == window.seen
        window.seen = found
        if found is not None and still and (found.whole or now_s > window.limit_s):
            process.window = None
            await self.take(process, found)
        elif now_s > window.limit_s or (found is None and self.processes.is_gone(process, now_s)):
            process.window = None
            self.miss(process)
        else:
            return
        self.folder.forget(window.token)

    def miss(self, process: KinetoProcess) -> None:
        """Count a window whose file did not come."""
        self.counts["missed"] += 1
        gone = self.processes.is_gone(process, self.clock.now_s())
        if not gone:
            where = f"it may not see {self.folder.path}, have been too busy to begin in time, or another profiler ran"
            self.notices.say(f"process {process.pid} was asked for a window and wrote none: {where}")

    async def take(self, process: KinetoProcess, found: WindowFile) -> None:
        """Read a window and send it; a failure becomes a notice."""
        if found.nbytes > MOST_NBYTES:
            self.notices.say(f"a window of process {process.pid} has {found.nbytes:,} bytes and is left out")
            self.counts["too-large"] += 1
            return
        try:
            trace = await asyncio.to_thread(read_window, found.path)
            await self.send(process, trace)
        except DeepProfError as error:
            self.counts["unreadable"] += 1
            self.notices.say(f"a window of process {process.pid} cannot be read: {error}")
        except ProcessRefusedError as error:
            process.refused = True
            self.counts["not-collected"] += 1
            self.notices.say(f"process {process.pid} is not collected: {error}")
        except Exception as error:  # a bug that this window triggers: other windows are still sent
            log.exception("source-failed", extra={"pid": process.pid})
            self.counts["unreadable"] += 1
            self.notices.say(f"a window of process {process.pid} has met a bug ({type(error).__name__}: {error})")

    async def send(self, process: KinetoProcess, trace: Trace) -> None:
        """Give a window to the process's rank; the time between two windows is a gap."""
        if not trace.accounting.kept:
            self.counts["empty"] += 1
            return
        if process.rank is None:
            process.rank = self.open_rank(identify(process, trace))
        elif process.windows:
            process.rank.gap(GAP)
        given = await send_trace(process.rank, trace, watermark_ns=process.watermark_ns)
        process.windows += 1
        process.late += given.late
        process.unsent += given.unsent
        process.watermark_ns = given.until_ns
        self.counts.update(windows=1, records=given.records, late=given.late)

    def end(self, process: KinetoProcess) -> None:
        """Drop a process, and end its rank."""
        if process.window is not None:
            self.folder.forget(process.window.token)
        if process.rank is not None:
            process.rank.end({"late": process.late} | ({NOT_SENT: process.unsent} if process.unsent else {}))
        self.processes.forget(process)


def identify(process: KinetoProcess, trace: Trace) -> CollectorRun:
    """Return a process's identity for the daemon: the rank of its environment, else of the trace."""
    run = hashlib.sha256(f"{process.pid} {process.birth}".encode()).hexdigest()[:12]
    rank = process.place.rank if process.place.rank is not None else trace.rank
    world_size = process.place.world_size if process.place.world_size is not None else trace.world_size
    return CollectorRun(
        job=process.job,
        collector=f"kineto-{run}",
        rank=rank,
        world_size=world_size,
        format="kineto",
        source=" ".join(process.command),
        notes=trace.notes,
    )
