"""What a program does, step by step. All times are drawn before it is played, so that a cause can be left out alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from benchmarks.unseen.vocabulary import BLOCKED_CALL, HOST_WORK

__all__ = [
    "BACKWARD",
    "COMMUNICATION_STREAM",
    "COPY_STREAM",
    "MAIN",
    "MAIN_STREAM",
    "OTHER",
    "Call",
    "Close",
    "Copy",
    "Join",
    "Launch",
    "Mark",
    "Meet",
    "Open",
    "Program",
    "Replay",
    "Shown",
    "Step",
    "Sync",
    "Work",
]

MAIN, BACKWARD, OTHER = 0, 1, 2  # threads of a process
MAIN_STREAM, COPY_STREAM, COMMUNICATION_STREAM = 7, 20, 24
Shown = Literal["nothing", "operator", "loader", "range", "frame", "system"]


@dataclass(frozen=True, slots=True)
class Work:
    """Time of the host: `shown` is how a recorder sees it, `holder` what another thread does that makes it wait."""

    ns: int
    name: str = ""
    shown: Shown = "nothing"
    cause: str = HOST_WORK
    thread: int = MAIN
    holder: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel: `slow_ns` is what its call needs beyond the usual, `late_ns` how late it is handed to the device."""

    kernel: str
    ns: int
    op: str = ""
    before_ns: int = 2_500
    call_ns: int = 4_000
    after_ns: int = 1_000
    slow_ns: int = 0
    late_ns: int = 0
    slow_cause: str = BLOCKED_CALL
    thread: int = MAIN
    stream: int = MAIN_STREAM
    device: int = 0


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy; the host waits for the end of a `blocking` one, which `cause` states why, and for pageable ones."""

    direction: str
    nbytes: int
    ns: int
    pinned: bool = True
    blocking: bool = False
    op: str = "aten::copy_"
    call_ns: int = 5_000
    slow_ns: int = 0
    stream: int = MAIN_STREAM
    device: int = 0


@dataclass(frozen=True, slots=True)
class Replay:
    """One launch of a graph of kernels, each with its name and time."""

    kernels: tuple[tuple[str, int], ...]
    call_ns: int = 12_000
    graph: int = 3


@dataclass(frozen=True, slots=True)
class Call:
    """A call that launches nothing; one that `drains` waits until the device is idle, then takes `ns`."""

    name: str
    ns: int
    cause: str
    drains: bool = False
    thread: int = MAIN


@dataclass(frozen=True, slots=True)
class Sync:
    """The host waits for all work of the device."""

    name: str = "cudaStreamSynchronize"
    after_ns: int = 5_000


@dataclass(frozen=True, slots=True)
class Open:
    """The begin of a range, or of an operator that holds others."""

    name: str
    operator: bool = False
    thread: int = MAIN


@dataclass(frozen=True, slots=True)
class Close:
    """The end of the innermost range of its thread."""

    thread: int = MAIN


@dataclass(frozen=True, slots=True)
class Join:
    """One stream waits for another; the host does not."""

    waiting: int = MAIN_STREAM
    awaited: int = COMMUNICATION_STREAM


@dataclass(frozen=True, slots=True)
class Meet:
    """A collective of all processes: each waits in its kernel until the last one is there, then `ns` pass."""

    ns: int
    name: str = "AllReduce_Sum_bf16_RING_LL"
    call_ns: int = 9_000


@dataclass(frozen=True, slots=True)
class Mark:
    """An iteration begins here, which no one records."""


Step = Work | Launch | Copy | Replay | Call | Sync | Open | Close | Join | Meet | Mark


@dataclass(frozen=True)
class Program:
    """What one process does; `start_ns` is how long after the first one it begins, `device` where its work runs."""

    steps: tuple[Step, ...]
    device: int = 0
    start_ns: int = 0
    late: bool = False
    threads: tuple[int, ...] = field(default=(0, 311, 977))
