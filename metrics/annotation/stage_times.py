"""How long each stage took in each iteration: on the device, busy and idle, and on the host; nothing counts twice.

The device is busy with the stage of what its main stream runs, or another stream where that one rests. An idle time
belongs to the stage of the event that ends it, for which the device waited; but to loading data where the host did so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.table_schema import TableSchema
from deepprof.collectors.trace import Trace
from deepprof.metrics.annotation.context_stages import JudgedStages
from deepprof.metrics.annotation.event_stages import CONFIDENCES, TraceStages
from deepprof.metrics.annotation.host_segments import cut_thread
from deepprof.metrics.annotation.stage_names import STAGE, STAGES
from deepprof.metrics.breakdown.parts import BUSY_PARTS, PART_NAMES
from deepprof.metrics.breakdown.timeline import Timeline
from deepprof.metrics.contexts.tree import ContextTree
from deepprof.metrics.loop import Loop
from deepprof.metrics.sharing.work import WORK

Int8s = npt.NDArray[np.int8]
Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

UNKNOWN, OTHER, LOADING = (STAGES.index(stage) for stage in ("unknown", "other", "data loading"))
INPUT = PART_NAMES.index("idle_input_ns")
THREADS = 4  # of the host that are read: those that launch most, the main thread of the loop first

STAGE_TIMES = TableSchema.of(
    "What one stage took of one iteration. The busy times of all stages add up to that of the iteration, as the idle "
    "times do; the host's add up to the time from one iteration's begin on the host to the next one's.",
    {
        "iteration": (pl.Int64(), "the iteration's number in the loop"),
        "stage": (STAGE, "the stage"),
        "busy_ns": (pl.Int64(), "how long the device worked for it"),
        "idle_ns": (pl.Int64(), "how long the device waited for its first or next event"),
        "host_ns": (pl.Int64(), "how long the threads that launch were in it; null: not recorded"),
        "kernels": (pl.Int64(), "kernels and graphs of it that begin in the iteration"),
        "confidence": (pl.Float64(), "how sure it is: the mean over its device time; null without any"),
    },
)


@dataclass(frozen=True, slots=True)
class StageSegments:
    """Time cut into segments [`bounds[i]`, `bounds[i + 1]`), each of the stage `stage[i]`, -1 for none."""

    bounds: Int64s
    stage: Int8s


def measure_stages(
    trace: Trace, loop: Loop, events: TraceStages, timeline: Timeline, host: StageSegments | None
) -> pl.DataFrame:
    """Return what each stage took of each iteration of a loop, with the schema `STAGE_TIMES`."""
    table = loop.table
    start = table["start_ns"].to_numpy()
    end = start + (table["busy_ns"] + table["idle_ns"]).to_numpy()
    busy, idle = split_device(trace, loop, events, timeline)
    many, stages = len(start), len(STAGES)
    times = {name: _add_up(each, start, end) for name, each in (("busy_ns", busy), ("idle_ns", idle))}
    counts, sure = _count_kernels(trace, loop, events, start, end)
    on_host = None if host is None else _add_up(host, *_host_windows(trace, loop, start, host))
    columns = {
        "iteration": np.repeat(table["index"].to_numpy(), stages),
        "stage": pl.Series(list(STAGES) * many, dtype=STAGE),
        **{name: each.ravel() for name, each in times.items()},
        "host_ns": pl.Series([None] * (many * stages), dtype=pl.Int64) if on_host is None else on_host.ravel(),
        "kernels": counts.ravel(),
        "confidence": pl.Series(sure.ravel()).fill_nan(None),
    }
    rows = pl.DataFrame(columns).cast(dict(STAGE_TIMES))  # type: ignore[arg-type]
    anything = pl.any_horizontal(pl.col(name).fill_null(0) != 0 for name in ("busy_ns", "idle_ns", "host_ns", "kernels"))
    return rows.filter(anything)


def split_device(
    trace: Trace, loop: Loop, events: TraceStages, timeline: Timeline
) -> tuple[StageSegments, StageSegments]:
    """Return the stages of the busy, and of the idle time of a loop's device; -1 where it is not so."""
    work = trace.device_events.with_row_index("event").filter(
        (pl.col("device") == loop.device) & pl.col("activity").is_in(WORK)
    )
    start, end = work["start_ns"].to_numpy(), work["end_ns"].to_numpy()
    stage = events.stage[work["event"].to_numpy()]
    stage = np.where(stage < 0, UNKNOWN, stage).astype(np.int8)
    bounds = np.unique(np.concatenate([timeline.bounds, start, end, _last_end(loop)]))
    begun = bounds[:-1]
    parts = np.append(timeline.parts, PART_NAMES.index("idle_unknown_ns"))  # a marker may end after the last event
    part = parts[np.searchsorted(timeline.bounds, begun, side="right") - 1]
    running = np.full(len(begun), -1, np.int8)
    for stream in _by_importance(work, loop.stream):
        mine = (work["stream"] == stream).to_numpy()
        free = running < 0
        running[free] = _find_open(start[mine], end[mine], stage[mine], begun[free])
    busy = part < len(BUSY_PARTS)
    after = np.searchsorted(start, begun, side="right")
    next_stage = np.append(stage, UNKNOWN)[after]
    waiting = np.where(part == INPUT, LOADING, next_stage).astype(np.int8)
    of_busy = np.where(busy, np.where(running < 0, UNKNOWN, running), -1).astype(np.int8)
    return StageSegments(bounds, of_busy), StageSegments(bounds, np.where(busy, -1, waiting).astype(np.int8))


