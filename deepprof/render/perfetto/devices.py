"""What a device did: a track per stream, one for its waits, and one for the ranges that the recorder put on it."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.metrics.loop import Loop
from deepprof.metrics.operators import is_stand_in
from deepprof.metrics.streams import ROLES
from deepprof.render.perfetto.layers import SliceLayer, number, word

COUNTERS = pl.Schema({"time_ns": pl.Int64(), "name": pl.String(), "value": pl.Float64()})


def devices_of(trace: Trace) -> dict[int, str]:
    """Return the devices that a trace has events or ranges of, in order, each with its number and model."""
    on_device = trace.annotations.filter(pl.col("side") == "device")["device"]
    numbers = pl.concat([trace.device_events["device"], on_device]).drop_nulls().unique().sort()
    models = dict(trace.devices.select("device", "name").drop_nulls().iter_rows())
    kind = "CPU" if is_stand_in(trace) else "GPU"
    return {n: f"{kind} {n}" + (f" ({models[n]})" if n in models else "") for n in numbers}


def stream_layer(trace: Trace, device: int, streams: pl.DataFrame) -> SliceLayer:
    """Return all events of a device on its streams, the main one first; waits have their own tracks.

    `streams` is `Analysis.streams`.
    """
    events = trace.device_events.filter(pl.col("device") == device)
    waits = (pl.col("activity") == "sync").alias("waits")
    here = streams.filter((pl.col("rank") == (trace.rank or 0)) & (pl.col("device") == device))
    roles = here.select("stream", pl.col("role").cast(pl.String))
    places = (
        events.select("stream", waits)
        .unique()
        .join(roles, on="stream", how="left")
        .sort("waits", pl.col("role").replace_strict(ROLES, range(len(ROLES)), default=len(ROLES)), "stream")
        .with_row_index("track")
    )
    labels = [
        f"stream {stream} waits" if waiting else f"stream {stream} {role or ''}".rstrip()
        for _, stream, waiting, role in places.iter_rows()
    ]
    rows = events.with_columns(waits).join(places, on=["stream", "waits"], how="left", maintain_order="left")
    args = {
        "stream": number("stream"),
        "correlation": number("correlation"),
        "external_id": number("external_id"),
        "nbytes": number("nbytes"),
        "copy_kind": word("copy_kind"),
        "graph_node": number("graph_node"),
    }
    return SliceLayer(labels, rows, trace.names, pl.col("activity"), args)


def annotation_layer(trace: Trace, device: int) -> SliceLayer:
    """Return the ranges on a device's streams."""
    here = trace.annotations.filter((pl.col("side") == "device") & (pl.col("device") == device))
    streams = here["stream"].unique().sort()
    labels = ["ranges" if stream is None else f"stream {stream} ranges" for stream in streams]
    place = pl.col("stream").rank("dense").fill_null(0) - (0 if streams.null_count() else 1)
    rows = here.with_columns(track=place.cast(pl.UInt32))
    return SliceLayer(labels, rows, trace.names, pl.lit("annotation"))


def count_on_device(trace: Trace, device: int, loops: Sequence[Loop]) -> pl.DataFrame:
    """Return the memory in use on a device and how busy it was in every iteration, as counters."""
    return pl.concat(
        [count_memory(trace, pl.col("device") == device), *(_count_busy(loop.iterations) for loop in loops)]
    )


def count_memory(trace: Trace, wanted: pl.Expr) -> pl.DataFrame:
    """Return the memory in use over time, of the memory events that are `wanted`."""
    known = trace.memory_events.filter(wanted & pl.col("allocated_nbytes").is_not_null())
    return known.select("time_ns", name=pl.lit("memory in use"), value=pl.col("allocated_nbytes")).cast(COUNTERS)


def _count_busy(iterations: pl.DataFrame) -> pl.DataFrame:
    """Return the busy ratio of every iteration from its start on, and 0 where none follows."""
    length = pl.col("busy_ns") + pl.col("idle_ns")
    known = iterations.filter(length > 0).with_columns(end=pl.col("start_ns") + length)
    begins = known.select(time_ns="start_ns", value=(pl.col("busy_ns") / length).round(4))
    ends = known.filter(pl.col("end") != pl.col("start_ns").shift(-1, fill_value=-1)).select(
        time_ns="end", value=pl.lit(0.0)
    )
    return (
        pl.concat([begins, ends])
        .sort("time_ns")
        .select("time_ns", name=pl.lit("busy ratio"), value="value")
        .cast(COUNTERS)
    )
