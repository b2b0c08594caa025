"""Where the time of one device goes: its span cut into segments, each of exactly one part (`parts`).

A late launch is due to a wait of the host where the host could have launched earlier without that wait.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from deepprof.collectors.reprs import in_milliseconds, one_line
from deepprof.collectors.trace import WORK_ACTIVITIES, Trace
from deepprof.metrics.breakdown.gaps import BETWEEN_NS, HELD_BACK_NS, NO_GAPS, Gaps, find_gaps, find_held, judge_gaps
from deepprof.metrics.breakdown.host_states import (
    HostStates,
    joined,
    long_unrecorded,
    long_without,
    read_states,
    with_unrecorded,
)
from deepprof.metrics.breakdown.long_calls import LONG_NS
from deepprof.metrics.breakdown.parts import BUSY_PARTS, COPY_PARTS, PART_NAMES
from deepprof.metrics.names import with_names
from deepprof.metrics.operators import is_stand_in
from deepprof.metrics.sharing.work import OtherWork
from deepprof.metrics.spans import NOTHING, Painted, Spans, covered, elapsed, intersect, paint, union
from deepprof.metrics.streams import is_collective, is_mostly_copies
from deepprof.plurals import counted

Int64s = npt.NDArray[np.int64]

BY_HOST = (  # idle time that is shorter where the host is ahead
    "idle_launch_ns",
    "idle_input_ns",
    "idle_sync_ns",
    "idle_allocator_ns",
    "idle_first_use_ns",
    "idle_blocked_ns",
    "idle_host_ns",
)
WITHIN_CALLS = ("idle_first_use_ns", "idle_blocked_ns")  # even a call that launches
WHOLE_GRAPH = 1_000  # kernels that a graph counts as: any large number

FILLED_NS = 2_000_000  # a queue is filled when what is launched begins this much later: a short lead is soon lost again
NEVER = np.int64(1 << 61)


class Timeline(Struct, frozen=True, eq=False):
    """The span of one device, from its first event to its last, as segments [bounds[i], bounds[i + 1]).

    `parts[i]` indexes `PART_NAMES`. `host` is what the threads that feed the device were doing, None if the trace does
    not record it. `held` is when kernels, and when copies, may have waited for other processes; without `host` that is
    uncertain, and no part of its own. `held_back` is when queued work waits for nothing that the trace shows, in the
    idle time of unknown cause or of other processes. `earlier` is when the first work of a stream is queued, and waits
    most likely for work from before the recording. `between_ns` is what the device takes from one kernel to the next
    where both are queued. `start_pauses` is when the host most likely reads a library for its first use, though nothing
    was recorded (`start`).
    """

    device: int
    bounds: Int64s
    parts: npt.NDArray[np.int16]
    host: HostStates | None
    held: tuple[Spans, Spans] = (NOTHING, NOTHING)
    held_back: Spans = NOTHING
    earlier: Spans = NOTHING
    between_ns: int = BETWEEN_NS
    start_pauses: Spans = NOTHING

    def __repr__(self) -> str:
        segments, span = counted(len(self.parts), "segment"), int(np.diff(self.bounds).sum())
        return one_line(self, f"device {self.device}", segments, in_milliseconds(span))

    def split(self, starts: Int64s, ends: Int64s) -> dict[str, Int64s]:
        """Return for every part how many nanoseconds of every window [start, end) belong to it; windows may overlap.

        The sum over all parts is the length of the window within the device's span.
        """
        lengths = np.diff(self.bounds)
        return {
            name: _within(self.bounds, np.where(self.parts == number, lengths, 0), starts, ends)
            for number, name in enumerate(PART_NAMES)
        }

    def spans(self, names: Sequence[str]) -> Spans:
        """Return the device's time that belongs to one of the parts `names`."""
        wanted = np.isin(self.parts, [PART_NAMES.index(name) for name in names])
        return union(self.bounds[:-1][wanted], self.bounds[1:][wanted])

    def repaint(self, spans: Spans, names: Sequence[str], part: str) -> Timeline:
        """Return the timeline in which the time within `spans` that belongs to one of `names` belongs to `part`."""
        inside = intersect(spans, self.spans(names))
        if not inside.total_ns:
            return self
        bounds = np.unique(np.concatenate([self.bounds, inside.starts, inside.ends]))
        parts = self.parts[np.searchsorted(self.bounds, bounds[:-1], side="right") - 1]
        there = covered(inside, bounds[:-1], bounds[1:]) > 0
        return replace(self, bounds=bounds, parts=np.where(there, np.int16(PART_NAMES.index(part)), parts))

    def cut(self, since_ns: int, until_ns: int) -> Timeline:
        """Return the timeline from `since_ns` to `until_ns`, both of which are bounds."""
        begin, end = np.searchsorted(self.bounds, [since_ns, until_ns])
        return replace(self, bounds=self.bounds[begin : end + 1], parts=self.parts[begin:end])

    def find_waits(self) -> tuple[Int64s, Int64s, Int64s]:
        """Return begin, end and part (of `PART_NAMES`) of every maximal section of one idle part, in order of time."""
        parts = self.parts.astype(np.int64)
        first = np.flatnonzero(np.append(True, parts[1:] != parts[:-1])[: len(parts)])
        until = np.append(first[1:], len(parts))[: len(first)]
        idle = parts[first] >= len(BUSY_PARTS)
        first, until = first[idle], until[idle]
        return self.bounds[first], self.bounds[until], parts[first]

    @property
    def starting(self) -> Spans:
        """The time before the first work, and that in which the host uses something for the first time."""
        worked = np.flatnonzero(self.parts < len(BUSY_PARTS))
        before = self.bounds[[0, worked[0]]].astype(np.int64) if len(worked) else np.zeros(2, np.int64)
        return union(*joined(Spans(before[:1], before[1:]), self.spans(["idle_first_use_ns"])))

    @property
    def totals_ns(self) -> dict[str, int]:
        """The time of every part; the sum is the device's span."""
        lengths = np.diff(self.bounds)
        return {name: int(lengths[self.parts == number].sum()) for number, name in enumerate(PART_NAMES)}


