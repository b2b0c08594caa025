"""How much device memory every iteration leaves in use: the least in use from its begin to that of the next.

The host allocates, and runs ahead of the device. So iterations are separated by the times at which the host launched
their first kernels, if the trace has them. The least use within an iteration is what remains when all temporary memory
is freed, wherever in the iteration that happens.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.trace import Trace
from deepprof.metrics.loop import Loop
from deepprof.metrics.operators import is_stand_in

Int64s = npt.NDArray[np.int64]

MOST = np.iinfo(np.int64).max
MOST_OF_PROCESS = 1 << 50  # more than any process has: sums of it do not overflow
HOST_MEMORY = -1  # the device number of memory events that belong to no device


class _MemoryFloors(Struct, frozen=True, eq=False):
    """The least memory in use during complete iterations after warm-up, in order.

    `index` numbers the iterations. `absolute`: the recorder wrote totals; otherwise `nbytes` counts from what was
    in use when the recording began.
    """

    index: Int64s
    nbytes: Int64s
    absolute: bool


def find_floors(loop: Loop, trace: Trace) -> _MemoryFloors | None:
    """Return what the iterations leave in use on the loop's device, None where the trace has no memory events."""
    rows = trace.memory_events.filter(pl.col("device") == device_of(loop, trace))
    if not rows.height:
        return None
    absolute = not rows["allocated_nbytes"].null_count()
    in_use = add_up_processes(rows, "allocated_nbytes") if absolute else rows["nbytes"].cum_sum()
    index, begin = begins(loop, trace)
    nbytes, known = floors(rows["time_ns"].to_numpy(), in_use.to_numpy(), begin)
    return _MemoryFloors(index[:-1][known], nbytes[known], absolute)


def add_up_processes(rows: pl.DataFrame, column: str) -> pl.Series:
    """Return the sum of what each process states last in a `column` of `MEMORY_EVENTS`, after each row (Int64).

    Before its first row a process counts with what it states there.
    """
    own = rows[column].clip(0, MOST).cast(pl.Int64)
    if rows["process"].n_unique() <= 1:
        return own
    stated = rows.select("process", own=own.clip(0, MOST_OF_PROCESS))
    first = int(stated.unique("process", keep="first", maintain_order=True)["own"].sum())
    steps = stated.select(pl.col("own").diff().over("process").fill_null(0)).to_series()
    return steps.cum_sum() + first


def device_of(loop: Loop, trace: Trace) -> int:
    """Return the number that memory events of a loop's device have: the host's where operators represent kernels."""
    return HOST_MEMORY if is_stand_in(trace) else loop.device


def begins(loop: Loop, trace: Trace) -> tuple[Int64s, Int64s]:
    """Return index and begin of the complete iterations after warm-up, as `begins_of` does."""
    return begins_of(loop, trace, loop.iterations.filter(pl.col("complete") & ~pl.col("warmup")))


def begins_of(loop: Loop, trace: Trace, rows: pl.DataFrame) -> tuple[Int64s, Int64s]:
    """Return index and begin of some `rows` of `loop.iterations`: the launch on the host if available, in ns.

    If most have no launch record, the begins on the device are used.
    """
    launched = _launch_times(loop, trace, rows["start_ns"])
    if 2 * launched.null_count() > len(launched):
        return rows["index"].to_numpy(), rows["start_ns"].to_numpy()
    known = launched.is_not_null()
    return rows["index"].filter(known).to_numpy(), launched.drop_nulls().to_numpy()


def _launch_times(loop: Loop, trace: Trace, starts: pl.Series) -> pl.Series:
    """Return when the kernels of the loop's stream that began at `starts` were launched, null where unknown (Int64)."""
    here = (pl.col("device") == loop.device) & (pl.col("stream") == loop.stream)
    first = trace.device_events.filter(here & pl.col("start_ns").is_in(starts.implode()))
    calls = trace.host_events.filter((pl.col("category") == "runtime") & pl.col("correlation").is_not_null())
    joined = first.select("start_ns", "correlation").join(
        calls.select("correlation", launch_ns="start_ns").unique("correlation", keep="first"), on="correlation"
    )
    times = joined.group_by("start_ns").agg(pl.col("launch_ns").min())
    return starts.to_frame("start_ns").join(times, on="start_ns", how="left", maintain_order="left")["launch_ns"]


def floors(times: Int64s, in_use: Int64s, begin: Int64s) -> tuple[Int64s, npt.NDArray[np.bool_]]:
    """Return the least of `in_use` from every begin to the next (one fewer), and where available."""
    if len(begin) < 2 or not len(times):
        return np.zeros(max(0, len(begin) - 1), np.int64), np.zeros(max(0, len(begin) - 1), bool)
    first = np.searchsorted(times, begin, side="right") - 1  # the value that holds at the begin
    known = (first[:-1] >= 0) & (np.diff(begin) > 0)
    end = np.maximum(np.searchsorted(times, begin, side="left")[1:], np.maximum(first[:-1], 0) + 1)
    pairs = np.stack([np.maximum(first[:-1], 0), end], axis=1).ravel()
    padded = np.append(in_use, np.iinfo(np.int64).max)  # an end may be after the last event
    return np.asarray(np.minimum.reduceat(padded, pairs)[::2]), known
