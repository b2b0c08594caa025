"""What a loop's iterations are made of: stages and layers as statistics, and the iteration that represents all."""

from __future__ import annotations

import numpy as np
import polars as pl

from deepprof.collectors.trace import empty_table
from deepprof.metrics.annotation.anatomy_tables import LAYER_TIMES, STAGES_IN_LOOP, Anatomy
from deepprof.metrics.annotation.device_segments import cut_device
from deepprof.metrics.annotation.host_stages import cut_host
from deepprof.metrics.annotation.layer_times import measure_layers
from deepprof.metrics.annotation.stage_times import measure_stages
from deepprof.metrics.annotation.trace_annotation import TraceAnnotation
from deepprof.metrics.breakdown.timeline import Timeline
from deepprof.metrics.loop import Loop


def read_anatomy(known: TraceAnnotation, loop: Loop, timeline: Timeline) -> Anatomy:
    """Return what the iterations of a loop are made of; `timeline` is that of its device."""
    segments, layers = cut_device(known.trace, loop, timeline), known.layers
    times = measure_stages(known.trace, loop, known.stages, segments, cut_host(known, loop))
    of_layers = empty_table(LAYER_TIMES) if layers is None else measure_layers(loop, layers, known.stages, segments)
    return Anatomy(
        _summarize(times, loop),
        times,
        of_layers if of_layers.height > 1 else of_layers.clear(),
        layers.source if layers is not None and of_layers.height > 1 else None,
        _find_representative(times, loop),
    )


def _summarize(times: pl.DataFrame, loop: Loop) -> pl.DataFrame:
    """Return the statistics of stages over the usual iterations; one that has none of a stage counts as 0."""
    index, many = loop.usual["index"], max(1, loop.usual.height)
    usual = times.filter(pl.col("iteration").is_in(index.implode()))
    stages = usual["stage"].unique().sort()
    every = index.to_frame("iteration").join(stages.to_frame(), how="cross")
    rows = every.join(usual, on=["iteration", "stage"], how="left").with_columns(
        pl.col("busy_ns", "idle_ns", "kernels").fill_null(0)
    )
    device = (pl.col("busy_ns") + pl.col("idle_ns")).cast(pl.Float64)
    recorded = usual.filter(pl.col("host_ns").is_not_null())["iteration"].n_unique()
    weight = pl.col("busy_ns").filter(pl.col("confidence").is_not_null()) + 1
    table = rows.group_by("stage").agg(
        device_ns=device.median().round(),
        low_ns=device.quantile(0.05, "linear").round(),
        high_ns=device.quantile(0.95, "linear").round(),
        mean_busy_ns=pl.col("busy_ns").sum() / many,
        mean_idle_ns=pl.col("idle_ns").sum() / many,
        mean_host_ns=pl.col("host_ns").fill_null(0).sum() / recorded if recorded else None,
        kernels=pl.col("kernels").sum() / many,
        confidence=(pl.col("confidence").drop_nulls() * weight).sum() / weight.sum(),
    )
    table = table.with_columns(pl.col("confidence").fill_nan(None))
    return table.sort("stage").select(list(STAGES_IN_LOOP)).cast(dict(STAGES_IN_LOOP))  # type: ignore[arg-type]


def _find_representative(times: pl.DataFrame, loop: Loop) -> int | None:
    """Return the usual iteration whose stages differ least from their medians, the first of several."""
    usual = loop.usual.select(iteration="index")
    if usual.is_empty():
        return None
    known = times.filter(pl.col("iteration").is_in(usual["iteration"].implode()))
    wide = known.select("iteration", "stage", ns=pl.col("busy_ns") + pl.col("idle_ns")).pivot(
        "stage", index="iteration", values="ns"
    )
    table = usual.join(wide, on="iteration", how="left", maintain_order="left").fill_null(0)
    values = table.drop("iteration").to_numpy().astype(np.float64)
    if not values.shape[1]:
        return int(table["iteration"][0])
    return int(table["iteration"][int(np.abs(values - np.median(values, axis=0)).sum(axis=1).argmin())])
