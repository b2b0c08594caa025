"""The time between iterations: how long it is, what fills it, and what the host did meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.metrics.loop import Loop
from deepprof.metrics.names import with_names
from deepprof.metrics.spans import covered, union

__all__ = ["Intervals", "copies_during", "host_range_during", "intervals_of"]

Int64s = npt.NDArray[np.int64]

MOST = 0.5  # a range must fill this much of the intervals to be named


@dataclass(frozen=True)
class Intervals:
    """The complete iterations after warm-up that are followed by an interval, at least two of them."""

    iterations: pl.DataFrame  # ITERATIONS

    @cached_property
    def interval_ns(self) -> float:
        """Mean interval."""
        return mean(self.iterations["interval_ns"])

    @cached_property
    def operation_ns(self) -> float:
        """Mean time from an iteration's first kernel to its last."""
        return mean(self.iterations["operation_ns"])

    @cached_property
    def overlap_ratio(self) -> float:
        """Mean share of the interval that copies from the host fill."""
        return mean(self.iterations["overlap_ratio"])

    @cached_property
    def copying_ns(self) -> float:
        """Mean time that copies from the host fill of the interval."""
        return mean(self.iterations["interval_ns"] * self.iterations["overlap_ratio"])

    @property
    def whole_ns(self) -> float:
        """Mean time of an iteration with its interval, at least 1."""
        return max(1.0, self.interval_ns + self.operation_ns)

    @property
    def bounds(self) -> tuple[int, int]:
        """Index of the first and the last iteration."""
        return int(self.iterations["index"][0]), int(self.iterations["index"][-1])

    @property
    def times(self) -> tuple[Int64s, Int64s]:
        """Start and end of every interval."""
        start = self.iterations["end_ns"]
        return start.to_numpy(), (start + self.iterations["interval_ns"]).to_numpy()

    def evidence(self) -> dict[str, int | float | str | None]:
        """Return the numbers that findings on intervals rest on."""
        return {
            "avg_interval_ns": round(self.interval_ns),
            "avg_operation_ns": round(self.operation_ns),
            "interval_share_ratio": round(self.interval_ns / self.whole_ns, 4),
            "avg_overlap_ratio": round(self.overlap_ratio, 4),
            "iterations": self.iterations.height,
        }


def mean(values: pl.Series) -> float:
    """Return the mean, 0 without values."""
    return float(values.mean() or 0.0)  # type: ignore[arg-type]


def intervals_of(loop: Loop) -> Intervals | None:
    """Return a loop's intervals, None for fewer than two: one proves nothing."""
    used = loop.iterations.filter(pl.col("complete") & ~pl.col("warmup") & pl.col("interval_ns").is_not_null())
    return Intervals(used) if used.height >= 2 else None


def host_range_during(intervals: Intervals, trace: Trace) -> dict[str, int | str] | None:
    """Return the annotation that fills most of the intervals, as a place; None when none fills half of them.

    Of ranges around each other the shortest one wins: an outer step marker fills everything and says nothing.
    """
    start, end = intervals.times
    length, within = int((end - start).sum()), union(start, end)
    ranges = trace.annotations.filter((pl.col("side") == "host") & (pl.col("end_ns") > pl.col("start_ns")))
    inside = covered(within, ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy())
    at_most = ranges.with_columns(inside=inside).group_by("name_id", maintain_order=True).agg(pl.col("inside").sum())
    likely = at_most.filter((pl.col("inside") >= MOST * length) & (pl.col("inside") > 0))["name_id"]
    best: tuple[int, str] | None = None
    for name_id in likely.to_list():
        group = ranges.filter(pl.col("name_id") == name_id)
        spans = union(group["start_ns"].to_numpy(), group["end_ns"].to_numpy())
        filled = int(covered(spans, start, end).sum())
        if filled >= MOST * length and (best is None or spans.total_ns < best[0]):
            best = (spans.total_ns, trace.name(name_id))
    return None if best is None else {"range": best[1]}


def copies_during(intervals: Intervals, trace: Trace, device: int) -> pl.DataFrame:
    """Return the device's HtoD copies that overlap the intervals, with their `name`."""
    copies = trace.device_events.filter((pl.col("copy_kind") == "HtoD") & (pl.col("device") == device))
    inside = covered(union(*intervals.times), copies["start_ns"].to_numpy(), copies["end_ns"].to_numpy()) > 0
    return with_names(copies.filter(pl.Series(inside)), trace.names)
