"""The loops of a trace: of every device on its main stream, or on another one that computes a good part of the time.

Where a device has no loop, a marked step or all that was recorded is measured in its place.

The last iteration of a short capture is complete where a step marker shows when it ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Counts

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from deepprof.collectors.trace import Trace
from deepprof.metrics.breakdown.parts_table import with_parts
from deepprof.metrics.breakdown.start import with_start
from deepprof.metrics.breakdown.timeline import Timeline, lay_out
from deepprof.metrics.carried import carry_over
from deepprof.metrics.evidence import gather_evidence, trust_in
from deepprof.metrics.host import HostSide, read_host
from deepprof.metrics.iteration_table import is_alike, measure_again, summarize
from deepprof.metrics.loop import Loop
from deepprof.metrics.mined import MIN_STREAM_KERNELS, find_counted, find_loops, pick_counted
from deepprof.metrics.operators import WITHOUT_KERNELS
from deepprof.metrics.options import AnalysisOptions
from deepprof.metrics.selection.selected_trace import SelectedTrace
from deepprof.metrics.sequence import Sequence, main_sequence
from deepprof.metrics.sharing.shares import keep_disturbed
from deepprof.metrics.sharing.work import OtherWork
from deepprof.metrics.single import measure_single
from deepprof.metrics.streams import busy_time, is_mostly_copies
from deepprof.mining.evidence import Evidence

NO_ITERATION = "the part that is looked at has no iteration of the whole"
ONLY_COLLECTIVES = "only collectives ran on the device; no stream computes"
ABOUT_DEVICES = "(?i)kernel|CUDA (?:events|profiling)|accelerator|device events"  # notes on why there is no kernel
MOST_NOTES = 2  # the importer's, and what the recorder reports of itself
WORTH, MOST_STREAMS = 0.2, 3  # streams with this share of the main one's busy time are searched, at most this many

FEW_USUAL = 5  # usual iterations: if there are as many, one more adds nothing


class FoundLoops(Struct, frozen=True):
    """The loops of a trace, and where its devices' time goes.

    `singles` are measured on devices without a loop, `timelines` are by device. `reasons` are the places of main
    streams without a loop, and why they have none.
    """

    loops: tuple[Loop, ...]
    singles: tuple[Loop, ...]
    timelines: Mapping[int, Timeline]
    reasons: tuple[tuple[str, str], ...]

    @property
    def measured(self) -> tuple[Loop, ...]:
        """The loops and what is measured in their place."""
        return (*self.loops, *self.singles)

    def with_each(self, measure: Callable[[Loop], Loop]) -> FoundLoops:
        """Return the loops, and what is measured in their place, as `measure` returns them."""
        return replace(self, loops=tuple(map(measure, self.loops)), singles=tuple(map(measure, self.singles)))


class _DeviceLoops(Struct, frozen=True):
    """The loops of one device, or what is measured in their place, and why there is no loop."""

    timeline: Timeline
    loops: tuple[Loop, ...] = ()
    single: Loop | None = None
    reason: str | None = None


def search_trace(
    trace: Trace, streams: pl.DataFrame, options: AnalysisOptions, others: Mapping[int, OtherWork]
) -> FoundLoops:
    """Return the loops on the main streams of a trace; `streams` are its streams (`STREAMS`).

    `others` is the work of other processes, by device.
    """
    host = read_host(trace)
    timelines = {
        device: lay_out(trace, device, host.launches, others.get(device))
        for device in streams["device"].unique(maintain_order=True)
    }
    places = _list_places(trace, streams, options)
    found = {
        device: _search_device(trace, host, there, options, (timelines[device], others.get(device)))
        for device, there in places.items()
    }
    missing = None if _has_kernels(trace) else _reason_without_kernels(trace)
    reasons = [(f", device {device}", _join(missing, each.reason)) for device, each in found.items() if each.reason]
    return FoundLoops(
        loops=tuple(loop for each in found.values() for loop in each.loops),
        singles=tuple(each.single for each in found.values() if each.single is not None),
        timelines=timelines | {device: each.timeline for device, each in found.items()},
        reasons=tuple(reasons) if places else (("", missing or ONLY_COLLECTIVES),),
    )


def _list_places(
    trace: Trace, streams: pl.DataFrame, options: AnalysisOptions
) -> Mapping[int, Counts[tuple[int, int]]]:
    """Return the streams (device, stream) of every device to search, until one has a loop; the main one first."""
    known = options.find_known(trace)
    copying = {} if options.stream or known else _list_copying(trace, streams)
    if copying:
        return {device: [(device, number) for number in numbers] for device, numbers in copying.items()}
    main = _list_main(streams, known)
    if options.stream or known:
        return {device: [(device, number)] for device, number in main}
    return {device: [(device, number), *_next_streams(streams, device)] for device, number in main}


def _search_device(
    trace: Trace,
    host: HostSide,
    places: Counts[tuple[int, int]],
    options: AnalysisOptions,
    measured: tuple[Timeline, OtherWork | None],
) -> _DeviceLoops:
    """Return the loops of one device on the first of some streams that has any."""
    timeline, others = measured
    known = options.find_known(trace)
    if known is None:
        shown = _search_streams(trace, host, places, options.counts)
        loops: Iterable[Loop] = (_complete(loop, shown, trace, host, others) for loop in shown.loops)
    else:
        shown = _carry_streams(known, host, places[0])
        loops = shown.loops
    found = _DeviceLoops(timeline, tuple(with_parts(loop, trace, timeline) for loop in loops), reason=shown.reason)
    return found if any(loop.is_main for loop in shown.loops) else _measure_instead(found, shown, trace, host)


def _complete(loop: Loop, shown: _SearchedStream, trace: Trace, host: HostSide, others: OtherWork | None) -> Loop:
    """Return a loop with the last iteration closed; iterations slowed by `others` do not count as warm-up."""
    return close_last(loop if others is None else keep_disturbed(loop, others), trace, shown.sequence, host)


def _measure_instead(found: _DeviceLoops, shown: _SearchedStream, trace: Trace, host: HostSide) -> _DeviceLoops:
    """Return a device without a loop with what is measured in its place: a marked step, or all that was recorded."""
    timeline = found.timeline
    single = measure_single(trace, shown.sequence, shown.evidence.families, timeline, host)
    if single is None or (single.single == "recording" and len(shown.sequence.symbols) < MIN_STREAM_KERNELS):
        return found
    if single.single == "recording" and single.timeline is not None and not shown.loops:
        whole = with_start(single.timeline, trace)
        timeline = whole.cut(int(timeline.bounds[0]), int(timeline.bounds[-1]))
        single = with_parts(single, trace, whole)
    return replace(found, timeline=timeline, single=single)


def _list_main(roles: pl.DataFrame, known: SelectedTrace | None) -> list[tuple[int, int]]:
    """Return device and number of the main streams; of a part also that of a loop whose device has none in it."""
    main = dict(roles.filter(pl.col("role") == "main").select("device", "stream").iter_rows())
    there = set(roles["device"].to_list())
    loops = () if known is None else (loop for loop in known.loops if loop.device in there)
    return list(({loop.device: loop.stream for loop in loops} | main).items())


def _has_kernels(trace: Trace) -> bool:
    return bool(trace.device_events["activity"].is_in(["kernel", "graph"]).any())


def _reason_without_kernels(trace: Trace) -> str:
    """Return why a trace without any kernel has no loop of kernels, with what importer and recorder note on it."""
    said = [note for note in trace.notes if re.search(ABOUT_DEVICES, note) and "CPU kernel" not in note]
    reasons = (note.removeprefix(f"{WITHOUT_KERNELS}: ").rstrip(".") for note in said[:MOST_NOTES])
    return "; ".join(["the trace holds no GPU kernel", *reasons])


def _join(*reasons: str | None) -> str:
    return "; ".join(reason for reason in reasons if reason)


class _SearchedStream(Struct, frozen=True):
    """The kernels of one stream, the host's evidence on them, the loops found, and why there is none."""

    sequence: Sequence
    evidence: Evidence
    loops: list[Loop]
    reason: str | None


