"""The processes that request windows: each with the window it was requested and the rank it feeds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from deepprof.live.agent.kineto.window_folder import WindowFile
from deepprof.live.agent.rank_places import VARIABLES, RankPlace, find_place
from deepprof.live.agent.traces import EARLIEST, RankReceiver

MAX_KINETO_PROCESSES = 4096
SILENT_S = 60.0  # a process asks each 5 s
STOPPED_S = 600.0  # a process that exists and does not ask may be stopped under a debugger
PROC_NBYTES = 1 << 20


@dataclass(slots=True)
class TraceWindow:
    """A window that a process was requested: when it ends, and when to give it up (agent's clock)."""

    token: str
    end_s: float
    limit_s: float
    seen: WindowFile | None = None


@dataclass(slots=True)
class KinetoProcess:
    """A process under KINETO_USE_DAEMON=1; `birth` distinguishes it from a later one with the same pid."""

    pid: int
    birth: int
    heard_s: float
    job: str = ""
    command: tuple[str, ...] = ()
    place: RankPlace = field(default_factory=RankPlace)
    window: TraceWindow | None = None
    last_start_s: float | None = None
    rank: RankReceiver | None = None
    refused: bool = False
    watermark_ns: int = EARLIEST
    windows: int = 0
    late: int = 0
    unsent: int = 0


@dataclass(slots=True)
class KinetoProcesses:
    """All processes that ask, at most `MAX_KINETO_PROCESSES`."""

    proc: Path = Path("/proc")
    found: dict[int, KinetoProcess] = field(default_factory=dict)

    def __iter__(self) -> Iterator[KinetoProcess]:
        """Yield each one; they may be forgotten meanwhile."""
        return iter(list(self.found.values()))

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.found)

    def hear(self, pid: int, now_s: float) -> KinetoProcess | None:
        """Return the process that has sent something; None if there are too many.

        For a pid that another process has now the former process is returned until it is forgotten: see `is_other`.
        """
        known = self.found.get(pid)
        if known is not None:
            known.heard_s = now_s
            return known
        if len(self.found) >= MAX_KINETO_PROCESSES:
            return None
        process = KinetoProcess(pid, read_birth(pid, self.proc), now_s)
        process.command, process.place = read_command(pid, self.proc), read_place(pid, self.proc)
        self.found[pid] = process
        return process

    def is_other(self, process: KinetoProcess) -> bool:
        """Return whether the process has ended; another one may have its pid."""
        return read_birth(process.pid, self.proc) != process.birth

    def is_gone(self, process: KinetoProcess, now_s: float) -> bool:
        """Return whether nothing more comes from it: it ended, another has its pid, or it has been silent for long."""
        silent_s = now_s - process.heard_s
        if self.is_other(process) or silent_s > STOPPED_S:
            return True
        return silent_s > SILENT_S and not process.birth  # in another namespace: only its silence shows

    def forget(self, process: KinetoProcess) -> None:
        """Forget a process."""
        self.found.pop(process.pid, None)


def read_birth(pid: int, proc: Path = Path("/proc")) -> int:
    """Return when a process began, in ticks since the machine's start; 0 if it does not exist."""
    text = _read_proc(proc / str(pid) / "stat")
    fields = text.rpartition(b")")[2].split()  # its name may hold anything, also a bracket
    return int(fields[19]) if len(fields) > 19 and fields[19].isdigit() else 0


def read_command(pid: int, proc: Path = Path("/proc")) -> tuple[str, ...]:
    """Return what a process runs, word by word; nothing where that cannot be read."""
    return tuple(_read_proc(proc / str(pid) / "cmdline").decode("utf-8", "replace").split("\0")[:-1])


def read_place(pid: int, proc: Path = Path("/proc")) -> RankPlace:
    """Return the rank and job that the environment of a process names."""
    text = _read_proc(proc / str(pid) / "environ").decode("utf-8", "replace")
    pairs = (entry.partition("=")[::2] for entry in text.split("\0"))
    return find_place({name: value for name, value in pairs if name in VARIABLES})


def _read_proc(path: Path) -> bytes:
    """Return the content of a file of /proc, nothing where it cannot be read."""
    try:
        with open(os.fspath(path), "rb") as file:
            return file.read(PROC_NBYTES)
    except OSError:
        return b""
