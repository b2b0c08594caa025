"""Which stage the host is in at every time, and when iterations begin on it, before their kernels run."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from deepprof.collectors.trace import Trace
from deepprof.metrics.annotation.device_segments import find_open, find_windows
from deepprof.metrics.annotation.host_segments import cut_thread, join_bounds
from deepprof.metrics.annotation.stage_names import LOADING, OTHER
from deepprof.metrics.annotation.trace_annotation import TraceAnnotation
from deepprof.metrics.contexts.tree import ContextTree
from deepprof.metrics.host import read_launches
from deepprof.metrics.loop import Loop
from deepprof.metrics.sequence import main_kernels

Int8s = npt.NDArray[np.int8]
Int64s = npt.NDArray[np.int64]

THREADS = 4  # that are read: those that launch most, the main one of the loop first
LONGEST = 2  # times as long as on the device: an iteration's time on the host counts up to there


class StageSegments(Struct, frozen=True, eq=False):
    """Time cut into segments [`bounds[i]`, `bounds[i + 1]`), each of one stage; `row` is the open slice, or -1."""

    bounds: Int64s
    stage: Int8s
    row: Int64s


def cut_host(known: TraceAnnotation, loop: Loop) -> StageSegments | None:
    """Return the stages of the threads that launch a loop's work: the main thread's, else those of the others.

    What has no stage but is between two of one stage is part of it; else it is `other`. None without such threads.
    """
    tree, slices = known.tree, known.stages.of_slices
    if tree is None or slices is None:
        return None
    cut = [cut_thread(tree.slices, track) for track in _find_threads(tree, loop, known.trace)]
    bounds = join_bounds(*(edge for each in cut for edge in (each.start, each.end)))
    if len(bounds) <= 1:
        return None
    events = known.trace.device_events
    back = (events["copy_kind"] == "DtoH").fill_null(value=False).to_numpy()  # their calls wait for all work before
    of_slices = _add_launches(slices.stage, np.where(back, -1, tree.sites.row), known.stages.stage)
    stage, row = np.full(len(bounds) - 1, -1, np.int8), np.full(len(bounds) - 1, -1, np.int64)
    for each in cut:
        found = np.append(each.row, -1)[find_open(each.start, each.end, bounds[:-1])]
        of_thread = np.append(of_slices, -1)[found]
        better = (stage < 0) & ((of_thread >= 0) | (row < 0))
        stage[better], row[better] = of_thread[better], found[better]
    return StageSegments(bounds, _close(stage), row)


def _add_launches(of_slices: Int8s, site: Int64s, of_events: Int8s) -> Int8s:
    """Return the stages of slices; a call of none is part of that of the event that it launched (`site`: its row)."""
    found = of_slices.copy()
    known = (site >= 0) & (of_events >= 0)
    known[known] = of_slices[site[known]] < 0
    found[site[known]] = of_events[known]
    return found


def _find_threads(tree: ContextTree, loop: Loop, trace: Trace) -> list[int]:
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


def find_host_windows(trace: Trace, loop: Loop, host: StageSegments) -> tuple[Int64s, Int64s]:
    """Return begin and end of iterations on the host: from where it begins to load data, or else to launch.

    One that the recording of the host does not have to its end is empty; only of the last one the end is unknown.
    An iteration without a launch that is known begins when its first kernel does.
    """
    start, until = find_windows(loop)
    begin = _find_launches(trace, loop, start)
    before = np.append(host.bounds[0], begin)[: len(begin)]
    loading = host.bounds[:-1][host.stage == LOADING]
    first = np.append(loading, np.iinfo(np.int64).max)[np.searchsorted(loading, before, side="right")]
    begin = np.where(first < begin, first, begin)
    length = until - start
    end = np.append(begin, np.iinfo(np.int64).max)[1:]
    recorded = (begin >= host.bounds[0]) & (begin < host.bounds[-1])
    recorded[:-1] &= end[:-1] <= host.bounds[-1]
    end = np.minimum(np.minimum(end, host.bounds[-1]), begin + LONGEST * length)
    return begin, np.where(recorded, np.maximum(end, begin), begin)


def _find_launches(trace: Trace, loop: Loop, start: Int64s) -> Int64s:
    """Return when the first kernel of every iteration was launched, where that is known, else when it began."""
    main = main_kernels(trace, loop.device, loop.stream)
    if main.is_empty():
        return start
    first = main[np.minimum(np.searchsorted(main["start_ns"].to_numpy(), start), main.height - 1)]
    launches = read_launches(trace).select("correlation", "launch_ns")
    launched = first.join(launches, on="correlation", how="left", maintain_order="left")["launch_ns"]
    found = np.where(launched.is_null().to_numpy(), start, launched.fill_null(0).to_numpy())
    return np.minimum(np.maximum.accumulate(found), start)