def _last_end(loop: Loop) -> Int64s:
    """Return when the last iteration of a loop ends."""
    end: Int64s = loop.table.select(pl.col("start_ns") + pl.col("busy_ns") + pl.col("idle_ns")).tail(1).to_series().to_numpy()
    return end


def _by_importance(work: pl.DataFrame, main: int) -> list[int]:
    """Return the streams, the main one first, then by how many events they have."""
    counts = work.group_by("stream").len().sort(pl.col("stream") != main, -pl.col("len").cast(pl.Int64), "stream")
    return counts["stream"].to_list()


def _find_open(start: Int64s, end: Int64s, stage: Int8s, times: Int64s) -> Int8s:
    """Return the stage of the event that is open at each time, the last begun one; -1 for none."""
    at = np.searchsorted(start, times, side="right") - 1
    reach = np.maximum.accumulate(end) if len(end) else end
    longest = _last_record(end)
    open_now = (at >= 0) & (np.append(end, 0)[at] > times)
    around = np.append(longest, 0)[at]
    open_before = (at >= 0) & ~open_now & (np.append(reach, 0)[at] > times)
    found = np.where(open_now, np.append(stage, -1)[at], -1)
    return np.where(open_before, np.append(stage, -1)[around], found).astype(np.int8)


def _last_record(end: Int64s) -> Int64s:
    """Return for each event the one up to it that ends last."""
    reach = np.maximum.accumulate(end) if len(end) else end
    new = np.append(True, end[1:] > reach[:-1]) if len(end) else np.zeros(0, np.bool_)
    found: Int64s = np.maximum.accumulate(np.where(new, np.arange(len(end)), 0))
    return found


def _add_up(segments: StageSegments, start: Int64s, end: Int64s) -> Int64s:
    """Return how long each stage is in each window [start, end): windows × `STAGES`."""
    lengths = np.diff(segments.bounds)
    found = np.zeros((len(start), len(STAGES)), np.int64)
    for stage in np.unique(segments.stage[segments.stage >= 0]):
        before = np.append(0, np.cumsum(np.where(segments.stage == stage, lengths, 0)))
        found[:, stage] = _elapsed(segments, before, int(stage), end) - _elapsed(segments, before, int(stage), start)
    return found


def _elapsed(segments: StageSegments, before: Int64s, stage: int, times: Int64s) -> Int64s:
    """Return how long the stage was until each time."""
    at = np.clip(np.searchsorted(segments.bounds, times, side="right") - 1, 0, len(segments.stage) - 1)
    inside = np.clip(times - segments.bounds[at], 0, np.diff(segments.bounds)[at])
    found: Int64s = before[at] + np.where(segments.stage[at] == stage, inside, 0)
    return found


def _count_kernels(
    trace: Trace, loop: Loop, events: TraceStages, start: Int64s, end: Int64s
) -> tuple[Int64s, Floats]:
    """Return how many kernels of each stage begin in each iteration, and how sure the stage of the work is."""
    work = trace.device_events.with_row_index("event").filter(
        (pl.col("device") == loop.device) & pl.col("activity").is_in(WORK)
    )
    begun = work["start_ns"].to_numpy()
    at = np.searchsorted(start, begun, side="right") - 1
    inside = (at >= 0) & (begun < np.append(end, 0)[at])
    rows = work["event"].to_numpy()[inside]
    stage = np.where(events.stage[rows] < 0, UNKNOWN, events.stage[rows])
    place = at[inside] * len(STAGES) + stage
    size, shape = len(start) * len(STAGES), (len(start), len(STAGES))
    kernel = work["activity"].is_in(["kernel", "graph"]).to_numpy()[inside]
    length = (work["end_ns"] - work["start_ns"]).to_numpy()[inside].astype(np.float64) + 1  # also where all is empty
    sure = np.array(CONFIDENCES)[events.evidence[rows]]
    weight = np.bincount(place, length, size)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(place, length * sure, size) / np.where(weight > 0, weight, np.nan)
    return np.bincount(place[kernel], minlength=size).reshape(shape), mean.reshape(shape)


