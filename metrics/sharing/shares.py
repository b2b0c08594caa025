"""One process on a shared device: what its iterations lose to the others, and how the device runs them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from deepprof.collectors.reprs import in_milliseconds, one_line
from deepprof.collectors.trace import Trace
from deepprof.metrics.iteration_table import find_edited, summarize
from deepprof.metrics.loop import Loop
from deepprof.metrics.sharing.losses import LOSSES, UNTOUCHED, QueuedTime, find_level, measure_losses
from deepprof.metrics.sharing.repeated import Repeated, list_copies, list_kernels, look_beside
from deepprof.metrics.sharing.shared_places import SharedWork
from deepprof.metrics.sharing.work import DeviceWork, OtherWork
from deepprof.metrics.spans import Spans, covered, intersect

# How one device runs the kernels of several processes: one after the other (time-sliced); at once (MPS, or slices of
# the device that the recording does not distinguish); or not visible, because they were never in each other's way.
Manner = Literal["in turn", "at once", "not visible"]
CONTENDED = 0.01  # of the time next to others: with less contention the manner is not visible
TOUCHING = 0.05  # of the contended time: overlap below it is the hand-over between turns
EDGE_NS = 20_000  # of overlap: a shorter one does not show which kernel stood still
TURN_NS = (
    500_000  # shorter than turns, of some 2 ms: kernels as long as those stand still and go on in turn, both of them
)
STOOD_STILL, WENT_ON = 0.8, 0.2  # extra time of a kernel as a share of the overlap
IN_BETWEEN = 0.3  # of the overlap: the most for kernels that neither stood still nor went on


class Neighbour(Struct, frozen=True):
    """Another process on the device: how long it has work there in a mean iteration of this one."""

    rank: int
    device: int
    together_ns: int


class ShareOfDevice(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """One process on a shared device; without a loop `losses` is empty, and values computed from it are None.

    `alone_ns` is the median iteration while no other process works, over `alone_iterations`, `together_ns` while one
    does, over `together_iterations`; `losses` has a row per usual iteration of its longest loop (`losses.LOSSES`).
    `headroom_ns` is what a mean iteration would save without the others: its loss to them on the device, but at most
    the time by which iterations without them are shorter, if there are any. `proven`: launch records show that work was
    queued.
    """

    rank: int
    device: int
    pid: int | None
    name: str | None
    busy_ns: int
    manner: Manner
    neighbours: tuple[Neighbour, ...]
    stream: int | None = None
    losses: pl.DataFrame
    alone_ns: int | None = None
    alone_iterations: int = 0
    together_ns: int | None = None
    together_iterations: int = 0
    headroom_ns: int | None = None
    proven: bool = False

    def __repr__(self) -> str:
        return one_line(self, f"rank {self.rank}", f"device {self.device}", f"busy {in_milliseconds(self.busy_ns)}")

    def mean_ns(self, column: str) -> int | None:
        """Return the mean of a column of `losses`; None without a value."""
        mean = self.losses[column].mean()
        return None if mean is None else round(float(mean))  # type: ignore[arg-type]

    @property
    def longest_ns(self) -> int | None:
        """The longest usual iteration."""
        return max(self.losses["iteration_ns"].to_list(), default=None)


def measure_share(trace: Trace, shared: SharedWork, own: DeviceWork, loop: Loop | None) -> ShareOfDevice:
    """Return what the process of `trace` loses on a shared device; `loop` is its longest there, with its parts."""
    pid, name = _identify(trace)
    beside, others = shared.beside(own.rank), shared.others(own.rank)
    share = ShareOfDevice(
        rank=own.rank,
        device=own.device,
        pid=pid,
        name=name,
        busy_ns=own.busy.total_ns,
        manner="not visible",
        neighbours=tuple(Neighbour(other.rank, other.device, 0) for other in beside),
        losses=pl.DataFrame(schema=LOSSES),
    )
    if loop is None or loop.timeline is None or loop.usual.is_empty():
        return share
    queued = QueuedTime(*loop.timeline.held, proven=loop.timeline.host is not None)
    kernels, copies = list_kernels(trace, loop), list_copies(trace, loop)
    losses = measure_losses(loop.usual, queued, kernels, copies, others)
    manner = judge_manner(kernels, losses, others, own)
    return replace(_describe(share, loop, losses, beside), manner=manner, proven=queued.proven)


def _identify(trace: Trace) -> tuple[int | None, str | None]:
    """Return id and name of the trace's process; if not recorded, the id of the one with most runtime calls."""
    if len(trace.processes) == 1:
        return trace.processes[0].id, trace.processes[0].name
    calls = trace.host_events.filter(pl.col("category") == "runtime")["process"].drop_nulls()
    found = calls.value_counts(sort=True)["process"].head(1).to_list()
    return (found[0] if found else None), None


