"""What the agent collects next to the processes that connect to it: PyTorch's windows, a growing file, reports."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from deepprof.live.agent.identity import CollectorRun
from deepprof.live.agent.job_names import clean_name
from deepprof.live.agent.kineto.datagrams import find_address
from deepprof.live.agent.kineto.kineto_source import KinetoSource
from deepprof.live.agent.kineto.schedule import WindowSchedule
from deepprof.live.agent.kineto.window_folder import WindowFolder
from deepprof.live.agent.notices import NoticeLog
from deepprof.live.agent.rank_spool import RankSpool
from deepprof.live.agent.reports import ReportMemory, ReportSource, sender_to
from deepprof.live.agent.rpd.rpd_source import RpdSource
from deepprof.live.client.endpoint import Endpoint

SOCKETS = "KINETO_IPC_SOCKET_DIR"
WINDOWS, SENT = "kineto-windows", "reports-sent.json"


class AgentSource(Protocol):
    """A source, as a task of the agent."""

    async def run(self) -> None:
        """Collect until cancelled, or until there is nothing more. Raises `DeepProfError` where it cannot."""

    def state(self) -> dict[str, Any]:
        """Return its state; `processes` and `waiting` show whether it is at work."""
        ...


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Which sources are wanted. `job` is the job of what names none itself; without it a file's own name is used."""

    kineto: WindowSchedule | None = None
    tail: Path | None = None
    watch: Path | None = None
    job: str | None = None


def make_sources(
    source_options: SourceOptions,
    home: Path,
    endpoint: Endpoint,
    open_rank: Callable[[CollectorRun], RankSpool],
    tell: Callable[[str], None],
) -> list[AgentSource]:
    """Return the sources; they keep what they need in `home`. Raises `UsageError`."""
    sources: list[AgentSource] = []
    notices = NoticeLog(tell)
    if source_options.kineto is not None:
        address = find_address(os.environ.get(SOCKETS) or str(home))
        sources.append(
            KinetoSource(
                address, WindowFolder(home / WINDOWS), open_rank, notices, source_options.kineto, source_options.job
            )
        )
    if source_options.tail is not None:
        sources.append(
            RpdSource(
                source_options.tail, source_options.job or _name_after(source_options.tail.stem), open_rank, notices
            )
        )
    if source_options.watch is not None:
        job = source_options.job or _name_after(source_options.watch.resolve().name)
        send = sender_to(endpoint, notices)
        sources.append(ReportSource(source_options.watch, job, send, notices, ReportMemory(home / SENT)))
    return sources


def _name_after(name: str) -> str:
    """Return the name of a job after that of a file or directory, which may have characters that no job's name has."""
    return clean_name(name) or "job"
