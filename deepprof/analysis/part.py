"""What one rank's trace shows by itself: a value that needs no other rank, and that can be sent instead of the trace.

A job is examined rank by rank, here or on other machines; `merging` makes one analysis of the parts. Both ways give the
same result because they run the same code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from deepprof.analysis.result import Recording, TimeSummary, WorkWithoutLoop, add_up, describe_recording
from deepprof.analysis.streams import SearchedStream, carry_streams, list_copying, next_streams, search_streams
from deepprof.analysis.tables import BREAKDOWN, PLACED_STREAMS, PLACED_WORK
from deepprof.collectors.trace import Trace, empty_table
from deepprof.diagnosis.code_places import name_lines
from deepprof.diagnosis.engine import (
    diagnose_contexts,
    diagnose_loop,
    diagnose_memory,
    diagnose_shares,
    diagnose_work,
)
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.rules.input_bound import find_loading
from deepprof.metrics.annotation.anatomy import read_anatomy
from deepprof.metrics.annotation.trace_annotation import TraceAnnotation, annotate
from deepprof.metrics.breakdown.costs import host_of, mean_parts
from deepprof.metrics.breakdown.parts_table import with_parts
from deepprof.metrics.breakdown.start import with_start
from deepprof.metrics.breakdown.timeline import Timeline, lay_out
from deepprof.metrics.call_order import link_in_order
from deepprof.metrics.clocks import on_one_clock
from deepprof.metrics.closing import close_last
from deepprof.metrics.contexts.per_loop import LoopContexts, read_loop_contexts
from deepprof.metrics.contexts.slices import has_code
from deepprof.metrics.contexts.tree import ContextTree, build_tree
from deepprof.metrics.cost.loop_device import describe_device, find_device_peaks
from deepprof.metrics.cost.loop_roofline import WorkSources, measure_roofline
from deepprof.metrics.cost.roofs import DevicePeaks
from deepprof.metrics.cost.trace_costs import find_costs
from deepprof.metrics.host import HostSide, read_host
from deepprof.metrics.iteration_table import BUSY
from deepprof.metrics.kernels.classify import KernelKinds, find_kernel_kinds
from deepprof.metrics.kernels.computed_work import measure_work
from deepprof.metrics.kernels.loop_work import LoopWork, measure_loop_work
from deepprof.metrics.loop import Loop
from deepprof.metrics.memory.device_memory import list_memory
from deepprof.metrics.mined import MIN_STREAM_KERNELS
from deepprof.metrics.operators import WITHOUT_KERNELS, is_stand_in
from deepprof.metrics.ranks.facts import RankFacts, gather_facts, longest_loops
from deepprof.metrics.selection.selected_trace import SelectedTrace, keep_roles
from deepprof.metrics.sharing.shared_places import SharedWork
from deepprof.metrics.sharing.shares import ShareOfDevice, keep_disturbed, measure_share
from deepprof.metrics.sharing.work import OtherWork
from deepprof.metrics.single import measure_single
from deepprof.metrics.spans import union
from deepprof.metrics.streams import classify_streams
from deepprof.metrics.top import top_of_loop, top_of_recording

ONLY_COLLECTIVES = "only collectives ran on the device; no stream computes"
ABOUT_DEVICES = "(?i)kernel|CUDA (?:events|profiling)|accelerator|device events"  # notes on why there is no kernel
MOST_NOTES = 2  # the importer's, and what the recorder reports of itself


@dataclass(frozen=True, slots=True)
class AnalysisOptions:
    """Options for every rank: the paper's `counts`, a main `stream` if one is named, and whether it is the only rank.

    `shared` are the devices that it shares with other ranks. `peaks` are those of all devices, in place of the vendors'
    figures for the devices that the recording names.
    """

    counts: tuple[int, ...] = ()
    stream: tuple[int, int] | None = None
    alone: bool = True
    shared: tuple[SharedWork, ...] = ()
    peaks: DevicePeaks | None = None

    def find_peaks(self, trace: Trace, device: int) -> DevicePeaks | None:
        """Return the peaks of a device, None where they are neither given nor known."""
        return self.peaks or find_device_peaks(trace, device)

    def find_known(self, trace: Trace) -> SelectedTrace | None:
        """Return the trace if it brings the loops of a whole, and no others are asked for."""
        asked = self.counts or self.stream is not None
        return trace if isinstance(trace, SelectedTrace) and not asked else None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankPart:
    """One rank's part of an analysis. `reasons` are the places of main streams without a loop, and why.

    `facts` is what the other ranks, or the rank's other devices, are compared with; None where there is no other.
    """

    recording: Recording
    summary: TimeSummary
    streams: pl.DataFrame  # PLACED_STREAMS
    loops: tuple[Loop, ...]
    reasons: tuple[tuple[str, str], ...]
    findings: tuple[Finding, ...]
    timelines: Mapping[int, Timeline]  # by device
    breakdown: pl.DataFrame
    work: pl.DataFrame  # PLACED_WORK, of the whole recording
    facts: RankFacts | None
    shares: tuple[ShareOfDevice, ...] = ()  # of devices that other ranks use too
    stretches: tuple[WorkWithoutLoop, ...] = ()  # of devices without a loop
    steps: tuple[Loop, ...] = ()  # single marked steps, on devices without a loop
    tree: ContextTree | None = None  # None where the host recorded no function, operator or range
    annotation: TraceAnnotation | None = None

    @property
    def rank(self) -> int:
        """The rank's number, 0 where its trace has none."""
        return self.recording.rank or 0


