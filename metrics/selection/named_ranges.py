"""What a program did within ranges of a name, which it wrote itself: `deepprof.range`, record_function, NVTX, roctx.

A device event belongs to the range in which its launch is. Backward passes run on a thread of autograd, which works
for the thread that trains: what it does during a range of that thread is part of the range.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.kept_rows import RowMarks
from deepprof.collectors.time_range import POINTS
from deepprof.collectors.trace import Trace
from deepprof.metrics.names import are_named
from deepprof.metrics.operators import outermost
from deepprof.metrics.selection.thread_spans import THREAD, lie_in, merge_spans

Bools = npt.NDArray[np.bool_]

STREAM = ("device", "stream")
# Nodes of backward passes; in old recordings without the engine's own rows around them.
NODE = r"^autograd::engine::evaluate_function|Backwards?\d*$|AccumulateGrad$|GraphRoot$"
MOSTLY = 0.7  # of the time of a thread of autograd is in nodes: gradients are also copied there, to be exchanged
COUNTED = r"\d+$"  # of a range that counts, as ProfilerStep#12 does


def list_range_names(trace: Trace) -> pl.DataFrame:
    """Return `name` and `len`, how many ranges have it, the most frequent first; numbers at the end are `*`."""
    ids = trace.annotations["name_id"]
    names = trace.names.gather(ids).str.replace(COUNTED, "*").alias("name").to_frame()
    return names.group_by("name", maintain_order=True).len().sort("len", descending=True, maintain_order=True)


def mark_ranges(trace: Trace, pattern: str) -> RowMarks | None:
    """Return what is in the ranges whose name is `pattern`, or matches its wildcards; None where there are none.

    On the host that is what begins in a range on its thread, and in memory what happens there. On devices it is what
    was launched so; of what has no launch in the trace, or where only the device has such ranges, what begins within a
    range on its stream.
    """
    ids = _match(trace, pattern)
    named = trace.annotations["name_id"].is_in(ids.implode()).to_numpy()
    if not named.any():
        return None
    on_host = (trace.annotations["side"] == "host").to_numpy()
    host = _find_host_spans(trace, _keep(trace.annotations, named & on_host))
    device = _keep(trace.annotations, named & ~on_host)
    inside = lie_in(trace.host_events, host)
    points = {table: _mark_points(getattr(trace, table), host) for table in POINTS}
    ranges = (on_host & lie_in(trace.annotations, host)) | (~on_host & _lie_on_device(trace, trace.annotations, device))
    return points | {
        "device_events": _mark_events(trace, inside, device, by_launch=bool((named & on_host).any())),
        "host_events": inside,
        "annotations": named | ranges,
    }


def _match(trace: Trace, pattern: str) -> pl.Series:
    ids = trace.annotations["name_id"].unique()
    names = trace.names.gather(ids)
    found = [name == pattern or fnmatchcase(name, pattern) for name in names]
    return ids.filter(pl.Series(found, dtype=pl.Boolean))


def _keep(rows: pl.DataFrame, kept: Bools) -> pl.DataFrame:
    return rows.filter(pl.Series(kept, dtype=pl.Boolean))


def _find_host_spans(trace: Trace, ranges: pl.DataFrame) -> pl.DataFrame:
    """Return the time of ranges by thread, and on autograd's threads that of the ranges of the thread that trains."""
    helpers, trains = _find_autograd(trace)
    theirs = (
        ranges.join(trains, on=THREAD, nulls_equal=True).drop("thread").join(helpers, on="process", nulls_equal=True)
    )
    return merge_spans(pl.concat([each.select(*THREAD, "start_ns", "end_ns") for each in (ranges, theirs)]))


def _find_autograd(trace: Trace) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the threads that run backward passes for others, and of every process the thread that they run them for.

    That is the one with most time in operators that are no nodes of backward passes, which may run them itself.
    """
    known = trace.host_events.with_row_index("row").filter(pl.col("category") == "op").drop_nulls("end_ns")
    rows = outermost(known.sort(*THREAD, "start_ns", "end_ns", "row", descending=[False, False, False, True, False]))
    length = pl.col("end_ns") - pl.col("start_ns")
    rows = rows.with_columns(node=pl.Series(are_named(trace.names, rows["name_id"], NODE)), length=length)
    nodes, all_ns = pl.col("length").filter("node").sum(), pl.col("length").sum()
    threads = rows.group_by(THREAD, maintain_order=True).agg(nodes=nodes, others=all_ns - nodes)
    trains = threads.sort("others", descending=True, maintain_order=True).unique("process", maintain_order=True)
    helpers = threads.filter(pl.col("nodes") > MOSTLY * (pl.col("nodes") + pl.col("others")))
    return helpers.join(trains, on=THREAD, how="anti", nulls_equal=True).select(THREAD), trains.select(THREAD)


def _mark_points(rows: pl.DataFrame, host: pl.DataFrame) -> Bools:
    """Return which rows of one time are in spans of their thread; of those without a thread, in any span."""
    time = pl.lit(0, pl.Int64).alias("part")
    anywhere = merge_spans(host.with_columns(time), ("part",))
    found = lie_in(rows.with_columns(time), anywhere, ("part",))
    if "thread" not in rows.columns:
        return found
    return np.where(rows["thread"].is_null().to_numpy(), found, lie_in(rows, host))


def _mark_events(trace: Trace, inside: Bools, device: pl.DataFrame, *, by_launch: bool) -> Bools:
    """Return the device events whose launch is `inside`; of those without one, which are in ranges of the device."""
    on_device = _lie_on_device(trace, trace.device_events, device)
    if not by_launch:
        return on_device
    events = trace.device_events.select("correlation", "external_id")
    calls = trace.host_events.with_columns(inside=pl.Series(inside, dtype=pl.Boolean))
    for category, key in (("runtime", "correlation"), ("op", "external_id")):
        first = (
            calls.filter(pl.col("category") == category).drop_nulls(key).unique(key, keep="first", maintain_order=True)
        )
        events = events.join(
            first.select(key, inside="inside").rename({"inside": category}), on=key, how="left", maintain_order="left"
        )
    launched = events.select(pl.coalesce("runtime", "op")).to_series()
    return np.where(launched.is_null().to_numpy(), on_device, launched.fill_null(value=False).to_numpy())


def _lie_on_device(trace: Trace, rows: pl.DataFrame, ranges: pl.DataFrame) -> Bools:
    """Return which rows begin in ranges of their stream; ranges of a stream without events are of their device."""
    streams = trace.device_events.select(STREAM).unique()
    own = ranges.join(streams, on=STREAM, how="semi")
    whole = ranges.join(streams, on=STREAM, how="anti")
    return lie_in(rows, merge_spans(own, STREAM), STREAM) | lie_in(rows, merge_spans(whole, STREAM[:1]), STREAM[:1])
