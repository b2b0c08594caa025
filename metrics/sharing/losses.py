"""What the other processes of a device cost every iteration of one, nanosecond by nanosecond.

Four things can be seen: the device runs another one's kernel while one's own is queued (they take turns); one's own
kernel takes longer than it does alone, because another one's runs beside it or the device has put it aside; a copy
waits for another one's; and a copy takes longer beside another one's. What an iteration takes beyond its level without
others, and none of these explain, is the host's, or hidden.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.metrics.sharing.repeated import MIN_RUNS_ALONE, Repeated, look_beside
from deepprof.metrics.sharing.work import OtherWork
from deepprof.metrics.spans import Spans, covered

__all__ = ["LOSSES", "UNTOUCHED", "QueuedTime", "find_level", "measure_losses"]

Int64s = npt.NDArray[np.int64]

UNTOUCHED = 0.01  # of an iteration: others that work for less leave it alone

# One row per usual iteration of the longest loop. `together_ns` is how long others had work on the device in it; of
# `lost_ns`, the sum of the four, each nanosecond is counted once. `stretch_ns` is what it takes beyond the level of
# iterations without others, null where there are too few; `rest_ns` what of that is not lost to others on the device.
LOSSES = pl.Schema(
    {
        "index": pl.Int64(),
        "iteration_ns": pl.Int64(),
        "together_ns": pl.Int64(),
        "turns_ns": pl.Int64(),
        "slowed_ns": pl.Int64(),
        "copies_ns": pl.Int64(),
        "copies_slowed_ns": pl.Int64(),
        "lost_ns": pl.Int64(),
        "stretch_ns": pl.Int64(),
        "rest_ns": pl.Int64(),
    }
)


@dataclass(frozen=True, slots=True)
class QueuedTime:
    """When kernels, and when copies of a process wait while others have what they wait for.

    `proven`: the trace shows that they were queued. Without launch records any pause may be one.
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
    slowed, moved = sum_extra(kernels, others.kernels, len(start)), sum_extra(copies, others.copies, len(start))
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
    """Return what an iteration usually takes while others leave the device alone; None for too few of these."""
    left_alone = whole_ns[together_ns <= UNTOUCHED * whole_ns]
    return round(float(np.median(left_alone))) if len(left_alone) >= MIN_RUNS_ALONE else None


def limit(turns: Int64s, waits: Int64s, most: Int64s | None) -> tuple[Int64s, Int64s]:
    """Return two parts of each iteration cut to `most` together, the first before the second; nothing without it."""
    most = np.zeros_like(turns) if most is None else most
    first = np.minimum(turns, most)
    return first, np.minimum(waits, most - first)


def sum_extra(events: Repeated, others: Spans, iterations: int) -> Int64s:
    """Return by how much the events of each iteration took longer beside `others`, at most as long as these ran.

    Longer and shorter ones are added up before they are cut off at 0, so that noise adds nothing.
    """
    beside = look_beside(events, others)
    most = np.minimum(beside.overlap_ns, events.counted_ns)
    extra = events.sum_by_iteration(np.minimum(beside.extra_ns, most), iterations)
    bound = events.sum_by_iteration(most, iterations)
    return np.asarray(np.clip(extra, 0, bound).round().astype(np.int64))
