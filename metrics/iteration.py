"""One row per iteration, and the paper's Table III over them (Gu et al., section V)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

import polars as pl
from msgspec import Struct

from deepprof.collectors.table_schema import TableSchema

I64, RATIO = pl.Int64(), pl.Float64()

ITERATIONS = TableSchema.of(
    "One iteration of a loop.",
    {
        "index": (I64, "its number in the loop, from 0; in a part of a trace that in the whole"),
        "start_ns": (I64, "when its first kernel on the main stream began"),
        "end_ns": (I64, "when its last kernel on the main stream ended"),
        "kernels": (I64, "kernels of the main stream in it"),
        "events": (I64, "device events on all streams from this start to the next, without waits"),
        "edits": (I64, "kernels that differ from the loop's template"),
        "complete": (pl.Boolean(), "false where the recording cuts it"),
        "warmup": (pl.Boolean(), "whether it is one of the slow or edited first ones, which figures leave out"),
        "iteration_ns": (I64, "from this start to the next; null where it is cut or no iteration follows directly"),
        "operation_ns": (I64, "from start to end"),
        "interval_ns": (I64, "idle device time between it and the next; null where none follows directly"),
        "overlap_ratio": (RATIO, "copy time from the host in the interval over its length; null without an interval"),
        "htod_ns": (I64, "how long copies from the host ran, from this start to the next"),
        "htod_bytes": (I64, "how much they copied"),
        "busy_ns": (I64, "how long the device worked, from this start to the next (without one, to the end)"),
        "idle_ns": (I64, "the rest of that time"),
    },
)


class Spread(Struct, frozen=True):
    """Median and 5th/95th percentile of a time, in nanoseconds.

    `low` and `high` are the bounds of the median's 95 % confidence interval; null for fewer than five values.
    """

    median: int
    p5: int
    p95: int
    low: int | None = None
    high: int | None = None


class _LoopMetric(Struct, frozen=True):
    """How a metric is measured on the usual iterations (`ITERATIONS`), and how it is shown.

    `label` is the paper's name, `meaning` the row of docs/report.md. The end of the field's name is the unit. A metric
    `of_copies` is not shown for programs without a device, one `of_shapes` only where available: it needs the shapes
    of operands, and is set when these are compared with the device's peaks (`metrics.cost.loop_roofline`).
    """

    label: str
    value: pl.Expr
    meaning: str
    of_copies: bool = False
    of_shapes: bool = False


def _metric(label: str, value: pl.Expr, meaning: str, *, of_copies: bool = False, of_shapes: bool = False) -> Any:
    """Return a field of `LoopMetrics`, None where no iteration has a value."""
    return field(default=None, metadata={"metric": _LoopMetric(label, value, meaning, of_copies, of_shapes)})


_NOT_FROM_TIMES = pl.lit(None, RATIO)


@dataclass(frozen=True, slots=True)
class LoopMetrics:
    """The paper's Table III of one loop, over its complete iterations after warm-up.

    Every value is null when no iteration has it (a single iteration has no interval). What is declared here as a
    `_metric` is measured, and is in `Analysis.metrics`, the report and its text.
    """

    avg_interval_ns: int | None = _metric("avg interval", pl.mean("interval_ns"), "mean of `interval_ns`")
    max_interval_ns: int | None = _metric("max interval", pl.max("interval_ns"), "maximum of `interval_ns`")
    avg_overlap_ratio: float | None = _metric(
        "avg overlap", pl.mean("overlap_ratio"), "mean of `overlap_ratio`", of_copies=True
    )
    avg_operation_ns: int | None = _metric(
        "avg operation",
        pl.mean("operation_ns"),
        "mean time from an iteration's first kernel's start to its last kernel's end",
    )
    avg_size_bytes: int | None = _metric(  # the copies of one that none follows are for an iteration not recorded
        "avg size",
        pl.col("htod_bytes").filter(pl.col("interval_ns").is_not_null()).mean(),
        "mean bytes copied from the host per iteration that another one follows",
        of_copies=True,
    )
    mfu_ratio: float | None = _metric(
        "MFU",
        _NOT_FROM_TIMES,
        "model FLOP utilisation: the time that the products of an iteration would take at the device's peak, without "
        "those that run again, over the iteration's; null: unknown",
        of_shapes=True,
    )
    hfu_ratio: float | None = _metric(
        "HFU", _NOT_FROM_TIMES, "hardware FLOP utilisation: the same with all products that ran", of_shapes=True
    )
    iteration_ns: Spread | None = None
    warmup_excluded: int = 0

    def with_utilization(self, mfu_ratio: float | None, hfu_ratio: float | None) -> LoopMetrics:
        """Return the metrics with both kinds of FLOP utilization."""
        return replace(self, mfu_ratio=mfu_ratio, hfu_ratio=hfu_ratio)

    @property
    def values(self) -> dict[str, int | float | None]:
        """The metrics by name."""
        return {name: getattr(self, name) for name in LOOP_METRICS}


LOOP_METRICS: Mapping[str, _LoopMetric] = MappingProxyType(
    {each.name: each.metadata["metric"] for each in fields(LoopMetrics) if each.metadata}
)
