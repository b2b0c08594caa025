"""One row per iteration, and the paper's Table III over them (Gu et al., section V)."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

__all__ = ["ITERATIONS", "LoopMetrics", "Spread"]

# `start_ns` is the start of the iteration's first kernel on the main stream, `end_ns` the end of its last.
# `iteration_ns` runs from this start to the next one, `operation_ns` from start to end. `interval_ns` is the idle
# device time between this iteration and the next adjacent one; null for the last of a run. `overlap_ratio` is the
# HtoD copy time inside that interval over its length; null where there is no interval.
ITERATIONS = pl.Schema(
    {
        "index": pl.Int64(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "kernels": pl.Int64(),  # of the main stream
        "events": pl.Int64(),  # all device events from this start to the next
        "edits": pl.Int64(),
        "complete": pl.Boolean(),
        "warmup": pl.Boolean(),
        "iteration_ns": pl.Int64(),
        "operation_ns": pl.Int64(),
        "interval_ns": pl.Int64(),
        "overlap_ratio": pl.Float64(),
        "htod_ns": pl.Int64(),
        "htod_bytes": pl.Int64(),
        "busy_ns": pl.Int64(),
        "idle_ns": pl.Int64(),
    }
)


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and 5th/95th percentile of a time, in nanoseconds.

    `low` and `high` are the bounds of the median's 95 % confidence interval; null for fewer than five values.
    """

    median: int
    p5: int
    p95: int
    low: int | None = None
    high: int | None = None


@dataclass(frozen=True, slots=True)
class LoopMetrics:
    """The paper's Table III of one loop, over its complete iterations after warm-up.

    Every value is null when no iteration has it (a single iteration has no interval).
    """

    avg_interval_ns: int | None
    max_interval_ns: int | None
    avg_overlap_ratio: float | None
    avg_operation_ns: int | None
    avg_size_bytes: int | None
    iteration_ns: Spread | None
    warmup_excluded: int