def examine(trace: Trace, question: AnalysisOptions, recorded: Trace | None = None) -> tuple[Trace, RankPart]:
    """Return the trace with the host on the device's clock, and the rank's part of the analysis.

    `recorded` is the trace as it was read, if operators were made its kernels since (CPU fallback). The caller checks
    that no two ranks have the same number, and that some rank has the requested stream.
    """
    trace = on_one_clock(link_in_order(trace))
    roles = keep_roles(classify_streams(trace, question.stream), question.find_known(trace))
    shared = _find_own(trace.rank or 0, question)
    others = {device: each.others(trace.rank or 0) for device, each in shared.items()}
    tree = _build_tree(trace, recorded or trace)
    kinds = find_kernel_kinds(trace, recorded, None if tree is None else (tree.slices, tree.sites))
    look = _look_at(trace, roles, question, others, kinds)
    shares = _measure_shares(trace, look, shared)
    annotation = annotate(trace, look.loops, tree)
    look.loops[:] = [
        replace(loop, anatomy=read_anatomy(annotation, loop, look.timelines[loop.device])) for loop in look.loops
    ]
    _compare_with_peaks((trace, recorded or trace), annotation, look, question)
    for loops in (look.loops, look.singles):
        loops[:] = [replace(loop, work=measure_loop_work(loop, trace, kinds)) for loop in loops]
    found = [*_diagnose(trace, tree, look, (kinds, question)), *_diagnose_memory(annotation, look)]
    found += find_loading(trace)
    steps = tuple(loop for loop in look.singles if loop.single == "marked step")
    measured = (*look.loops, *steps)
    number = pl.lit(trace.rank or 0, PLACED_STREAMS["rank"]).alias("rank")
    part = RankPart(
        recording=describe_recording(trace),
        summary=add_up(_summarize_devices(trace)),
        streams=roles.select(number, pl.all()),
        loops=tuple(look.loops),
        reasons=tuple(look.reasons),
        findings=(*found, *diagnose_shares(shares, look.loops, found)),
        timelines=look.timelines,
        breakdown=_tell_parts(trace.rank or 0, look.timelines),
        work=_list_work(trace, kinds, look.timelines),
        facts=gather_facts(measured, trace, shared) if _has_others(measured, question) else None,
        shares=shares,
        stretches=tuple(_list_stretches(trace, look, kinds)),
        steps=steps,
        tree=tree,
        annotation=annotation,
    )
    return trace, part


