"""The time of one device cut into segments, each of one event: the one that runs, or the one that it waits for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.trace import WORK_ACTIVITIES, Trace
from deepprof.metrics.annotation.host_segments import join_bounds
from deepprof.metrics.breakdown.parts import BUSY_PARTS, PART_NAMES
from deepprof.metrics.breakdown.timeline import Timeline
from deepprof.metrics.contexts.stacks import expand
from deepprof.metrics.loop import Loop

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

LOADING = PART_NAMES.index("idle_input_ns")
# Idle times in which the device had nothing queued: what the host did then is what it waited for.
OF_HOST = tuple(
    PART_NAMES.index(f"idle_{part}_ns") for part in ("launch", "sync", "allocator", "first_use", "blocked", "host")
)
UNKNOWN_PART = PART_NAMES.index("idle_unknown_ns")


class DeviceSegments(Struct, frozen=True, eq=False):
    """Segments [`start`, `end`) of a device's time in the iterations of a loop, sorted and without overlap.

    `iteration` is the row of `Loop.table`, `event` the row of `device_events`: of what runs on the main stream, else on
    another one; of an idle time, of what ends it; -1 for none. `loading` marks idle times in which the host loads data,
    `of_host` those in which it does anything else while nothing is queued.
    """

    start: Int64s
    end: Int64s
    iteration: Int64s
    event: Int64s
    busy: Bools
    loading: Bools
    of_host: Bools

    @property
    def length_ns(self) -> Int64s:
        """How long each segment is."""
        return self.end - self.start


def cut_device(trace: Trace, loop: Loop, timeline: Timeline) -> DeviceSegments:
    """Return the segments of a loop's device: those of an iteration add up to its busy and its idle time."""
    work = trace.device_events.with_row_index("event").filter(
        (pl.col("device") == loop.device) & pl.col("activity").is_in(WORK_ACTIVITIES)
    )
    start, end = work["start_ns"].to_numpy(), work["end_ns"].to_numpy()
    begin, until = find_windows(loop)
    bounds = join_bounds(timeline.bounds, start, end, begin, until)
    iteration = find_window(begin, until, bounds[:-1])
    kept = iteration >= 0
    begun, ended = bounds[:-1][kept], bounds[1:][kept]
    parts = np.append(timeline.parts, UNKNOWN_PART)  # a marker may end after the last event
    part = parts[np.searchsorted(timeline.bounds, begun, side="right") - 1]
    busy = part < len(BUSY_PARTS)
    event = np.append(work["event"].to_numpy().astype(np.int64), -1)
    running = _find_running(work, loop.stream, begun)
    following = np.searchsorted(start, begun, side="right")
    owner = event[np.where(busy, running, following)]
    return DeviceSegments(begun, ended, iteration[kept], owner, busy, part == LOADING, np.isin(part, OF_HOST))


def split_idle(segments: DeviceSegments, bounds: Int64s) -> DeviceSegments:
    """Return the segments with idle ones of the host cut at sorted `bounds`, so that each is between two of them."""
    idle = segments.of_host
    row = np.searchsorted(segments.start[idle], bounds, side="right") - 1
    inside = (row >= 0) & (bounds < np.append(segments.end[idle], 0)[row])
    start = join_bounds(segments.start, bounds[inside])
    at = np.searchsorted(segments.start, start, side="right") - 1
    end = np.minimum(segments.end[at], np.append(start, np.iinfo(np.int64).max)[1:])
    rest = (getattr(segments, name)[at] for name in ("iteration", "event", "busy", "loading", "of_host"))
    return DeviceSegments(start, end, *rest)


def find_windows(loop: Loop) -> tuple[Int64s, Int64s]:
    """Return begin and end of the iterations of a loop: until the next one, or to its own end where none follows."""
    table = loop.table
    begin = table["start_ns"].to_numpy()
    return begin, begin + (table["busy_ns"] + table["idle_ns"]).to_numpy()


def find_window(begin: Int64s, end: Int64s, times: Int64s) -> Int64s:
    """Return in which of the sorted windows [`begin`, `end`) each time is, -1 for none."""
    at = np.searchsorted(begin, times, side="right") - 1
    return np.where((at >= 0) & (times < np.append(end, 0)[at]), at, -1)


def _find_running(work: pl.DataFrame, main: int, times: Int64s) -> Int64s:
    """Return the row of `work` that runs at every time: on the main stream, else on the one with most events; or -1."""
    running, start, end = np.full(len(times), -1, np.int64), work["start_ns"].to_numpy(), work["end_ns"].to_numpy()
    for mine in _split_streams(work["stream"].to_numpy(), main):
        within = _list_within(np.searchsorted(times, start[mine]), np.searchsorted(times, end[mine]))
        free = within[running[within] < 0]
        running[free] = np.append(mine, -1)[find_open(start[mine], end[mine], times[free])]
    return running


def _split_streams(stream: Int64s, main: int) -> list[Int64s]:
    """Return the rows of every stream: the main one, then those with most rows."""
    rows = np.argsort(stream, kind="stable")
    parts = np.split(rows, np.flatnonzero(np.diff(stream[rows])) + 1) if len(rows) else []
    return sorted(parts, key=lambda part: (stream[part[0]] != main, -len(part), stream[part[0]]))


def _list_within(first: Int64s, last: Int64s) -> Int64s:
    """Return the places in the sections [`first`, `last`), sorted by their first one, each once."""
    reach = np.append(0, np.maximum.accumulate(last))[:-1]
    first = np.maximum(first, reach)
    return expand(first, np.maximum(first, last))


def find_open(start: Int64s, end: Int64s, times: Int64s) -> Int64s:
    """Return the row that is open at every time, the last begun one or else the one that lasts longest; -1 for none."""
    if not len(start):
        return np.full(len(times), -1, np.int64)
    reach = np.maximum.accumulate(end)
    new = np.append(True, end[1:] > reach[:-1])
    longest = np.maximum.accumulate(np.where(new, np.arange(len(end)), 0))
    at = np.searchsorted(start, times, side="right") - 1
    last = np.where((at >= 0) & (end[at] > times), at, -1)
    return np.where((last < 0) & (at >= 0) & (reach[at] > times), longest[at], last)