def _search_streams(
    trace: Trace, host: HostSide, places: Counts[tuple[int, int]], counts: Counts[int]
) -> _SearchedStream:
    """Return the result for the first of the streams (device, stream), or for the first with loops if it has none.

    With `counts` the loops found without them are kept if they have those counts; otherwise the paper's miner runs.
    """
    first = _search_stream(trace, host, places[0])
    others = () if first.loops else (_search_stream(trace, host, place) for place in places[1:])
    free = next((other for other in others if other.loops), first)
    if not counts:
        return free
    picked = pick_counted(free.loops, counts)
    if picked is not None:
        return replace(free, loops=picked)
    loops, reason = find_counted(trace, first.sequence, first.evidence, counts)
    return replace(first, loops=loops, reason=reason)


def _carry_streams(trace: SelectedTrace, host: HostSide, place: tuple[int, int]) -> _SearchedStream:
    """Return the loops of the whole on the device of a main stream (device, stream), as a part of it shows them."""
    own = [loop for loop in trace.loops if loop.device == place[0]]
    sequence = main_sequence(trace, place[0], own[0].stream if own else place[1], host)
    evidence = gather_evidence(trace, sequence, host)
    carried = (carry_over(loop, trace, sequence, evidence) for loop in own)
    loops = [loop for loop in carried if loop is not None]
    return _SearchedStream(sequence, evidence, loops, None if loops else NO_ITERATION)