def _build_tree(trace: Trace, recorded: Trace) -> ContextTree | None:
    """Return the calling contexts of a trace, None where they would be no more than its device events."""
    known = recorded if is_stand_in(trace) else trace
    return build_tree(trace, known) if has_code(known) else None


def _diagnose(
    trace: Trace, tree: ContextTree | None, look: _TraceAnalysis, known: tuple[KernelKinds, AnalysisOptions]
) -> list[Finding]:
    """Return the findings on the loops, on what they compute, and on their calling contexts where these are known."""
    measured = (*look.loops, *look.singles)
    found = [finding for loop in measured for finding in diagnose_loop(loop, trace)]
    of_loops = {}
    if tree is not None:
        read = ((loop, read_loop_contexts(trace, tree, loop, look.timelines.values())) for loop in measured)
        of_loops = {id(loop): contexts for loop, contexts in read if contexts is not None}
    of_work = [f for loop in measured for f in _diagnose_work(loop, trace, known, of_loops.get(id(loop)))]
    of_contexts = (finding for each in of_loops.values() for finding in diagnose_contexts(each))
    return [*name_lines(found, list(of_loops.values())), *of_work, *of_contexts]


def _diagnose_work(
    loop: Loop, trace: Trace, known: tuple[KernelKinds, AnalysisOptions], contexts: LoopContexts | None
) -> list[Finding]:
    """Return the findings on what the device of a loop computes."""
    if loop.work is None:
        return []
    device = describe_device(trace, loop.device)
    kinds, question = known
    name, peaks = None if device is None else device["name"], question.find_peaks(trace, loop.device)
    return diagnose_work(LoopWork(loop, trace, kinds, loop.work, peaks, name, contexts))


def _list_work(trace: Trace, kinds: KernelKinds, devices: Iterable[int]) -> pl.DataFrame:
    """Return what each device computes in the whole recording, as a table `PLACED_WORK` without loops."""
    rank = pl.lit(trace.rank or 0, PLACED_WORK["rank"]).alias("rank")
    tables = [
        measure_work(trace, kinds, device).table.select(
            pl.lit(None, PLACED_WORK["loop"]).alias("loop"),
            rank,
            pl.lit(device, PLACED_WORK["device"]).alias("device"),
            pl.all(),
        )
        for device in devices
    ]
    return pl.concat([empty_table(PLACED_WORK), *tables])


def _diagnose_memory(annotation: TraceAnnotation, look: _TraceAnalysis) -> Iterator[Finding]:
    """Yield the findings on the memory of each device that computes, and of those that no work was recorded on."""
    for memory in list_memory(annotation, (*look.loops, *look.singles)):
        if not memory.is_beside:
            yield from diagnose_memory(memory)


def _compare_with_peaks(
    traces: tuple[Trace, Trace], annotation: TraceAnnotation, look: _TraceAnalysis, question: AnalysisOptions
) -> None:
    """Give the loops, and what is measured without one, their rooflines; nothing where no operands were read.

    `traces` are the trace, and the trace as it was read.
    """
    trace, recorded = traces
    if recorded.operands.is_empty():
        return
    known = WorkSources(find_costs(trace, recorded, annotation.tree), annotation.tree, annotation.layers)
    for loops in (look.loops, look.singles):
        loops[:] = [_with_roofline(loop, trace, known, question.find_peaks(trace, loop.device)) for loop in loops]


def _with_roofline(loop: Loop, trace: Trace, known: WorkSources, peaks: DevicePeaks | None) -> Loop:
    """Return the loop with its roofline, and the utilisation among its metrics."""
    found = measure_roofline(trace, loop, known, peaks)
    if found is None:
        return loop
    return replace(
        loop,
        roofline=found,
        metrics=replace(loop.metrics, mfu_ratio=found.mfu_ratio, hfu_ratio=found.hfu_ratio),
    )


