"""What the other processes on a device cost every iteration of one process, nanosecond by nanosecond.

Four losses are visible: the device runs another process's kernel while one of this process is queued (they take turns);
a kernel lasts longer than alone, because another process's kernel runs next to it or the device has suspended it; a
copy waits for another process's copy; and a copy lasts longer next to another process's copy. Time beyond the level
without others that none of these explains is the host's, or hidden."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.table_schema import TableSchema
from deepprof.metrics.sharing.repeated import MIN_RUNS_ALONE, Repeated, look_beside
from deepprof.metrics.sharing.work import OtherWork
from deepprof.metrics.spans import Spans, covered

Int64s = npt.NDArray[np.int64]

UNTOUCHED = 0.01  # of an iteration: others that work for less leave it undisturbed

I64 = pl.Int64()

LOSSES = TableSchema.of(
    "What one usual iteration of the longest loop loses to other processes on its device.",
    {
        "index": (I64, "the iteration's number in the loop"),
        "iteration_ns": (I64, "from start to start"),
        "together_ns": (I64, "how long others had work on the device in it"),
        "turns_ns": (I64, "kernels waited for their turn"),
        "slowed_ns": (I64, "kernels ran slower beside others"),
        "copies_ns": (I64, "copies waited for others'"),
        "copies_slowed_ns": (I64, "copies ran slower beside others"),
        "lost_ns": (I64, "the sum of these four, each nanosecond once"),
        "stretch_ns": (I64, "beyond the level of iterations without others; null: too few of them"),
        "rest_ns": (I64, "the part of that which is not lost to others on the device"),
    },
)


class QueuedTime(Struct, frozen=True, eq=False):
    """When kernels, and when copies, of a process wait for what others use.

    `proven`: the trace shows that they were queued. Without launch records any pause may be a wait.
    """

    kernels: Spans
    copies: Spans
    proven: bool


def measure_losses(
    usual: pl.DataFrame, queued: QueuedTime, kernels: Repeated, copies: Repeated, others: OtherWork
) -> pl.DataFrame:
    """Return what `others` cost each iteration in `usual`, rows of `Loop.usual`: a table `LOSSES`."""
    start, whole = usual["start_ns"].to_numpy(), usual["iteration_ns"].to_numpy()
    together = covered(others.work, start, start + whole)
    level = find_level(whole, together)
    stretch = None if level is None else np.maximum(whole - level, 0)
    turns, waits = (covered(spans, start, start + whole) for spans in (queued.kernels, queued.copies))
    if not queued.proven:  # then only a longer iteration shows that work was queued
        turns, waits = limit(turns, waits, stretch)
    slowed, moved = _sum_extra(kernels, others.kernels, len(start)), _sum_extra(copies, others.copies, len(start))
    lost = np.minimum(turns + slowed + waits + moved, whole)
    columns = {
        "together_ns": together,
        "turns_ns": turns,
        "slowed_ns": slowed,
        "copies_ns": waits,
        "copies_slowed_ns": moved,
        "lost_ns": lost,
    }
    table = usual.select("index", "iteration_ns").with_columns(
        *(pl.Series(name, values, dtype=pl.Int64) for name, values in columns.items()),
        stretch_ns=pl.lit(None, pl.Int64) if stretch is None else pl.Series(stretch, dtype=pl.Int64),
    )
    return table.with_columns(rest_ns=(pl.col("stretch_ns") - pl.col("lost_ns")).clip(lower_bound=0))


def find_level(whole_ns: Int64s, together_ns: Int64s) -> int | None:
    """Return the median time of the iterations that others leave undisturbed; None for too few of these."""
    left_alone = whole_ns[together_ns <= UNTOUCHED * whole_ns]
    return round(float(np.median(left_alone))) if len(left_alone) >= MIN_RUNS_ALONE else None


def limit(turns: Int64s, waits: Int64s, most: Int64s | None) -> tuple[Int64s, Int64s]:
    """Return `turns` and `waits` of every iteration cut to `most` together, `turns` first; zeros if `most` is None."""
    most = np.zeros_like(turns) if most is None else most
    first = np.minimum(turns, most)
    return first, np.minimum(waits, most - first)


def _sum_extra(events: Repeated, others: Spans, iterations: int) -> Int64s:
    """Return how much longer the events of every iteration needed next to `others`, at most as long as these ran.

    Longer and shorter events are added up before the sum is cut off at 0, so that noise adds nothing.
    """
    beside = look_beside(events, others)
    most = np.minimum(beside.overlap_ns, events.counted_ns)
    extra = events.sum_by_iteration(np.minimum(beside.extra_ns, most), iterations)
    bound = events.sum_by_iteration(most, iterations)
    return np.asarray(np.clip(extra, 0, bound).round().astype(np.int64))