def _search_stream(trace: Trace, host: HostSide, place: tuple[int, int]) -> _SearchedStream:
    sequence = main_sequence(trace, *place, host)
    evidence = gather_evidence(trace, sequence, host)
    return _SearchedStream(sequence, evidence, *find_loops(trace, sequence, evidence))


def _list_copying(trace: Trace, roles: pl.DataFrame) -> dict[int, list[int]]:
    """Return the busiest streams with copies of every device, where no device does much but copy; else none."""
    found = dict[int, list[int]]()
    for device in roles.filter(pl.col("kernels") > 0)["device"].unique():
        if not is_mostly_copies(trace.device_events.filter(pl.col("device") == device)):
            return {}
    copies = trace.device_events.filter(pl.col("activity") == "memcpy").group_by("device", "stream")
    busy = copies.agg(copies=pl.len(), busy_ns=busy_time()).sort(
        "device", "busy_ns", "stream", descending=[False, True, False]
    )
    for device, stream in busy.filter(pl.col("copies") >= MIN_STREAM_KERNELS).select("device", "stream").iter_rows():
        found.setdefault(device, []).append(stream)
    return {device: streams[:MOST_STREAMS] for device, streams in found.items()}


def _next_streams(roles: pl.DataFrame, device: int) -> list[tuple[int, int]]:
    """Return the streams worth searching when the main one has no loop, the busiest first."""
    main = roles.filter(pl.col("device") == device, pl.col("role") == "main")
    worth = roles.filter(
        pl.col("device") == device,
        pl.col("role") == "assist",
        pl.col("kernels") >= MIN_STREAM_KERNELS,
        pl.col("busy_ns") >= WORTH * float(main["busy_ns"].sum()),
    )
    return worth.sort("busy_ns", descending=True).select("device", "stream").head(MOST_STREAMS).rows()


def close_last(loop: Loop, trace: Trace, sequence: Sequence, host: HostSide) -> Loop:
    """Return the loop with the time of its last iteration, if few times are available and a step marker shows its end.

    Where the marker gives another time than the others take, it contains the profiler's end, or lacks what the next
    iteration would have loaded.
    """
    table = loop.iterations
    known = table["iteration_ns"].drop_nulls()
    if not 1 <= len(known) < FEW_USUAL or not table["complete"][-1] or table["iteration_ns"][-1] is not None:
        return loop
    until_ns = _find_end(host, sequence, int(table["start_ns"][-1]))
    if until_ns is None:
        return loop
    start_ns, end_ns = int(table["start_ns"][-1]), int(table["end_ns"][-1])
    whole_ns = max(until_ns, end_ns) - start_ns
    return _with_last(loop, trace, sequence, whole_ns) if is_alike(whole_ns, known) else loop


def _find_end(host: HostSide, sequence: Sequence, start_ns: int) -> int | None:
    """Return the end of the step marker in which the iteration starting at `start_ns` was launched, else None."""
    first = int(np.searchsorted(sequence.start_ns, start_ns))
    launched_ns = int(sequence.launch_ns[first]) if sequence.linked else start_ns
    around = (pl.col("start_ns") <= launched_ns) & (pl.col("end_ns") > launched_ns) & ~pl.col("framework")
    rows = host.ranges.filter((pl.col("side") == "host") & around).sort("start_ns", descending=True)
    named = rows.select("family", "end_ns").iter_rows()  # the innermost first
    return next((end for name, end in named if trust_in(name, framework=False) == "step"), None)


def _with_last(loop: Loop, trace: Trace, sequence: Sequence, whole_ns: int) -> Loop:
    """Return the loop whose last iteration needs `whole_ns`."""
    table = loop.iterations
    last = table.tail(1).with_columns(
        iteration_ns=pl.lit(whole_ns, pl.Int64),
        interval_ns=pl.col("start_ns") + whole_ns - pl.col("end_ns"),
        idle_ns=whole_ns - pl.col("busy_ns"),
    )
    closed = pl.concat([table.head(-1), measure_again(trace, sequence, last)])
    return replace(loop, iterations=closed, metrics=summarize(closed))
