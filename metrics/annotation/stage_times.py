"""How long each stage took in each iteration: on the device, busy and idle, and on the host; nothing counts twice.

The device is busy with the stage of what its main stream runs, or another stream where that one rests. Idle time in
which nothing is queued belongs to the stage that the host is in, as far as that is recorded, and to loading data where
it does so; any other idle time to the stage of the event that ends it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.metrics.annotation.anatomy_tables import STAGE_TIMES
from deepprof.metrics.annotation.device_segments import DeviceSegments, find_window, find_windows, split_idle
from deepprof.metrics.annotation.event_stages import CONFIDENCES, TraceStages
from deepprof.metrics.annotation.host_segments import join_bounds
from deepprof.metrics.annotation.host_stages import StageSegments, find_host_windows
from deepprof.metrics.annotation.stage_names import LOADING, OTHER, STAGE, STAGES, UNKNOWN
from deepprof.metrics.loop import Loop
from deepprof.metrics.sharing.work import WORK

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


AMOUNTS = ("busy_ns", "idle_ns", "host_ns", "kernels")


def measure_stages(
    trace: Trace, loop: Loop, stages: TraceStages, segments: DeviceSegments, host: StageSegments | None
) -> pl.DataFrame:
    """Return what each stage took of each iteration of a loop, with the schema `STAGE_TIMES`."""
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
        "busy_ns": _add_up(segments.iteration, stage, length * segments.busy, many),
        "idle_ns": _add_up(segments.iteration, stage, length * ~segments.busy, many),
        "host_ns": _measure_host(trace, loop, host, many),
        "kernels": counts,
        "confidence": pl.Series(sure).fill_nan(None),
    }
    rows = pl.DataFrame(columns).cast(dict(STAGE_TIMES))  # type: ignore[arg-type]
    return rows.filter(pl.any_horizontal(pl.col(name).fill_null(0) != 0 for name in AMOUNTS))


def _add_up(iteration: Int64s, stage: npt.NDArray[np.integer], amount: Int64s, many: int) -> Int64s:
    """Return the sums for each iteration and stage, one row after the other; exact up to 2^53 ns, 104 days."""
    return np.bincount(iteration * len(STAGES) + stage, amount, many * len(STAGES)).astype(np.int64)


def _find_stages(host: StageSegments, times: Int64s) -> npt.NDArray[np.int8]:
    """Return the stage that the host is in at each time, -1 where it is not recorded."""
    at = np.searchsorted(host.bounds, times, side="right") - 1
    known = (at >= 0) & (at < len(host.stage))
    return np.where(known, host.stage[np.where(known, at, 0)], -1).astype(np.int8)


def _measure_host(trace: Trace, loop: Loop, host: StageSegments | None, many: int) -> pl.Series:
    """Return how long each stage took on the host, for each iteration and stage; null where it is not recorded."""
    if host is None or not len(host.stage):
        return pl.Series([None] * (many * len(STAGES)), dtype=pl.Int64)
    begin, end = find_host_windows(trace, loop, host)
    bounds = join_bounds(host.bounds, begin, end)
    stage, iteration = _find_stages(host, bounds[:-1]), find_window(begin, end, bounds[:-1])
    kept = iteration >= 0
    times = _add_up(iteration[kept], np.where(stage < 0, OTHER, stage)[kept], np.diff(bounds)[kept], many)
    recorded = pl.Series(np.repeat(end > begin, len(STAGES)))
    return pl.select(pl.when(recorded).then(pl.Series(times))).to_series()


def _count_kernels(trace: Trace, loop: Loop, stages: TraceStages, of_events: Int64s) -> tuple[Int64s, Floats]:
    """Return how many kernels of each stage begin in each iteration, and how sure the stage of the work is."""
    work = trace.device_events.with_row_index("event").filter(
        (pl.col("device") == loop.device) & pl.col("activity").is_in(WORK)
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