def _list_stretches(trace: Trace, look: _TraceAnalysis, kinds: KernelKinds) -> Iterator[WorkWithoutLoop]:
    """Yield what was measured of each device without a main loop: a marked step, or else the recording."""
    rank, single = trace.rank or 0, {loop.device: loop for loop in look.singles}
    described = {loop.device for loop in look.loops} - single.keys()
    for device in sorted(look.timelines.keys() - described):
        measured = single.get(device)
        top = top_of_recording(trace, device, kinds) if measured is None else measured.top
        if top is None:
            continue
        if measured is None:
            yield WorkWithoutLoop(rank, device, None, top)
            continue
        start = _measure_start(measured) if measured.single == "recording" else {}
        parts, host = mean_parts(measured), host_of(measured)
        lacks = host is None or len(host.unrecorded.starts) > 0
        yield WorkWithoutLoop(rank, device, measured.stream, top, measured.roofline, parts, start, lacks)


def _measure_start(recording: Loop) -> dict[str, int]:
    """Return the parts of the time in which the program of a recording starts."""
    if recording.timeline is None:
        return {}
    starting = recording.timeline.starting
    return {part: int(ns.sum()) for part, ns in recording.timeline.split(starting.starts, starting.ends).items()}


def _find_own(rank: int, question: AnalysisOptions) -> dict[int, SharedWork]:
    """Return the work of all ranks on each device that rank `rank` shares with others, by device."""
    return {work.device: shared for shared in question.shared for work in shared.works if work.rank == rank}


def _measure_shares(trace: Trace, look: _TraceAnalysis, shared: Mapping[int, SharedWork]) -> tuple[ShareOfDevice, ...]:
    """Return what the rank loses to others on each device that it shares."""
    longest, rank = longest_loops(look.loops), trace.rank or 0
    return tuple(
        measure_share(trace, each, own, longest.get((rank, device)))
        for device, each in shared.items()
        for own in each.works
        if (own.rank, own.device) == (rank, device)
    )


def _has_others(measured: Sequence[Loop], question: AnalysisOptions) -> bool:
    """Return whether there is another rank, or another device, to compare the loops of a rank with."""
    return not question.alone or len({loop.device for loop in measured}) > 1


def without_timelines(part: RankPart) -> RankPart:
    """Return the part without timelines and contexts, which grow with the trace and which no report shows."""
    loops, steps = (tuple(map(_without_events, each)) for each in (part.loops, part.steps))
    return replace(part, timelines={}, loops=loops, steps=steps, tree=None, annotation=None)


def _without_events(loop: Loop) -> Loop:
    """Return the loop without its timeline, and without the kernels of its work one by one."""
    return replace(loop, timeline=None, work=None if loop.work is None else loop.work.without_kernels())


def _tell_parts(rank: int, timelines: Mapping[int, Timeline]) -> pl.DataFrame:
    """Return where the span of each device goes, as a table `BREAKDOWN`."""
    rows = [{"rank": rank, "device": device} | timeline.totals_ns for device, timeline in timelines.items()]
    return pl.DataFrame(rows, schema=BREAKDOWN)


@dataclass(frozen=True, slots=True)
class _TraceAnalysis:
    """What one trace shows: its loops, where its devices' time goes, and the reasons why main streams have no loop."""

    loops: list[Loop]
    timelines: dict[int, Timeline]
    reasons: list[tuple[str, str]]  # where, and why
    singles: list[Loop] = field(default_factory=list)  # what is measured where there is no loop


def _look_at(
    trace: Trace,
    roles: pl.DataFrame,
    question: AnalysisOptions,
    others: Mapping[int, OtherWork],
    kinds: KernelKinds,
) -> _TraceAnalysis:
    """Return the loops on a trace's main streams, and the place and the reason for each stream without one.

    `others` is the work of other processes, by device.
    """
    host = read_host(trace)
    timelines = {
        device: lay_out(trace, device, host.launches, others.get(device))
        for device in roles["device"].unique(maintain_order=True)
    }
    known = question.find_known(trace)
    copying = {} if question.stream or known else list_copying(trace, roles)
    main = copying or {device: [number] for device, number in _list_main(roles, known)}
    reason = None if _has_kernels(trace) else _reason_without_kernels(trace)
    look = _TraceAnalysis([], timelines, [] if main else [("", reason or ONLY_COLLECTIVES)])
    for device, (number, *more) in main.items():
        if known is None:
            beside = [(device, stream) for stream in more] or next_streams(roles, device)
            places = [(device, number), *([] if question.stream else beside)]
            shown = search_streams(trace, host, places, question.counts)
            loops = _complete(shown, trace, host, others.get(device))
        else:
            shown = carry_streams(known, host, (device, number))
            loops = iter(shown.loops)
        look.reasons.extend([(f", device {device}", _join(reason, shown.reason))] if shown.reason else [])
        look.loops.extend(_with_top(with_parts(loop, trace, timelines[device]), trace, kinds) for loop in loops)
        if not any(loop.is_main for loop in shown.loops):
            _stand_in(shown, trace, look, kinds, host)
    return look


