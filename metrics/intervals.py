"""The time between iterations: how long it is, what fills it, and what the host did meanwhile."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.metrics.loop import Loop
from deepprof.metrics.spans import Spans, union

Int64s = npt.NDArray[np.int64]


class Intervals(Struct, frozen=True, eq=False, dict=True):
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

    @property
    def whole_ns(self) -> float:
        """Mean time of an iteration with its interval, at least 1."""
        return max(1.0, self.interval_ns + self.operation_ns)

    @property
    def bounds(self) -> tuple[int, int]:
        """Index of the first and the last iteration."""
        return int(self.iterations["index"][0]), int(self.iterations["index"][-1])

    @property
    def spans(self) -> Spans:
        """The time that the intervals fill."""
        start = self.iterations["end_ns"]
        return union(start.to_numpy(), (start + self.iterations["interval_ns"]).to_numpy())

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
