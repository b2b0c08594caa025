"""The time between iterations: which iterations carry it, and what the host did meanwhile."""

from __future__ import annotations

import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.metrics.loop import Loop
from deepprof.metrics.spans import covered, union

__all__ = ["copies_in_intervals", "host_range_during", "usable_iterations"]

MOST = 0.5  # a range must fill this much of the intervals to be named


def usable_iterations(loop: Loop) -> pl.DataFrame:
    """Return the complete iterations after warm-up that are followed by an interval."""
    return loop.iterations.filter(pl.col("complete") & ~pl.col("warmup") & pl.col("interval_ns").is_not_null())


def host_range_during(loop: Loop, trace: Trace, used: pl.DataFrame) -> dict[str, int | str] | None:
    """Return the annotation that fills most of the intervals, as a place; None when none fills half of them.

    Of ranges around each other the shortest one wins: an outer step marker fills everything and says nothing.
    """
    start, end = used["end_ns"].to_numpy(), (used["end_ns"] + used["interval_ns"]).to_numpy()
    length = int((end - start).sum())
    ranges = trace.annotations.filter((pl.col("side") == "host") & (pl.col("end_ns") > pl.col("start_ns")))
    best: tuple[int, str] | None = None
    for (name_id,), group in ranges.group_by("name_id", maintain_order=True):
        spans = union(group["start_ns"].to_numpy(), group["end_ns"].to_numpy())
        filled = int(covered(spans, start, end).sum())
        if filled >= MOST * length > 0 and (best is None or spans.total_ns < best[0]):
            best = (spans.total_ns, trace.name(int(name_id)))
    return None if best is None else {"range": best[1]}


def copies_in_intervals(loop: Loop, trace: Trace, used: pl.DataFrame) -> pl.DataFrame:
    """Return the HtoD copies that overlap the intervals, with their `name`."""
    start, end = used["end_ns"].to_numpy(), (used["end_ns"] + used["interval_ns"]).to_numpy()
    copies = trace.device_events.filter((pl.col("copy_kind") == "HtoD") & (pl.col("device") == loop.device))
    inside = covered(union(start, end), copies["start_ns"].to_numpy(), copies["end_ns"].to_numpy()) > 0
    names = pl.DataFrame({"name": trace.names}).with_row_index("name_id")
    return copies.filter(pl.Series(inside)).join(names, on="name_id", how="left", maintain_order="left")
