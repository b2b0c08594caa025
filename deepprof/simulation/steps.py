"""What an iteration may request from the machine: one small record per kind of step."""

from __future__ import annotations

from msgspec import Struct

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


class Copy(Struct, frozen=True):
    """A copy; pageable ones make the host wait until they are done. Without `op` it belongs to the open operator."""

    direction: str  # HtoD, DtoH or DtoD
    nbytes: int
    pinned: bool
    stream: int = MAIN_STREAM
    op: str = "aten::copy_"


class Fill(Struct, frozen=True):
    """A memset on the main stream."""

    nbytes: int


class HostOperator(Struct, frozen=True):
    """An operator that runs on the host alone."""

    op: str
    ns: int


class Pause(Struct, frozen=True):
    """Plain Python on the main thread, which the profiler does not record."""

    ns: int


class Call(Struct, frozen=True):
    """A runtime or driver call of the main thread; one that drains waits until the device is idle, then takes `ns`."""

    name: str
    ns: int
    drains: bool = False


class Open(Struct, frozen=True):
    """The start of an annotated range, or of an operator that holds others."""

    name: str
    category: str = "user_annotation"


class Close(Struct, frozen=True):
    """The end of the innermost open range."""


class Wait(Struct, frozen=True):
    """The host waits for a stream."""

    stream: int = MAIN_STREAM


class CapturedLaunch(Struct, frozen=True):
    """A launch that is only captured into a graph: the call is made, nothing runs."""

    launch: Launch


class GraphReplay(Struct, frozen=True):
    """One launch of a whole graph, whose kernels share its correlation; `first_node` is its first kernel's node."""

    launches: tuple[Launch, ...]
    graph: int
    first_node: int = 0


class Reduce(Struct, frozen=True):
    """An all-reduce of `elements` bfloat16 values over all ranks, `ns` long once every rank has arrived."""

    elements: int
    ns: int


class Join(Struct, frozen=True):
    """The main stream waits for the communication stream; the host does not."""


class Allocate(Struct, frozen=True):
    """Device memory allocated by PyTorch's allocator; a kept block is never released."""

    nbytes: int
    kept: bool = False


class Release(Struct, frozen=True):
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