def _within(bounds: Int64s, lengths: Int64s, starts: Int64s, ends: Int64s) -> Int64s:
    """Return how much of `lengths`, each either its whole segment or 0, is in every window."""
    if not len(lengths):
        return np.zeros(len(starts), np.int64)
    before = np.append(0, np.cumsum(lengths))

    def elapsed(times: Int64s) -> Int64s:
        index = np.clip(np.searchsorted(bounds, times, side="right") - 1, 0, len(lengths) - 1)
        return np.asarray(before[index] + np.clip(times - bounds[index], 0, lengths[index]))

    return elapsed(ends) - elapsed(np.minimum(starts, ends))


def lay_out(trace: Trace, device: int, launches: pl.DataFrame, others: OtherWork | None = None) -> Timeline:
    """Return where the time of `device` goes; `launches` is `metrics.host.HostSide.launches` of the trace.

    `others` is the work of other processes on the device.
    """
    work = trace.device_events.filter((pl.col("device") == device) & pl.col("activity").is_in(WORK_ACTIVITIES))
    if is_stand_in(trace):
        busy = _busy_layers(with_names(work, trace.names))
        states = read_states(trace, _own_calls(trace, work), busy[0])
        return _paint_parts(device, _extent(work), busy, NO_GAPS, states)
    linked = with_names(work, trace.names).join(launches, on="correlation", how="left", maintain_order="left")
    calls = _feeding_calls(linked)
    extent, busy = _extent(work), _busy_layers(linked)
    host = read_states(trace, calls) if calls.height else None
    host = host and with_unrecorded(host, _idle_in(extent, union(*joined(*busy))))
    found = find_gaps(linked)
    queued = linked.filter(pl.col("launch_ns").is_not_null())
    filled = find_filled(queued["launch_ns"].to_numpy(), queued["start_ns"].to_numpy())
    gaps = replace(judge_gaps(trace, device, found), filled=filled)
    if others is not None:
        gaps = replace(gaps, held=find_held(linked, found, others))
    timeline = _paint_parts(device, extent, busy, gaps, host)
    return replace(timeline, between_ns=found.between_ns)