def _list_main(roles: pl.DataFrame, known: SelectedTrace | None) -> list[tuple[int, int]]:
    """Return device and number of the main streams; of a part also that of a loop whose device has none in it."""
    main = dict(roles.filter(pl.col("role") == "main").select("device", "stream").iter_rows())
    there = set(roles["device"].to_list())
    loops = () if known is None else (loop for loop in known.loops if loop.device in there)
    return list(({loop.device: loop.stream for loop in loops} | main).items())


def _complete(shown: SearchedStream, trace: Trace, host: HostSide, others: OtherWork | None) -> Iterator[Loop]:
    """Yield a stream's loops, the last iteration closed; iterations slowed by `others` do not count as warm-up."""
    for loop in shown.loops:
        yield close_last(loop if others is None else keep_disturbed(loop, others), trace, shown.sequence, host)


def _stand_in(shown: SearchedStream, trace: Trace, look: _TraceAnalysis, kinds: KernelKinds, host: HostSide) -> None:
    """Measure what is measured where a stream has no loop: a marked step, or all that was recorded."""
    device = shown.sequence.device
    timeline = look.timelines[device]
    single = measure_single(trace, shown.sequence, shown.evidence.families, timeline, host)
    if single is None or (single.single == "recording" and len(shown.sequence.symbols) < MIN_STREAM_KERNELS):
        return
    if single.single == "recording" and single.timeline is not None and not shown.loops:
        whole = with_start(single.timeline, trace)
        look.timelines[device] = whole.cut(int(timeline.bounds[0]), int(timeline.bounds[-1]))
        single = with_parts(single, trace, whole)
    look.singles.append(_with_top(single, trace, kinds))


def _with_top(loop: Loop, trace: Trace, kinds: KernelKinds) -> Loop:
    """Return the loop with the kernels and copies that take its time."""
    return replace(loop, top=top_of_loop(loop, trace, kinds))


def _has_kernels(trace: Trace) -> bool:
    """Return whether a trace has any kernel, or the launch of a graph."""
    return bool(trace.device_events["activity"].is_in(["kernel", "graph"]).any())


def _reason_without_kernels(trace: Trace) -> str:
    """Return why a trace without any kernel has no loop of kernels, with what importer and recorder note on it."""
    said = [note for note in trace.notes if re.search(ABOUT_DEVICES, note) and "CPU kernel" not in note]
    reasons = (note.removeprefix(f"{WITHOUT_KERNELS}: ").rstrip(".") for note in said[:MOST_NOTES])
    return "; ".join(["the trace holds no GPU kernel", *reasons])


def _join(*reasons: str | None) -> str:
    """Return the reasons that there are, as one."""
    return "; ".join(reason for reason in reasons if reason)


def _summarize_devices(trace: Trace) -> Iterator[TimeSummary]:
    """Yield span, busy and idle time and the event counts of each device."""
    work = trace.device_events.filter(pl.col("activity").is_in(BUSY))
    for device in work.partition_by("device"):
        start, end = device["start_ns"].to_numpy(), device["end_ns"].to_numpy()
        span, busy = int(np.max(end) - np.min(start)), union(start, end).total_ns
        yield TimeSummary(span, busy, span - busy, dict(device["activity"].cast(pl.String).value_counts().rows()))
