"""What an iteration may request from the machine: one small record per kind of step."""

from __future__ import annotations

from dataclasses import dataclass

from deepprof.simulation.kernels import Launch

__all__ = [
    "COMMUNICATION_STREAM",
    "MAIN_STREAM",
    "Allocate",
    "Call",
    "CapturedLaunch",
    "Close",
    "Copy",
    "Fill",
    "GraphReplay",
    "HostOperator",
    "Join",
    "Launch",
    "Open",
    "Pause",
    "Reduce",
    "Release",
    "Step",
    "Wait",
]

MAIN_STREAM = 7  # CUPTI's number of PyTorch's default stream
COMMUNICATION_STREAM = 24


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy; pageable ones make the host wait until they are done. Without `op` it belongs to the open operator."""

    direction: str  # HtoD, DtoH or DtoD
    nbytes: int
    pinned: bool
    stream: int = MAIN_STREAM
    op: str = "aten::copy_"


@dataclass(frozen=True, slots=True)
class Fill:
    """A memset on the main stream."""

    nbytes: int


@dataclass(frozen=True, slots=True)
class HostOperator:
    """An operator that runs on the host alone."""

    op: str
    ns: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Plain Python on the main thread, which the profiler does not record."""

    ns: int


@dataclass(frozen=True, slots=True)
class Call:
    """A runtime or driver call of the main thread; one that drains waits until the device is idle, then takes `ns`."""

    name: str
    ns: int
    drains: bool = False


@dataclass(frozen=True, slots=True)
class Open:
    """The start of an annotated range, or of an operator that holds others."""

    name: str
    category: str = "user_annotation"


@dataclass(frozen=True, slots=True)
class Close:
    """The end of the innermost open range."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The host waits for a stream."""

    stream: int = MAIN_STREAM


@dataclass(frozen=True, slots=True)
class CapturedLaunch:
    """A launch that is only captured into a graph: the call is made, nothing runs."""

    launch: Launch


@dataclass(frozen=True, slots=True)
class GraphReplay:
    """One launch of a whole graph, whose kernels share its correlation; `first_node` is its first kernel's node."""

    launches: tuple[Launch, ...]
    graph: int
    first_node: int = 0


@dataclass(frozen=True, slots=True)
class Reduce:
    """An all-reduce of `elements` bfloat16 values over all ranks, `ns` long once every rank has arrived."""

    elements: int
    ns: int


@dataclass(frozen=True, slots=True)
class Join:
    """The main stream waits for the communication stream; the host does not."""


@dataclass(frozen=True, slots=True)
class Allocate:
    """Device memory allocated by PyTorch's allocator; a kept block is never released."""

    nbytes: int
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """Release the latest memory that is not kept."""


Step = (
    Launch
    | Copy
    | Fill
    | HostOperator
    | Pause
    | Call
    | Open
    | Close
    | Wait
    | CapturedLaunch
    | GraphReplay
    | Reduce
    | Join
    | Allocate
    | Release
)
