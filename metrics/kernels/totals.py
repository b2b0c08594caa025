"""The kernels of a job by their time, with what they compute."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from deepprof.collectors.table_schema import TableSchema
from deepprof.collectors.trace import Trace
from deepprof.metrics.kernels.classify import find_kernel_kinds
from deepprof.metrics.kernels.kinds import KERNEL_KINDS

KERNEL_TIMES = TableSchema.side_by_side(
    "The kernels of one name and operator.",
    [
        TableSchema.of(
            "Which kernels they are.",
            {
                "name": (pl.String(), "their name"),
                "operator": (pl.String(), "the operator that launched them, where one is recorded"),
            },
        ),
        KERNEL_KINDS,
        TableSchema.of(
            "How long they took.",
            {
                "calls": (pl.Int64(), "how often they ran"),
                "time_ns": (pl.Int64(), "the sum of their times"),
                "share_ratio": (pl.Float64(), "that sum over that of all kernels"),
            },
        ),
    ],
)


def sum_kernels(traces: Sequence[Trace], recorded: Sequence[Trace] | None = None) -> pl.DataFrame:
    """Return the kernels of all ranks with the schema `KERNEL_TIMES`, those with most time first.

    `recorded` are the traces as they were read, if operators were made their kernels since (CPU fallback).
    """
    pairs = zip(traces, recorded or traces, strict=True)
    parts = [_sum_rank(trace, before) for trace, before in pairs]
    keys = ["name", "operator", *KERNEL_KINDS]
    table = pl.concat([pl.DataFrame(schema=dict(KERNEL_TIMES)).drop("share_ratio"), *parts])
    sums = table.group_by(keys, maintain_order=True).agg(pl.col("calls", "time_ns").sum())
    whole = pl.col("time_ns").sum()
    share = pl.when(whole > 0).then(pl.col("time_ns") / whole).otherwise(0.0)
    ranked = sums.with_columns(share_ratio=share)
    return ranked.sort("time_ns", "name", "operator", descending=[True, False, False]).select(list(KERNEL_TIMES))


def _sum_rank(trace: Trace, recorded: Trace) -> pl.DataFrame:
    """Return the kernels of one rank, without their shares."""
    kinds = find_kernel_kinds(trace, None if recorded is trace else recorded)
    spans = trace.device_events.select(time_ns=pl.col("end_ns") - pl.col("start_ns"), row=pl.Series(kinds.of_events))
    sums = (
        spans.filter(pl.col("row") >= 0)
        .group_by("row")
        .agg(calls=pl.len().cast(pl.Int64), time_ns=pl.col("time_ns").sum())
    )
    return kinds.table[sums["row"]].hstack(sums.select("calls", "time_ns"))
