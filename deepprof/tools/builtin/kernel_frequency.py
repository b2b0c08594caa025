"""How few of many kernels make most calls (PASTA, Fig. 7)."""

from __future__ import annotations

from typing import Annotated

import polars as pl
from msgspec import Meta

from deepprof.plurals import counted
from deepprof.render.units import format_ratio
from deepprof.tools.tool import Report, Tool

I64, RATIO = pl.Int64(), pl.Float64()
COUNTS = pl.Schema({"name": pl.String(), "calls": I64, "time_ns": I64})


class KernelFrequency(Tool):
    """Count how often each kernel is called, and how few of them make most calls.

    The kernels with most calls come first, each with its share of all calls, that of it and all before it, and the sum
    of its calls' times.
    """

    rows: Annotated[int, Meta(ge=0, description="kernels in the table, 0 for all")] = 20
    share: Annotated[float, Meta(gt=0, le=1, description="the share of calls that `frequent_names` make")] = 0.9

    def begin(self) -> None:
        """Begin with no kernel."""
        self.counts = pl.DataFrame(schema=COUNTS)

    def on_kernels(self, frame: pl.DataFrame) -> None:
        """Add the calls of every name."""
        calls = frame.group_by("name").agg(pl.len().cast(I64).alias("calls"), time_ns=_time_ns())
        self.counts = pl.concat([self.counts, calls]).group_by("name").sum()

    def report(self) -> Report:
        """Return how many names make the share of the calls, and the table."""
        calls = int(self.counts["calls"].sum())
        kernels = self.counts.sort(["calls", "time_ns", "name"], descending=[True, True, False]).select(
            "name",
            "calls",
            share_ratio=pl.col("calls") / calls,
            cumulative_ratio=pl.col("calls").cum_sum() / calls,
            time_ns="time_ns",
        )
        before = kernels["calls"].cum_sum() - kernels["calls"]
        frequent = int((before < self.share * calls).sum())
        return {
            "summary": _summarise(frequent, kernels.height, self.share, calls),
            "kernel_names": kernels.height,
            "calls": calls,
            "frequent_names": frequent,
            "kernels": kernels.head(self.rows) if self.rows else kernels,
        }


def _summarise(frequent: int, names: int, share: float, calls: int) -> str:
    if not calls:
        return "no kernel was recorded"
    made = "makes" if frequent == 1 else "make"
    return f"{frequent:,} of {counted(names, 'kernel name')} {made} {format_ratio(share)} of {counted(calls, 'call')}"


def _time_ns() -> pl.Expr:
    return (pl.col("end_ns") - pl.col("start_ns")).sum()
