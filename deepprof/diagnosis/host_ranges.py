"""What the host's ranges show of a recording without any work of a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from deepprof.collectors.trace import Trace


@dataclass(frozen=True, slots=True)
class HostRanges:
    """The `count` ranges of a rank's host in `span_ns`; most of the time is in `longest`, `calls` of `longest_ns`."""

    count: int
    span_ns: int
    longest: str
    calls: int
    longest_ns: int


def read_host_ranges(traces: Sequence[Trace]) -> HostRanges | None:
    """Return what the ranges of the first trace that has any show; None where none has."""
    for trace in traces:
        closed = (pl.col("side") == "host") & (pl.col("end_ns") > pl.col("start_ns"))
        ranges = trace.annotations.filter(closed)
        if ranges.is_empty():
            continue
        families = ranges.with_columns(name=trace.names.gather(ranges["name_id"]).str.replace_all(r"\d+", "#"))
        length = (pl.col("end_ns") - pl.col("start_ns")).sum().alias("length")
        totals = families.group_by("name").agg(length, calls=pl.len(), one=pl.col("name_id").first())
        _, longest_ns, calls, one = totals.sort("length", "name", descending=[True, False]).row(0)
        span = ranges.select(pl.col("end_ns").max() - pl.col("start_ns").min()).item()
        return HostRanges(ranges.height, span, trace.name(one), calls, longest_ns)
    return None
