"""The processes of a command that outlive it, as `sh -c 'train.py &'` leaves one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
STATE, GROUP = 0, 2  # fields of /proc/PID/stat, after the name
OVER = (b"Z", b"X")


def find_remaining(job: str, socket: Path, run: str, proc: Path = PROC) -> list[int]:
    """Return the living processes of our group that the run `run` has started, as `job` and over `socket`.

    A process that has left the group, as a service does, is not found, nor is one of another user.
    """
    wanted = {f"DEEPPROF_JOB={job}".encode(), f"DEEPPROF_RUN={run}".encode()}
    wanted |= {b"DEEPPROF_SOCKET=" + os.fsencode(socket)}
    return sorted(pid for pid in _list_group(os.getpgrp(), proc) if pid != os.getpid() and _has(proc, pid, wanted))


def _list_group(group: int, proc: Path) -> Iterator[int]:
    for name in os.listdir(proc):
        if not name.isdecimal():
            continue
        with suppress(OSError):
            words = (proc / name / "stat").read_bytes().rpartition(b")")[2].split()
            if len(words) > GROUP and words[STATE] not in OVER and words[GROUP] == str(group).encode():
                yield int(name)


def _has(proc: Path, pid: int, wanted: set[bytes]) -> bool:
    """Whether a process was started with all the `wanted` variables."""
    with suppress(OSError):
        return wanted <= set((proc / str(pid) / "environ").read_bytes().split(b"\0"))
    return False
