"""Parts of a trace: iterations of a loop, a layer of the model, or kernels by their number in order of launch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.kept_rows import RowMarks
from deepprof.collectors.trace import Trace
from deepprof.metrics.annotation.trace_annotation import TraceAnnotation
from deepprof.metrics.contexts.paths import spread
from deepprof.metrics.contexts.slices import HostSlices, find_open
from deepprof.metrics.host import read_launches
from deepprof.metrics.loop import Loop
from deepprof.metrics.operators import is_stand_in
from deepprof.metrics.selection.marks import find_launchers, mark_nothing, mark_time, start_in, with_launchers
from deepprof.metrics.selection.thread_spans import lie_in, merge_spans
from deepprof.metrics.spans import Spans, union

Bools = npt.NDArray[np.bool_]

STREAM = ("stream",)

Int64s = npt.NDArray[np.int64]

KERNELS = ("kernel", "graph")


def find_iterations(loop: Loop, first: int | None, last: int | None) -> Bools:
    """Return which iterations of a loop are numbered `first` ≤ n < `last`."""
    index = loop.iterations["index"].to_numpy()
    return (index >= (first or 0)) & (index < (np.iinfo(np.int64).max if last is None else last))


def find_spans(loop: Loop, chosen: Bools) -> Spans:
    """Return the time of chosen iterations on the device, each until the next one starts."""
    table = loop.iterations
    start = table["start_ns"].to_numpy()
    return union(start[chosen], (start + (table["busy_ns"] + table["idle_ns"]).to_numpy())[chosen])


def mark_iterations(
    trace: Trace, loop: Loop, first: int | None, last: int | None, recorded: Trace | None = None
) -> RowMarks | None:
    """Return what belongs to the iterations numbered `first` ≤ n < `last` of a loop; None where there are none.

    On all devices of the rank it is what begins in an iteration, which lasts until the next one starts, or to its own
    end where none follows directly. On the host an iteration lasts from the launch of its first kernel to that of the
    next one; what launched its work at another time belongs to it, too. `recorded` is the trace as it was read, if
    operators were made its kernels since (CPU fallback): the rows are then its own.
    """
    chosen = find_iterations(loop, first, last)
    if not chosen.any():
        return None
    device = find_spans(loop, chosen)
    if recorded is not None and is_stand_in(trace):
        return mark_time(recorded, start_in(device, recorded.device_events["start_ns"]), device, device)
    events = start_in(device, trace.device_events["start_ns"])
    return with_launchers(trace, mark_time(trace, events, device, _find_host_spans(trace, loop, chosen)))


def _find_host_spans(trace: Trace, loop: Loop, chosen: Bools) -> Spans:
    """Return the time of chosen iterations on the host; that of the device where no launch is available.

    An iteration that no other follows ends there with the last launch of its work.
    """
    table = loop.iterations
    start, end = table["start_ns"].to_numpy(), (table["start_ns"] + table["busy_ns"] + table["idle_ns"]).to_numpy()
    launched = trace.device_events.filter(pl.col("device") == loop.device).join(
        read_launches(trace).select("correlation", "launch_ns", "launched_ns"), on="correlation", maintain_order="left"
    )
    at = np.searchsorted(start, launched["start_ns"].to_numpy(), side="right") - 1
    inside = (at >= 0) & (launched["start_ns"].to_numpy() < np.append(end, 0)[at])
    main = (
        inside
        & (launched["stream"] == loop.stream).to_numpy()
        & launched["activity"].is_in(["kernel", "graph"]).to_numpy()
    )
    begin, until = start.copy(), end.copy()
    begins, ends = launched["launch_ns"].to_numpy(), launched["launched_ns"].to_numpy()
    rows, which = np.unique(at[main], return_index=True)
    begin[rows] = begins[main][which]
    latest = np.full(len(start), -1)
    np.maximum.at(latest, at[inside], ends[inside])
    until[latest >= 0] = latest[latest >= 0]
    followed = np.flatnonzero(end[:-1] == start[1:])
    until[followed] = begin[followed + 1]
    return union(begin[chosen], np.maximum(until, begin + 1)[chosen])


def list_layers(known: TraceAnnotation | None) -> list[str]:
    """Return the paths of the layers of a trace."""
    return [] if known is None or known.layers is None else known.layers.write_paths()[1:]


def mark_layer(known: TraceAnnotation | None, path: str, recorded: Trace) -> RowMarks | None:
    """Return what worked for the layer of a path and for those below it; None where there is none.

    `recorded` is the trace whose rows are marked: that of `known`, or the one that was read, if operators were made its
    kernels since (CPU fallback).
    """
    if known is None or known.layers is None or path not in list_layers(known):
        return None
    layers = known.layers
    named = np.array([False, *(each == path for each in layers.write_paths()[1:])])
    found = spread(named, np.maximum(layers.parent, 0), layers.depth)
    marks = dict(mark_nothing(recorded))
    events = found[layers.of_events]
    if not is_stand_in(known.trace):
        marks["device_events"] = events
    if known.tree is not None and len(layers.of_slices):
        return {**marks, **_mark_host(recorded, known.tree.slices, found[layers.of_slices])}
    if is_stand_in(known.trace):
        return marks | {"host_events": _mark_operators(recorded, known.trace, events)}
    return marks | {"host_events": find_launchers(recorded, events)}


def _mark_host(trace: Trace, slices: HostSlices, of_layer: Bools) -> RowMarks:
    """Return what slices of a layer are on the host, and what happened in memory while they were open."""
    rows, marks = slices.rows.filter(pl.Series(of_layer, dtype=pl.Boolean)), mark_nothing(trace)
    for table, column in (("host_events", "event"), ("annotations", "annotation")):
        marks[table][rows[column].drop_nulls().to_numpy()] = True
    memory = (
        np.append(of_layer, False)[find_open(slices, trace.memory_events)]
        if trace.memory_events.height
        else marks["memory_events"]
    )
    return {"host_events": marks["host_events"], "annotations": marks["annotations"], "memory_events": memory}


def _mark_operators(recorded: Trace, trace: Trace, events: Bools) -> Bools:
    """Return the host events within the operators that were made the marked kernels of a trace."""
    kernels = trace.device_events.filter(pl.Series(events, dtype=pl.Boolean))
    rows = recorded.host_events.with_columns(stream=pl.col("thread").fill_null(0))
    return lie_in(rows, merge_spans(kernels, STREAM), STREAM)


def number_kernels(trace: Trace) -> Int64s:
    """Return for every device event how many kernels of its device were launched before it: of a kernel its number.

    A kernel without a launch in the trace counts as launched when it began. Of those launched at once, as by a graph,
    the first to begin comes first.
    """
    rows = _read_launched(trace).with_columns(kernel=pl.col("activity").is_in(KERNELS).cast(pl.Int64))
    ordered = rows.sort("device", pl.coalesce("launch_ns", "start_ns"), "start_ns", "event")
    before = ordered.with_columns(number=pl.col("kernel").cum_sum().over("device") - pl.col("kernel"))
    return before.sort("event")["number"].to_numpy()


def _read_launched(trace: Trace) -> pl.DataFrame:
    """Return the device events with `event`, their row, and begin and end of the call that launched each, or null."""
    launches = read_launches(trace).select("correlation", "launch_ns", "launched_ns")
    return trace.device_events.with_row_index("event").join(
        launches, on="correlation", how="left", maintain_order="left"
    )


def count_kernels(trace: Trace) -> int:
    """Return how many kernels the device has that ran most of them."""
    kernels = trace.device_events.filter(pl.col("activity").is_in(KERNELS))
    return int(kernels.group_by("device").len()["len"].max() or 0)  # type: ignore[arg-type]


def mark_kernels(trace: Trace, first: int | None, last: int | None) -> RowMarks | None:
    """Return the kernels numbered `first` ≤ n < `last`, None where there are none.

    A copy, memset or wait goes with the kernel that is launched next on its device. Of the host it is what it did from
    the first of their launches to the last.
    """
    number = number_kernels(trace)
    kept = (number >= (first or 0)) & (number < (np.iinfo(np.int64).max if last is None else last))
    kernels = trace.device_events["activity"].is_in(KERNELS).to_numpy()
    if not (kept & kernels).any():
        return None
    events = _read_launched(trace).filter(pl.Series(kept, dtype=pl.Boolean))
    start, end = pl.col("start_ns"), pl.max_horizontal("end_ns", pl.col("start_ns") + 1)
    begin, until = pl.col("launch_ns").min(), pl.max_horizontal("launched_ns", pl.col("launch_ns") + 1).max()
    spans = events.group_by("device").agg(
        start=start.min(), end=end.max(), begin=pl.coalesce(begin, start.min()), until=pl.coalesce(until, end.max())
    )
    device, host = (
        union(spans[one].to_numpy(), spans[other].to_numpy()) for one, other in (("start", "end"), ("begin", "until"))
    )
    return mark_time(trace, kept, device, host)
