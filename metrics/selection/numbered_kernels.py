"""Kernels by their number: each device's are counted from 0 on, in order of their launch (PASTA's START_GRID_ID)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.kept_rows import RowMarks
from deepprof.collectors.trace import Trace
from deepprof.metrics.host import read_launches
from deepprof.metrics.selection.marks import mark_time
from deepprof.metrics.spans import union

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]

KERNELS = ("kernel", "graph")


def number_kernels(trace: Trace) -> Int64s:
    """Return for each device event how many kernels of its device were launched before it: of a kernel its number.

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