def _feeding_calls(linked: pl.DataFrame) -> pl.DataFrame:
    """Return the calls that launched kernels and graphs, with the number of kernels, as `read_states` reads them.

    Of a device with hardly any these are the calls that copy.
    """
    activities = ["kernel", "graph", *(["memcpy"] if is_mostly_copies(linked) else [])]
    feeding = linked.filter(pl.col("activity").is_in(activities) & pl.col("launch_ns").is_not_null())
    graph = (pl.col("activity") == "graph").any()  # recorded as one event, whatever it contains
    return feeding.group_by("correlation", maintain_order=True).agg(
        pl.col("launch_ns", "process", "thread").first(), kernels=pl.when(graph).then(WHOLE_GRAPH).otherwise(pl.len())
    )


def _own_calls(trace: Trace, operators: pl.DataFrame) -> pl.DataFrame:
    """Return the operators that count as kernels (CPU fallback) as calls of their thread, which is their stream."""
    rows = pl.concat([trace.host_events.select("process", "thread"), trace.annotations.select("process", "thread")])
    threads = rows.unique(maintain_order=True)
    calls = operators.select(launch_ns="start_ns", thread="stream")
    return calls.join(threads, on="thread", how="left").select("launch_ns", "process", "thread", kernels=pl.lit(1))


def _extent(work: pl.DataFrame) -> tuple[int, int]:
    """Return the first start and the last end, also of events without length."""
    start, end = work["start_ns"].to_numpy(), work["end_ns"].to_numpy()
    return (int(start.min()), int(end.max())) if len(start) else (0, 0)


def _busy_layers(work: pl.DataFrame) -> list[Spans]:
    """Return the spans of every busy part, in the order of `BUSY_PARTS`."""
    start, end = work["start_ns"].to_numpy(), work["end_ns"].to_numpy()
    kinds = work.select(kind=kind_of_work())["kind"].to_numpy()
    return [union(start[kinds == number], end[kinds == number]) for number in range(len(BUSY_PARTS))]


def kind_of_work() -> pl.Expr:
    """Return the number of the busy part that an event is; a kernel without a name computes."""
    collective = is_collective().fill_null(value=False)
    copies = {way: BUSY_PARTS.index(part) for way, part in COPY_PARTS.items()}
    ways = pl.col("copy_kind").cast(pl.String).replace_strict(copies, default=copies[None], return_dtype=pl.Int8())
    return (
        pl.when(collective)
        .then(BUSY_PARTS.index("exposed_communication_ns"))
        .when(pl.col("activity") == "memcpy")
        .then(ways)
        .when(pl.col("activity") == "memset")
        .then(BUSY_PARTS.index("exposed_memset_ns"))
        .otherwise(BUSY_PARTS.index("compute_ns"))
    )


def _paint_parts(
    device: int, bounds: tuple[int, int], busy: list[Spans], gaps: Gaps, host: HostStates | None
) -> Timeline:
    """Return the timeline of the busy time, the idle time that the device itself explains, and the host's idle time.

    `bounds` are the begin and the end of the device's span.
    """
    worked = union(*joined(*busy))
    layers: list[tuple[str, Spans]] = [*zip(BUSY_PARTS, busy, strict=True)]
    held_kernels, held_copies = gaps.held if host is not None else NO_GAPS.held
    stalls = {} if host is None else _find_stalls(host, _idle_in(bounds, worked))
    layers += [
        ("idle_shared_ns", held_copies),  # before the call that waits for the copy
        ("idle_dependency_ns", gaps.dependency),
        ("idle_startup_ns", gaps.startup),
        ("idle_shared_ns", held_kernels),
        ("idle_submission_ns", NOTHING if host is None else _submitted_late(gaps, host.waiting, worked)),
        ("idle_startup_ns", NOTHING if host is None else _begun_late(gaps.unknown, host.waiting)),
        ("idle_unknown_ns", gaps.unknown),
        *((part, stalls.get(part, NOTHING)) for part in WITHIN_CALLS),
        ("idle_launch_ns", gaps.launching),
        ("idle_unknown_ns", NOTHING if host is None else host.recorder),
        ("idle_unknown_ns", NOTHING if host is None else long_unrecorded(host, bounds)),
        *((part, spans) for part, spans in stalls.items() if part not in WITHIN_CALLS),
        ("idle_host_ns", NOTHING if host is None else long_without(host, bounds)),
    ]
    rest = "idle_unknown_ns" if host is None else "idle_launch_ns"
    layers.append((rest, union(*np.array(bounds, np.int64)[:, None])))
    numbers = np.array([PART_NAMES.index(name) for name, _ in layers], np.int16)
    painted = _clip(paint([spans for _, spans in layers]), *bounds)
    timeline = Timeline(device, painted.bounds, numbers[painted.colours], host, gaps.held, gaps.held_back, gaps.earlier)
    return timeline if host is None else _blame_waits(timeline, host.waiting, worked, gaps.filled)