def cut_host(tree: ContextTree, slices: JudgedStages, loop: Loop, trace: Trace) -> StageSegments | None:
    """Return the stages of the threads that launch a loop's work: the main thread's, else those of the others.

    A time for which none of them has a stage is `other`, or lies between two of one stage and is part of it.
    """
    threads = _launching_threads(tree, loop, trace)
    if not threads:
        return None
    cut = [cut_thread(tree.slices, track) for track in threads]
    bounds = np.unique(np.concatenate([edge for each in cut for edge in (each.start, each.end)]))
    found = np.full(max(0, len(bounds) - 1), -1, np.int8)
    for each in cut:
        stage = slices.stage[each.row]
        free = found < 0
        found[free] = _find_open(each.start, each.end, stage, bounds[:-1][free])
    return StageSegments(bounds, _close(found))


def _launching_threads(tree: ContextTree, loop: Loop, trace: Trace) -> list[int]:
    """Return the threads that launch work of a loop's device, those with the most launches first."""
    mine = (trace.device_events["device"] == loop.device).to_numpy() & (tree.sites.row >= 0)
    tracks, counts = np.unique(tree.slices.track[tree.sites.row[mine]], return_counts=True)
    order: list[int] = tracks[np.argsort(-counts, kind="stable")][:THREADS].tolist()
    return order


def _close(stage: Int8s) -> Int8s:
    """Return the stages of segments, with those between two of one stage; all others without one are `other`."""
    known = np.flatnonzero(stage >= 0)
    if not len(known):
        return np.full(len(stage), OTHER, np.int8)
    place = np.searchsorted(known, np.arange(len(stage)))
    after = stage[known[np.minimum(place, len(known) - 1)]]
    before = stage[known[np.maximum(place - 1, 0)]]
    same = (before == after) & (place > 0) & (place < len(known))
    return np.where(stage >= 0, stage, np.where(same, after, OTHER)).astype(np.int8)


def _host_windows(trace: Trace, loop: Loop, start: Int64s, host: StageSegments) -> tuple[Int64s, Int64s]:
    """Return begin and end of iterations on the host: from where it begins to load data, or else to launch.

    An iteration without a launch that is known begins when its first kernel does; the last one ends with the recording
    of the host, at most as long after as it takes on the device.
    """
    begin = _first_launches(trace, loop, start)
    before = np.append(host.bounds[0], begin[:-1])
    loading = host.bounds[:-1][host.stage == LOADING]
    at = np.searchsorted(loading, before, side="right")
    first = np.append(loading, np.iinfo(np.int64).max)[at]
    begin = np.where(first < begin, first, begin)
    lengths = (loop.table["busy_ns"] + loop.table["idle_ns"]).to_numpy()
    end = np.append(begin[1:], min(int(begin[-1] + lengths[-1]), int(host.bounds[-1]))) if len(begin) else begin
    return begin, np.maximum(np.minimum(end, begin + 2 * lengths), begin)


def _first_launches(trace: Trace, loop: Loop, start: Int64s) -> Int64s:
    """Return when the first kernel of each iteration was launched, where that is known, else when it began."""
    own = (pl.col("device") == loop.device) & (pl.col("stream") == loop.stream)
    main = trace.device_events.filter(own & pl.col("activity").is_in(["kernel", "graph"]))
    first = main[np.minimum(np.searchsorted(main["start_ns"].to_numpy(), start), max(0, main.height - 1))]
    calls = trace.host_events.filter((pl.col("category") == "runtime") & pl.col("correlation").is_not_null())
    calls = calls.unique("correlation", keep="first").select("correlation", launched="start_ns")
    known = first.select("correlation").join(calls, on="correlation", how="left", maintain_order="left")
    found = known.select(pl.col("launched").fill_null(pl.Series(start))).to_series().to_numpy()
    return np.minimum(np.maximum.accumulate(found), start) if len(found) else found

