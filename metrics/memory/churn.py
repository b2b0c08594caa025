"""Calls for memory of the driver in iterations: a steady loop whose allocator caches makes none.

The earlier half of the iterations is left out: in it the cache may fill. A call names no device: it counts for that on
which its thread launched last, or else for the only one of its process.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.trace import Trace
from deepprof.metrics.breakdown.long_calls import ALLOCATOR
from deepprof.metrics.contexts.slices import find_open
from deepprof.metrics.host import read_launches
from deepprof.metrics.loop import Loop
from deepprof.metrics.memory.device_memory import DeviceMemory
from deepprof.metrics.memory.floors import begins
from deepprof.metrics.memory.owners import LINE, name_contexts
from deepprof.metrics.names import rows_named
from deepprof.metrics.selection.thread_spans import NO_NUMBER, THREAD

Int64s = npt.NDArray[np.int64]


class _AllocatorChurn(Struct, frozen=True, kw_only=True):
    """Calls for memory of the driver per later iteration: how many, for how long; in how many iterations they occur."""

    calls: float
    time_ns: float
    affected: int
    iterations: int


def measure_churn(loop: Loop, trace: Trace) -> _AllocatorChurn | None:
    """Return the calls for memory of the loop's device in the later half of the usual iterations that others follow.

    None where there are no such iterations, or no runtime calls were recorded.
    """
    begin = _begins_of_later(loop, trace)
    many = len(begin) - 1
    if many < 1 or not (trace.host_events["category"] == "runtime").any():
        return None
    rows = _find_calls(trace, begin, loop.device)
    at = np.searchsorted(begin, rows["start_ns"].to_numpy(), side="right") - 1
    return _AllocatorChurn(
        calls=rows.height / many,
        time_ns=float((rows["end_ns"] - rows["start_ns"]).sum()) / many,
        affected=len(np.unique(at)),
        iterations=many,
    )


def _begins_of_later(loop: Loop, trace: Trace) -> Int64s:
    """Return the begins of the later half of the usual iterations, and of the one behind them."""
    begin = begins(loop, trace)[1]
    return begin[(len(begin) - 1) // 2 :] if len(begin) > 1 else begin[:0]


def _find_calls(trace: Trace, begin: Int64s, device: int) -> pl.DataFrame:
    """Return the calls for memory of a device from the first to the last of sorted times, the outermost ones.

    A recorder of both has the driver's call within the runtime's.
    """
    calls = trace.host_events.filter((pl.col("category") == "runtime") & pl.col("end_ns").is_not_null())
    found = rows_named(calls, trace.names, ALLOCATOR).filter(pl.col("start_ns").is_between(begin[0], begin[-1] - 1))
    ordered = found.sort("start_ns", "end_ns", descending=[False, True], maintain_order=True)
    ends = pl.col("end_ns").cum_max().shift(1).over("process", "thread")
    outer = ordered.filter((pl.col("start_ns") >= ends).fill_null(value=True))
    return outer.filter(_find_devices(trace, outer) == device) if outer.height else outer


def _find_devices(trace: Trace, calls: pl.DataFrame) -> pl.Series:
    """Return the device that each of the calls, sorted by start, is about; null: unknown."""
    events = trace.device_events.drop_nulls("correlation").unique("correlation").select("correlation", "device")
    launches = read_launches(trace).join(events, on="correlation").select(*_key(), "device", start_ns="launch_ns")
    if launches.is_empty():
        only = trace.device_events["device"].unique()
        return pl.Series([only[0] if len(only) == 1 else None] * calls.height, dtype=pl.UInt16)
    own = launches.group_by("process").agg(only=pl.col("device").first(), many=pl.col("device").n_unique())
    known = calls.select(*_key(), "start_ns").join_asof(
        launches.sort("start_ns"), on="start_ns", by=list(THREAD), check_sortedness=False
    )
    placed = known.join(own.filter(pl.col("many") == 1), on="process", how="left", maintain_order="left")
    return placed.select(pl.coalesce("device", "only")).to_series()


def _key() -> list[pl.Expr]:
    """Return process and thread; those that are not recorded are one."""
    return [pl.col(name).fill_null(NO_NUMBER) for name in THREAD]


def find_churn_place(memory: DeviceMemory) -> dict[str, object] | None:
    """Return `function`, `file`, `line` and `operator` in which they use most time; None where none is available."""
    tree, loop = memory.known.tree, memory.loop
    if tree is None or loop is None or not len(begin := _begins_of_later(loop, memory.known.trace)):
        return None
    calls = _find_calls(memory.known.trace, begin, loop.device)
    row = find_open(tree.slices, calls.select("process", "thread", time_ns="start_ns"))
    places = name_contexts(tree)[np.where(row < 0, tree.contexts.height, np.append(tree.of_slices, 0)[row])]
    spent = places.with_columns(ns=calls["end_ns"] - calls["start_ns"]).drop_nulls("operator")
    most = spent.group_by(*LINE, "operator", maintain_order=True).agg(pl.col("ns").sum())
    ordered = most.sort("ns", descending=True, maintain_order=True).drop("ns")
    return None if ordered.is_empty() else ordered.row(0, named=True)