def _find_stalls(host: HostStates, idle: Spans) -> dict[str, Spans]:
    """Return when the host does something that keeps it from launching, by part of the time, the surest first."""
    return {
        "idle_first_use_ns": host.first_use,
        "idle_blocked_ns": _blocked_while_idle(host.blocked, idle),
        "idle_input_ns": host.input,
        "idle_allocator_ns": host.allocator,
        "idle_sync_ns": host.waiting,
        "idle_host_ns": host.other,
    }


def _blocked_while_idle(calls: Spans, idle: Spans) -> Spans:
    """Return the time in which the device is idle for long within one of the calls.

    A call may last long because it waits for the device, as for room in its queue: then hardly any idle time is in it.
    """
    inside = intersect(calls, idle)
    long = inside.ends - inside.starts >= LONG_NS
    return Spans(inside.starts[long], inside.ends[long])


def _idle_in(bounds: tuple[int, int], busy: Spans) -> Spans:
    edges = np.array(bounds, np.int64)
    return union(np.append(edges[:1], busy.ends), np.append(busy.starts, edges[1:]))


def _blame_waits(timeline: Timeline, waiting: Spans, busy: Spans, filled: Int64s) -> Timeline:
    """Return the timeline in which late launches that are due to a wait of the host are waiting, too."""
    starts, ends = waiting.starts, waiting.ends
    if not len(starts):
        return timeline
    found = find_due(timeline.spans(BY_HOST), starts, ends, busy, filled)
    edges = np.clip(np.concatenate([found.starts, found.ends]), *timeline.bounds[[0, -1]])
    bounds = np.unique(np.concatenate([timeline.bounds, edges]))
    parts = timeline.parts[np.searchsorted(timeline.bounds, bounds[:-1], side="right") - 1]
    last = np.searchsorted(found.starts, bounds[:-1], side="right") - 1
    due = (parts == PART_NAMES.index("idle_launch_ns")) & (last >= 0) & (bounds[:-1] < found.ends[last])
    return replace(timeline, bounds=bounds, parts=np.where(due, np.int16(PART_NAMES.index("idle_sync_ns")), parts))


def _submitted_late(gaps: Gaps, waiting: Spans, busy: Spans) -> Spans:
    """Return when the driver holds queued work back from an idle device; `busy` is when the device works.

    Host and device are on one clock where work begins soon after its launch, or the host's waits end with the work.
    """
    return gaps.handed_over if gaps.prompt or _end_together(waiting, busy) else NOTHING


def _end_together(waiting: Spans, busy: Spans) -> bool:
    """Return whether the device becomes idle shortly before most of the longer waits end."""
    ends = waiting.ends[waiting.ends - waiting.starts > HELD_BACK_NS]
    last = np.searchsorted(busy.starts, ends) - 1
    after = ends[last >= 0] - busy.ends[last[last >= 0]]
    return bool(2 * np.sum((after >= 0) & (after <= HELD_BACK_NS)) > len(ends))


def _begun_late(unknown: Spans, waiting: Spans) -> Spans:
    """Return the short gaps before queued work in which the host waits for it: the device needs as long to begin."""
    late = intersect(unknown, waiting)
    short = late.ends - late.starts <= HELD_BACK_NS
    return Spans(late.starts[short], late.ends[short])