def _describe(share: ShareOfDevice, loop: Loop, losses: pl.DataFrame, beside: Sequence[DeviceWork]) -> ShareOfDevice:
    whole, together = losses["iteration_ns"].to_numpy(), losses["together_ns"].to_numpy()
    level, touched = find_level(whole, together), whole[together > UNTOUCHED * whole]
    return replace(
        share,
        stream=loop.stream,
        losses=losses,
        alone_ns=level,
        alone_iterations=len(whole) - len(touched),
        together_ns=round(float(np.median(touched))) if len(touched) else None,
        together_iterations=len(touched),
        headroom_ns=find_headroom(losses, level),
        neighbours=tuple(_find_neighbour(loop, other) for other in beside),
    )


def find_headroom(losses: pl.DataFrame, level_ns: int | None) -> int:
    """Return what a mean iteration would save without the others."""
    lost = float(losses["lost_ns"].mean())  # type: ignore[arg-type]
    longer = lost if level_ns is None else float(losses["iteration_ns"].mean()) - level_ns  # type: ignore[arg-type]
    return round(max(0.0, min(lost, longer)))


def _find_neighbour(loop: Loop, other: DeviceWork) -> Neighbour:
    """Return how long another process works in a mean iteration of this one."""
    start = loop.usual["start_ns"].to_numpy()
    within = covered(other.busy, start, start + loop.usual["iteration_ns"].to_numpy())
    return Neighbour(other.rank, other.device, round(float(within.mean())))


def judge_manner(kernels: Repeated, losses: pl.DataFrame, others: OtherWork, own: DeviceWork) -> Manner:
    """Return how the device runs the kernels of this process and of others.

    A kernel that is suspended for another process' turn seems to run on, so that overlap alone does not decide. But
    with turns, one of two kernels makes no progress for as long as the other runs, and the other goes on as if alone;
    if they run at once, both go on, slower."""
    overlap, turns = intersect(own.kernels, others.kernels).total_ns, int(losses["turns_ns"].sum())
    if overlap + turns <= CONTENDED * int(losses["together_ns"].sum()):
        return "not visible"
    if overlap <= TOUCHING * (overlap + turns):
        return "in turn"
    return "in turn" if _stands_still(kernels, others.kernels) else "at once"


def _stands_still(kernels: Repeated, others: Spans) -> bool:
    """Return whether some kernels make no progress next to those of others, while the rest go on as if alone.

    That is seen on kernels that are short for a turn; where all are long, on these.
    """
    beside = look_beside(kernels, others)
    counted = beside.overlap_ns > EDGE_NS
    short = counted & (kernels.end_ns - kernels.start_ns - beside.extra_ns < TURN_NS)
    counted = short if short.any() else counted
    weight, ratio = beside.overlap_ns[counted], beside.extra_ns[counted] / np.maximum(1, beside.overlap_ns[counted])
    between = (ratio > WENT_ON) & (ratio < STOOD_STILL)
    return bool((ratio >= STOOD_STILL).any()) and int(weight[between].sum()) <= IN_BETWEEN * int(weight.sum())


def keep_disturbed(loop: Loop, others: OtherWork) -> Loop:
    """Return the loop with a warm-up that ends before the first iteration that is only slow because of others."""
    rows = loop.iterations
    start, whole = rows["start_ns"].to_numpy(), (rows["busy_ns"] + rows["idle_ns"]).to_numpy()
    touched = covered(others.work, start, start + whole) > UNTOUCHED * whole
    slow = rows["warmup"].to_numpy() & touched & ~find_edited(rows).to_numpy()
    if not slow.any():
        return loop
    iterations = rows.with_columns(warmup=pl.col("warmup") & (pl.int_range(pl.len()) < int(np.argmax(slow))))
    return replace(loop, iterations=iterations, metrics=summarize(iterations))
