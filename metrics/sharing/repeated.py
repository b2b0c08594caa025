"""Events that recur in every iteration of a process, to compare them with and without other processes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.trace import WORK_ACTIVITIES, Trace
from deepprof.metrics.breakdown.parts import COPY_PARTS
from deepprof.metrics.loop import Loop
from deepprof.metrics.sharing.work import is_on_link
from deepprof.metrics.spans import NOTHING, Spans, covered

Int64s = npt.NDArray[np.int64]
Float64s = npt.NDArray[np.float64]

MIN_RUNS_ALONE = 3  # runs of one event that show how long it needs alone


class Repeated(Struct, frozen=True, eq=False):
    """Events that recur in every iteration, matched by `key`, in arrays of one length.

    `iteration` is the row of `Loop.usual` that an event starts in. `counted_ns` is the part of an event that can delay
    the iteration: all of a kernel, the exposed part of a copy.
    """

    start_ns: Int64s
    end_ns: Int64s
    iteration: Int64s
    key: Int64s
    counted_ns: Int64s

    def sum_by_iteration(self, values: npt.ArrayLike, iterations: int) -> Float64s:
        """Return the sum of `values`, one for every event, in every iteration."""
        sums = np.bincount(self.iteration, np.asarray(values, np.float64), minlength=iterations)
        return sums.astype(np.float64)  # without events numpy returns integers


def list_kernels(trace: Trace, loop: Loop) -> Repeated:
    """Return the kernels of the main stream; the n-th of a name in an iteration is the n-th in every other."""
    rows = _rows_within(trace, loop, (pl.col("stream") == loop.stream) & pl.col("activity").is_in(["kernel", "graph"]))
    rows = rows.with_columns(nth=pl.int_range(pl.len()).over("iteration", "name_id"))
    return _make_repeated(rows, ["name_id", "nth"], (rows["end_ns"] - rows["start_ns"]).to_numpy())


def list_copies(trace: Trace, loop: Loop) -> Repeated:
    """Return the copies into and out of the device; those of one direction and size count as the same."""
    rows = _rows_within(trace, loop, pl.col("activity").is_in(WORK_ACTIVITIES) & is_on_link())
    exposed = NOTHING if loop.timeline is None else loop.timeline.spans(tuple(COPY_PARTS.values()))
    counted = covered(exposed, rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
    return _make_repeated(rows, ["copy_kind", "nbytes"], counted)


def _rows_within(trace: Trace, loop: Loop, which: pl.Expr) -> pl.DataFrame:
    """Return the events of the loop's device that `which` selects in usual iterations, with the iteration's number."""
    rows = trace.device_events.filter((pl.col("device") == loop.device) & which)
    start = loop.usual["start_ns"].to_numpy()
    end = start + loop.usual["iteration_ns"].to_numpy()
    times = rows["start_ns"].to_numpy()
    at = np.searchsorted(start, times, side="right") - 1
    inside = (at >= 0) & (times < end[np.maximum(at, 0)]) if len(start) else np.zeros(len(times), np.bool_)
    return rows.with_columns(iteration=pl.Series(at, dtype=pl.Int64)).filter(pl.Series(inside, dtype=pl.Boolean))


def _make_repeated(rows: pl.DataFrame, keys: list[str], counted_ns: Int64s) -> Repeated:
    """Return events with a number for every combination of `keys`."""
    numbers = rows.select(pl.struct(keys).rank("dense").cast(pl.Int64)).to_series().to_numpy()
    start, end, iteration = (rows[name].to_numpy() for name in ("start_ns", "end_ns", "iteration"))
    return Repeated(start, end, iteration, numbers, counted_ns)


class _OverlapTimes(Struct, frozen=True, eq=False):
    """Repeated events next to other processes' work: how long both ran, and how much longer than alone each needed."""

    overlap_ns: Int64s
    extra_ns: Float64s


def look_beside(events: Repeated, others: Spans) -> _OverlapTimes:
    """Return how long `events` overlap with `others`, and how much longer they need than alone.

    The time alone is the median over events of the same key that no other work overlaps. If there are too few of these,
    the shortest event counts as alone, and the result is a lower bound.
    """
    overlap = covered(others, events.start_ns, events.end_ns)
    taken = events.end_ns - events.start_ns
    frame = pl.DataFrame({"key": events.key, "taken": taken, "alone": overlap == 0})
    undisturbed = pl.col("taken").filter("alone")
    base = pl.when(pl.col("alone").sum() >= MIN_RUNS_ALONE).then(undisturbed.median()).otherwise(pl.col("taken").min())
    alone = frame.select(base.over("key")).to_series().to_numpy()
    return _OverlapTimes(overlap, np.where(overlap > 0, taken - alone, 0.0))
