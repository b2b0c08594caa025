"""Some iterations of a loop, by their numbers: each until the next one starts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.kept_rows import RowMarks
from deepprof.collectors.trace import Trace
from deepprof.metrics.host import read_launches
from deepprof.metrics.loop import Loop
from deepprof.metrics.operators import is_stand_in
from deepprof.metrics.selection.marks import mark_time, start_in, with_launchers
from deepprof.metrics.spans import Spans, union

Bools = npt.NDArray[np.bool_]


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
    """Return the time of chosen iterations on the host; that of the device where no launch is known.

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
