"""Devices that several processes share, for people and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from deepprof.metrics.sharing.devices import SharedDevice
from deepprof.metrics.sharing.shares import ShareOfDevice
from deepprof.plurals import counted
from deepprof.render.plain import shorten
from deepprof.render.units import ABSENT, format_duration, format_ratio
from deepprof.results.analysis_result import AnalysisResult

if TYPE_CHECKING:
    from deepprof.render.page import TextPage

SHOWN = 8  # processes of a device; JSON has all
INDENT = 2
MEANS = ("turns_ns", "slowed_ns", "copies_ns", "copies_slowed_ns", "rest_ns")
NAME = 12  # characters of a process' name
MANNERS = {
    "in turn": "their kernels take turns (time-sliced)",
    "at once": "their kernels run at once (MPS, or slices that the recording does not tell apart)",
    "not visible": "their kernels are not seen to meet",
}


class _UtilisationBlock(msgspec.Struct, frozen=True, kw_only=True):
    """How long one process, or several, were present, and how long the device worked in that time."""

    span_ns: int
    busy_ns: int


class _NeighbourBlock(msgspec.Struct, frozen=True, kw_only=True):
    """How long another process works on the device in a mean iteration."""

    rank: int
    device: int
    together_ns: int


class _LossBlock(msgspec.Struct, frozen=True, kw_only=True):
    """One usual iteration, and what it loses to other processes."""

    index: int
    iteration_ns: int
    together_ns: int
    turns_ns: int
    slowed_ns: int
    copies_ns: int
    copies_slowed_ns: int
    lost_ns: int
    stretch_ns: int | None
    rest_ns: int | None


class _ProcessBlock(msgspec.Struct, frozen=True, kw_only=True):
    """One process on a shared device; means are over its usual iterations, null without any."""

    rank: int
    device: int
    stream: int | None
    pid: int | None
    name: str | None
    busy_ns: int
    alone_iteration_ns: int | None
    alone_iterations: int
    together_iteration_ns: int | None
    together_iterations: int
    turns_ns: int | None
    slowed_ns: int | None
    copies_ns: int | None
    copies_slowed_ns: int | None
    rest_ns: int | None
    headroom_ns: int | None
    neighbours: list[_NeighbourBlock]
    iterations: list[_LossBlock]


class SharedDeviceBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A device that several processes have work on."""

    identity: str | None
    manner: str
    alone: _UtilisationBlock
    together: _UtilisationBlock
    processes: list[_ProcessBlock]


def describe_sharing(analysis: AnalysisResult) -> list[SharedDeviceBlock]:
    """Return a block per shared device; none where no two processes share one."""
    return [
        SharedDeviceBlock(
            identity=shared.identity,
            manner=shared.manner,
            alone=_UtilisationBlock(span_ns=shared.alone.span_ns, busy_ns=shared.alone.busy_ns),
            together=_UtilisationBlock(span_ns=shared.together.span_ns, busy_ns=shared.together.busy_ns),
            processes=[_describe_process(each) for each in shared.processes],
        )
        for shared in analysis.sharing
    ]


def _describe_process(share: ShareOfDevice) -> _ProcessBlock:
    means = {name: share.mean_ns(name) for name in MEANS}
    return _ProcessBlock(
        rank=share.rank,
        device=share.device,
        stream=share.stream,
        pid=share.pid,
        name=share.name,
        busy_ns=share.busy_ns,
        alone_iteration_ns=share.alone_ns,
        alone_iterations=share.alone_iterations,
        together_iteration_ns=share.together_ns,
        together_iterations=share.together_iterations,
        headroom_ns=share.headroom_ns,
        neighbours=[
            _NeighbourBlock(rank=each.rank, device=each.device, together_ns=each.together_ns)
            for each in share.neighbours
        ],
        iterations=[_LossBlock(**row) for row in share.losses.iter_rows(named=True)],
        **means,
    )


def print_sharing(analysis: AnalysisResult, page: TextPage) -> None:
    """Print each shared device with a row per process; nothing where no two processes share one."""
    for shared in analysis.sharing:
        page.skip()
        page.line(title(shared), "bold")
        page.table([_list_cells(each) for each in shared.processes[:SHOWN]], indent=INDENT)
        hidden = len(shared.processes) - SHOWN
        if hidden > 0:
            page.line(f"and {hidden:,} more; --format json has all of them", "dim", indent=INDENT)
        page.line(" · ".join(_describe_device(shared)), "dim", indent=INDENT)


def title(shared: SharedDevice) -> str:
    """Return which device is shared by how many processes."""
    numbers = sorted({share.device for share in shared.processes})
    number = f"Device {numbers[0]}" if len(numbers) == 1 else "One device"
    identity = f" ({shared.identity})" if shared.identity else ""
    return f"{number}{identity} is shared by {counted(len(shared.processes), 'process', 'processes')}"


def _list_cells(share: ShareOfDevice) -> dict[str, str]:
    name = f" {shorten(share.name, NAME)}" if share.name else ""
    copies = [share.mean_ns(each) for each in ("copies_ns", "copies_slowed_ns")]
    return {
        "rank": str(share.rank),
        "process": ABSENT if share.pid is None else f"{share.pid}{name}",
        "alone": format_duration(share.alone_ns),
        "together": format_duration(share.together_ns),
        "lost": format_duration(share.headroom_ns),
        "turns": format_duration(share.mean_ns("turns_ns")),
        "slower": format_duration(share.mean_ns("slowed_ns")),
        "copies": format_duration(None if None in copies else sum(each or 0 for each in copies)),
    }


def _describe_device(shared: SharedDevice) -> list[str]:
    """Return how busy the device is with one process and with several, and how their kernels share it."""
    words = []
    for text, part in (("with one process", shared.alone), ("with several", shared.together)):
        if part.span_ns:
            words.append(f"busy {format_ratio(part.ratio)} of {format_duration(part.span_ns)} {text}")
    return [*words, MANNERS[shared.manner]]