def recorded_bounds(trace: Trace, timeline: Timeline) -> tuple[int, int]:
    """Return when the recording of a device begins and ends: its own events, and all of the processes that feed it."""
    first, last = int(timeline.bounds[0]), int(timeline.bounds[-1])
    if timeline.host is None:
        return first, last
    processes = timeline.host.threads["process"].unique()
    of_host = trace.host_events.filter(pl.col("category") != "overhead")
    ranges = trace.annotations.filter(pl.col("side") == "host")
    rows = pl.concat([each.select("process", "start_ns", "end_ns") for each in (of_host, ranges)])
    own = rows.filter(pl.col("process").is_in(processes.implode())).select(
        pl.col("start_ns").min(), pl.col("end_ns").max()
    )
    begin, end = own.row(0)
    return min(first, first if begin is None else begin), max(last, last if end is None else end)


def extend(timeline: Timeline, since_ns: int, until_ns: int) -> Timeline:
    """Return the timeline with the idle time from `since_ns` to its begin, and from its end to `until_ns`, by the host.

    The first is there where a part of a trace has no work of a whole iteration.
    """
    if not len(timeline.parts):
        return timeline
    first_ns, last_ns = int(timeline.bounds[0]), int(timeline.bounds[-1])
    if since_ns < first_ns:
        timeline = _join(timeline, _paint_idle(timeline, since_ns, first_ns), timeline)
    return _join(timeline, timeline, _paint_idle(timeline, last_ns, until_ns)) if until_ns > last_ns else timeline


def _paint_idle(timeline: Timeline, since_ns: int, until_ns: int) -> Timeline:
    """Return a time without work on the device, by what the host did."""
    busy = [NOTHING] * len(BUSY_PARTS)
    return _paint_parts(timeline.device, (since_ns, until_ns), busy, NO_GAPS, timeline.host)


def _join(timeline: Timeline, one: Timeline, other: Timeline) -> Timeline:
    """Return the timeline with the segments of two, the second of which begins where the first ends."""
    bounds, parts = np.append(one.bounds, other.bounds[1:]), np.append(one.parts, other.parts)
    return replace(timeline, bounds=bounds, parts=parts)


def _clip(painted: Painted, first: int, last: int) -> Painted:
    """Return the segments from `first` to `last`, both of which are bounds."""
    begin, end = np.searchsorted(painted.bounds, [first, last])
    return Painted(painted.bounds[begin : end + 1], painted.colours[begin:end])


def find_due(idle: Spans, starts: Int64s, ends: Int64s, busy: Spans, filled: Int64s) -> Spans:
    """Return the idle time that is due to waits [start, end), that within them among it; waits are sorted, disjoint.

    `idle` is when the device waits for the host, `busy` when it works: what of a wait is in it is lead that the host
    gives up. `filled` is when launches are made that find the queue filled, sorted.
    """
    if not idle.total_ns:
        return Spans(starts, ends)
    filled_at = np.append(filled, NEVER)[np.searchsorted(filled, ends)]
    following = np.append(starts[1:], NEVER)
    limit = np.minimum(filled_at, following)
    lead = _carry(covered(busy, starts, ends), covered(idle, ends, limit), filled_at >= following)
    used = _when_elapsed(idle, elapsed(idle, ends) + lead)
    return union(starts, np.maximum(np.minimum(used, limit), ends))


def _carry(given: Int64s, wanted: Int64s, kept: npt.NDArray[np.bool_]) -> Int64s:
    """Return the lead that can be used after each wait: what it gave up, and what is left where `kept` from the last.

    Lead that is not used until the next wait is still lost then; once the queue is filled again it no longer is.
    """
    leads, left = np.zeros(len(given), np.int64), 0
    for at, (more, use, keeps) in enumerate(zip(given.tolist(), wanted.tolist(), kept.tolist(), strict=True)):
        leads[at] = left + more
        left = max(0, left + more - use) if keeps else 0
    return leads


def find_filled(launches: Int64s, starts: Int64s) -> Int64s:
    """Return when launches are made that find the queue filled, sorted; `starts` is when what is launched begins."""
    return np.sort(launches[starts - launches > FILLED_NS])


def _when_elapsed(spans: Spans, amounts: Int64s) -> Int64s:
    """Return when that much of the spans has passed, `NEVER` where they are shorter."""
    passed = np.append(0, np.cumsum(spans.ends - spans.starts))
    at = np.searchsorted(passed, amounts, side="left")
    inside = np.clip(at, 1, len(spans.starts)) - 1
    return np.where(at >= len(passed), NEVER, spans.starts[inside] + amounts - passed[inside])
