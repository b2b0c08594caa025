"""The identity of a process: the lines that a collector sends first, and the socket of the agent of its node."""

from __future__ import annotations

import os
import socket
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deepprof.collectors.live.packets import VERSION

HELLO_NBYTES, VALUE_CHARS, COMMAND_CHARS = 16 << 10, 512, 1024
SOCKET, DAEMON_SOCKET = "deepprof/agent.sock", "deepprof/deepprof.sock"
SYSTEM = Path("/run")

PLACES = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "TORCHELASTIC_RUN_ID"),
    *("SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_STEP_ID"),
    *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "PMIX_RANK", "MPI_LOCALRANKID"),
    *("JOB_COMPLETION_INDEX", "JOB_NAME", "POD_NAME", "HOSTNAME", "NODE_RANK"),
    *("DEEPPROF_JOB", "DEEPPROF_RANK", "DEEPPROF_WORLD_SIZE", "CUDA_VISIBLE_DEVICES"),
)
"""Environment variables from which the agent takes a job, a rank and the number of ranks."""


def find_socket(environ: Mapping[str, str] | None = None, system: Path = SYSTEM) -> Path:
    """Return where the agent listens: DEEPPROF_SOCKET, else a socket of the user's session, of the system, or at home.

    It is the system's if the agent or the daemon has a socket there. Whether a process listens is not checked.
    """
    variables = os.environ if environ is None else environ
    if said := variables.get("DEEPPROF_SOCKET"):
        return Path(said)
    if runtime := variables.get("XDG_RUNTIME_DIR"):
        return Path(os.path.abspath(runtime)) / SOCKET
    if any((system / socket_path).exists() for socket_path in (SOCKET, DAEMON_SOCKET)):
        return system / SOCKET
    return Path(variables.get("HOME") or Path.home()) / ".local/state" / SOCKET


@dataclass(frozen=True, slots=True)
class CollectorIdentity:
    """A collector in this process. `stand_in`: operators are sent instead of kernels.

    `variables` override the environment's; `session` is random and stays the same over a process's life.
    """

    collector: str
    stand_in: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    session: str = field(default_factory=lambda: uuid.uuid4().hex)

    def hello(self, *, continues: bool = False) -> bytes:
        """Return HELLO's payload, of 16 KiB at most; `continues`: it is not this process's first connection."""
        values = {"version": str(VERSION), "pid": str(os.getpid()), "start": _read_start(), "session": self.session}
        values |= {"collector": self.collector, "format": self.collector, "command": _read_command()}
        values |= {"stand_in": "1"} if self.stand_in else {}
        values |= {"continues": "1"} if continues else {}
        environ = {**os.environ, **self.variables}
        values |= {f"env:{name}": environ[name][:VALUE_CHARS] for name in PLACES if environ.get(name)}
        values.setdefault("env:HOSTNAME", socket.gethostname())
        return _cut("".join(f"{key}={_one_line(value)}\n" for key, value in values.items()).encode("utf-8", "replace"))


def describe(job: str | None, rank: int | None, world_size: int | None) -> Mapping[str, str]:
    """Return the given job, rank and world size as variables the agent reads; torch.distributed may know the rank."""
    group = sys.modules.get("torch.distributed")
    if rank is None and group is not None and group.is_available() and group.is_initialized():
        rank, world_size = group.get_rank(), world_size or group.get_world_size()
    given = {"DEEPPROF_JOB": job, "DEEPPROF_RANK": rank, "DEEPPROF_WORLD_SIZE": world_size}
    return {name: str(value) for name, value in given.items() if value is not None}


def _cut(lines: bytes) -> bytes:
    """Return as many whole lines as HELLO has room for."""
    return lines if len(lines) <= HELLO_NBYTES else lines[: lines.rindex(b"\n", 0, HELLO_NBYTES) + 1]


def _one_line(text: str) -> str:
    """Return `text` without line breaks."""
    return text.replace("\r", " ").replace("\n", " ").replace("\0", " ")


def _read_start() -> str:
    """Return when this process started, in clock ticks since boot; a pid is reused, a pid with its start is not."""
    try:
        return Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return "0"


def _read_command() -> str:
    try:
        words = Path("/proc/self/cmdline").read_bytes()
    except OSError:
        return ""
    return words.rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")[:COMMAND_CHARS]
