"""What the host's ranges show of a recording without any work of a device."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from deepprof.collectors.trace import Trace


class HostRanges(Struct, frozen=True):
    """The `count` ranges of a rank's host in `span_ns`; most of the time is in `longest`, of `calls`.

    These take `longest_ns` together, nested ones and those at one time counted once.
    """

    count: int
    span_ns: int
    longest: str
    calls: int
    longest_ns: int


def read_host_ranges(trace: Trace) -> HostRanges | None:
    """Return what the ranges of a trace's host show; None where it has none."""
    ranges = trace.annotations.filter((pl.col("side") == "host") & (pl.col("end_ns") > pl.col("start_ns")))
    if ranges.is_empty():
        return None
    families = ranges.with_columns(name=trace.names.gather(ranges["name_id"]).str.replace_all(r"\d+", "#"))
    totals = (
        families.sort("start_ns")
        .with_columns(reach=pl.col("end_ns").cum_max().shift().over("name").fill_null(pl.col("start_ns")))
        .with_columns(own=(pl.col("end_ns") - pl.max_horizontal("start_ns", "reach")).clip(0))
        .group_by("name")
        .agg(pl.col("own").sum(), calls=pl.len(), one=pl.col("name_id").first())
    )
    _, longest_ns, calls, one = totals.sort("own", "name", descending=[True, False]).row(0)
    span = ranges.select(pl.col("end_ns").max() - pl.col("start_ns").min()).item()
    return HostRanges(ranges.height, span, trace.name(one), calls, longest_ns)
