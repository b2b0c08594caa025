"""What a loop's iterations are made of: the times of stages and layers in every iteration, and their statistics."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.trace import WORK_ACTIVITIES, Trace, empty_table
from deepprof.metrics.annotation.anatomy_tables import LAYER_TIMES, STAGE_TIMES, STAGES_IN_LOOP, Anatomy
from deepprof.metrics.annotation.device_segments import (
    DeviceSegments,
    cut_device,
    find_window,
    find_windows,
    split_idle,
)
from deepprof.metrics.annotation.event_stages import CONFIDENCES, TraceStages
from deepprof.metrics.annotation.host_segments import join_bounds
from deepprof.metrics.annotation.host_stages import StageSegments, cut_host, find_host_windows
from deepprof.metrics.annotation.layers import TraceLayers
from deepprof.metrics.annotation.stage_names import BACKWARD, FORWARD, LOADING, OTHER, STAGE, STAGES, UNKNOWN
from deepprof.metrics.annotation.trace_annotation import TraceAnnotation
from deepprof.metrics.breakdown.timeline import Timeline
from deepprof.metrics.contexts.paths import add_up
from deepprof.metrics.loop import Loop

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

CELLS = 2_000_000  # iterations times layers that are read: of more iterations some are enough for a median
PASSES = ("busy_ns", "forward_ns", "backward_ns", "idle_ns")

AMOUNTS = ("busy_ns", "idle_ns", "host_ns", "kernels")


def read_anatomy(known: TraceAnnotation, loop: Loop, timeline: Timeline) -> Anatomy:
    """Return what the iterations of a loop are made of; `timeline` is that of its device."""
    segments, layers = cut_device(known.trace, loop, timeline), known.layers
    times = _measure_stages(known.trace, loop, known.stages, segments, cut_host(known, loop))
    of_layers = empty_table(LAYER_TIMES) if layers is None else _measure_layers(loop, layers, known.stages, segments)
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


def _measure_layers(loop: Loop, layers: TraceLayers, stages: TraceStages, segments: DeviceSegments) -> pl.DataFrame:
    """Return what each layer needs of a usual iteration of a loop, with the schema `LAYER_TIMES`.

    TraceLayers without any event in it are left out, unless others are within.
    """
    usual = _choose_iterations(loop, len(layers.name))
    own = _add_up(usual, layers, stages, segments)
    depth, parent = layers.depth, np.maximum(layers.parent, 0)
    whole = add_up(own, parent, depth)
    counts = add_up(_count_events(usual, layers, segments), parent, depth)
    kept = (counts > 0) | (np.arange(len(counts)) == 0)
    number = np.cumsum(kept) - 1
    busy, forward, backward, idle = (whole[:, :, place] for place in range(len(PASSES)))
    table = pl.DataFrame(
        {
            "layer": number[kept],
            "parent": pl.Series(np.where(layers.parent < 0, -1, number[parent])[kept]).replace(-1, None),
            "depth": depth[kept],
            "name": [name for name, keep in zip(layers.name, kept, strict=True) if keep],
            "path": [path for path, keep in zip(layers.write_paths(), kept, strict=True) if keep],
            "busy_ns": _percentile(busy, 50)[kept],
            "low_ns": _percentile(busy, 5)[kept],
            "high_ns": _percentile(busy, 95)[kept],
            "forward_ns": _percentile(forward, 50)[kept],
            "backward_ns": _percentile(backward, 50)[kept],
            "idle_ns": _percentile(idle, 50)[kept],
            "own_busy_ns": _percentile(own[:, :, 0], 50)[kept],
            "kernels": counts[kept] / max(1, len(usual)),
        }
    )
    return table.cast(dict(LAYER_TIMES))  # type: ignore[arg-type]


def _choose_iterations(loop: Loop, layers: int) -> Int64s:
    """Return the rows of the usual iterations that are read, spread evenly."""
    rows = loop.table.with_row_index("row").join(loop.usual.select("index"), on="index")["row"].to_numpy()
    rows = np.sort(rows).astype(np.int64)
    step = -(-len(rows) * layers // CELLS) if len(rows) else 1
    return rows[:: max(1, step)]


def _add_up(usual: Int64s, layers: TraceLayers, stages: TraceStages, segments: DeviceSegments) -> Int64s:
    """Return how long each layer itself took in every iteration, by `PASSES`: layers × iterations × passes."""
    place = np.full(int(segments.iteration.max(initial=-1)) + 1, -1, np.int64)
    place[usual[usual < len(place)]] = np.flatnonzero(usual < len(place))
    at, length = place[segments.iteration], segments.length_ns
    layer = np.append(layers.of_events, 0)[segments.event]
    stage = np.append(stages.stage, -1)[segments.event]
    sums = np.zeros((len(layers.name), len(usual), len(PASSES)), np.int64)
    read = at >= 0
    for number, rows in enumerate(
        (
            segments.busy,
            segments.busy & (stage == FORWARD),
            segments.busy & (stage == BACKWARD),
            ~segments.busy & ~segments.loading,
        )
    ):
        kept = read & rows
        np.add.at(sums[:, :, number], (layer[kept], at[kept]), length[kept])
    return sums


def _count_events(usual: Int64s, layers: TraceLayers, segments: DeviceSegments) -> Int64s:
    """Return how many events each layer itself has in the iterations that are read."""
    kept = segments.busy & np.isin(segments.iteration, usual) & (segments.event >= 0)
    events = np.unique(segments.event[kept])
    return np.bincount(layers.of_events[events], minlength=len(layers.name))


def _percentile(values: Int64s, percent: float) -> Int64s:
    """Return a percentile over the iterations, 0 where there are none: for every layer."""
    if not values.shape[1]:
        return np.zeros(len(values), np.int64)
    return np.rint(np.percentile(values, percent, axis=1)).astype(np.int64)


def _measure_stages(
    trace: Trace, loop: Loop, stages: TraceStages, segments: DeviceSegments, host: StageSegments | None
) -> pl.DataFrame:
    """Return what each stage needed of every iteration of a loop, with the schema `STAGE_TIMES`."""
    of_events = np.append(np.where(stages.stage < 0, UNKNOWN, stages.stage), UNKNOWN)  # -1, no event, is the last
    if host is not None:
        segments = split_idle(segments, host.bounds)
    stage = of_events[segments.event]
    if host is not None:
        in_host = _find_stages(host, segments.start)
        stage = np.where(segments.of_host & (in_host >= 0), in_host, stage)
    stage = np.where(segments.loading, LOADING, stage)
    many, length = loop.table.height, segments.length_ns
    counts, sure = _count_kernels(trace, loop, stages, of_events)
    columns = {
        "iteration": np.repeat(loop.table["index"].to_numpy(), len(STAGES)),
        "stage": pl.Series(list(STAGES) * many, dtype=STAGE),
        "busy_ns": _add_up_stages(segments.iteration, stage, length * segments.busy, many),
        "idle_ns": _add_up_stages(segments.iteration, stage, length * ~segments.busy, many),
        "host_ns": _measure_host(trace, loop, host, many),
        "kernels": counts,
        "confidence": pl.Series(sure).fill_nan(None),
    }
    rows = pl.DataFrame(columns).cast(dict(STAGE_TIMES))  # type: ignore[arg-type]
    return rows.filter(pl.any_horizontal(pl.col(name).fill_null(0) != 0 for name in AMOUNTS))


def _add_up_stages(iteration: Int64s, stage: npt.NDArray[np.integer], amount: Int64s, many: int) -> Int64s:
    """Return the sums for every iteration and stage, one row after the other; exact up to 2^53 ns, 104 days."""
    return np.bincount(iteration * len(STAGES) + stage, amount, many * len(STAGES)).astype(np.int64)


def _find_stages(host: StageSegments, times: Int64s) -> npt.NDArray[np.int8]:
    """Return the stage that the host is in at every time, -1 where it is not recorded."""
    at = np.searchsorted(host.bounds, times, side="right") - 1
    known = (at >= 0) & (at < len(host.stage))
    return np.where(known, host.stage[np.where(known, at, 0)], -1).astype(np.int8)


def _measure_host(trace: Trace, loop: Loop, host: StageSegments | None, many: int) -> pl.Series:
    """Return how long each stage needed on the host, for every iteration and stage; null where it is not recorded."""
    if host is None or not len(host.stage):
        return pl.Series([None] * (many * len(STAGES)), dtype=pl.Int64)
    begin, end = find_host_windows(trace, loop, host)
    bounds = join_bounds(host.bounds, begin, end)
    stage, iteration = _find_stages(host, bounds[:-1]), find_window(begin, end, bounds[:-1])
    kept = iteration >= 0
    times = _add_up_stages(iteration[kept], np.where(stage < 0, OTHER, stage)[kept], np.diff(bounds)[kept], many)
    recorded = pl.Series(np.repeat(end > begin, len(STAGES)))
    return pl.select(pl.when(recorded).then(pl.Series(times))).to_series()


def _count_kernels(trace: Trace, loop: Loop, stages: TraceStages, of_events: Int64s) -> tuple[Int64s, Floats]:
    """Return how many kernels of every stage begin in every iteration, and how sure the stage of the work is."""
    work = trace.device_events.with_row_index("event").filter(
        (pl.col("device") == loop.device) & pl.col("activity").is_in(WORK_ACTIVITIES)
    )
    iteration = find_window(*find_windows(loop), work["start_ns"].to_numpy())
    work, iteration = work.filter(pl.Series(iteration >= 0, dtype=pl.Boolean)), iteration[iteration >= 0]
    rows, size = work["event"].to_numpy(), loop.table.height * len(STAGES)
    place = iteration * len(STAGES) + of_events[rows]
    kernel = work["activity"].is_in(["kernel", "graph"]).to_numpy()
    length = (work["end_ns"] - work["start_ns"]).to_numpy().astype(np.float64) + 1  # also where all have no length
    weight = np.bincount(place, length, size)
    sure = np.bincount(place, length * np.array(CONFIDENCES)[stages.evidence[rows]], size)
    return np.bincount(place[kernel], minlength=size), sure / np.where(weight > 0, weight, np.nan)
