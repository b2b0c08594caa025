"""What one rank's trace shows by itself: a value that needs no other rank, and that can be sent instead of the trace.

A job is examined rank by rank, here or on other machines; `merging` makes one analysis of the parts. Both ways give the
same result because they run the same code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from deepprof.collectors.trace import WORK_ACTIVITIES, Trace, empty_table
from deepprof.diagnosis.diagnosed_job import TimeSummary, WorkWithoutLoop, add_up
from deepprof.diagnosis.finding import Finding
from deepprof.metrics.annotation.trace_annotation import TraceAnnotation
from deepprof.metrics.breakdown.costs import host_of, mean_parts
from deepprof.metrics.breakdown.earlier_work import find_earlier_work
from deepprof.metrics.breakdown.timeline import Timeline
from deepprof.metrics.contexts.tree import ContextTree
from deepprof.metrics.kernels.classify import KernelKinds
from deepprof.metrics.kernels.computed_work import measure_work
from deepprof.metrics.loop import Loop
from deepprof.metrics.options import AnalysisOptions
from deepprof.metrics.ranks.facts import RankFacts, gather_facts
from deepprof.metrics.sharing.shares import ShareOfDevice
from deepprof.metrics.spans import union
from deepprof.metrics.top import top_of_recording
from deepprof.metrics.trace_loops import FoundLoops
from deepprof.results.analysis_result import Recording, describe_recording
from deepprof.results.analysis_tables import BREAKDOWN, PLACED_STREAMS, PLACED_WORK


class RankPart(Struct, frozen=True, kw_only=True, eq=False):
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


def describe_rank(  # noqa: PLR0913  what the stages found, by name
    annotation: TraceAnnotation,
    *,
    streams: pl.DataFrame,
    found: FoundLoops,
    kinds: KernelKinds,
    shares: tuple[ShareOfDevice, ...],
    findings: tuple[Finding, ...],
    options: AnalysisOptions,
) -> RankPart:
    """Return the rank's part of an analysis from what was found in its trace; `streams` are its `STREAMS`."""
    trace, rank = annotation.trace, annotation.trace.rank or 0
    steps = tuple(loop for loop in found.singles if loop.single == "marked step")
    measured = (*found.loops, *steps)
    number = pl.lit(rank, PLACED_STREAMS["rank"]).alias("rank")
    return RankPart(
        recording=describe_recording(trace),
        summary=add_up(_summarize_devices(trace)),
        streams=streams.select(number, pl.all()),
        loops=found.loops,
        reasons=found.reasons,
        findings=findings,
        timelines=found.timelines,
        breakdown=_list_breakdown(rank, found.timelines),
        work=_list_work(trace, kinds, found.timelines),
        facts=gather_facts(measured, trace, options.find_shared(rank)) if _has_others(measured, options) else None,
        shares=shares,
        stretches=tuple(_list_stretches(trace, found, kinds)),
        steps=steps,
        tree=annotation.tree,
        annotation=annotation,
    )


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


def _list_stretches(trace: Trace, found: FoundLoops, kinds: KernelKinds) -> Iterator[WorkWithoutLoop]:
    """Yield what was measured of every device without a main loop: a marked step, or else the recording."""
    rank, single = trace.rank or 0, {loop.device: loop for loop in found.singles}
    described = {loop.device for loop in found.loops} - single.keys()
    for device in sorted(found.timelines.keys() - described):
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
        earlier = find_earlier_work(trace, found.timelines[device])
        yield WorkWithoutLoop(rank, device, measured.stream, top, measured.roofline, parts, start, lacks, earlier)


def _measure_start(recording: Loop) -> dict[str, int]:
    if recording.timeline is None:
        return {}
    starting = recording.timeline.starting
    return {part: int(ns.sum()) for part, ns in recording.timeline.split(starting.starts, starting.ends).items()}


def _has_others(measured: Sequence[Loop], options: AnalysisOptions) -> bool:
    """Return whether there is another rank, or another device, to compare the loops of a rank with."""
    return not options.alone or len({loop.device for loop in measured}) > 1


def without_timelines(part: RankPart) -> RankPart:
    """Return the part without timelines and contexts, which grow with the trace and which no report shows."""
    loops, steps = (tuple(map(_without_events, each)) for each in (part.loops, part.steps))
    return replace(part, timelines={}, loops=loops, steps=steps, tree=None, annotation=None)


def _without_events(loop: Loop) -> Loop:
    """Return the loop without its timeline, and without the kernels of its work one by one."""
    return replace(loop, timeline=None, work=None if loop.work is None else loop.work.without_kernels())


def _list_breakdown(rank: int, timelines: Mapping[int, Timeline]) -> pl.DataFrame:
    """Return where the span of every device goes, as a table `BREAKDOWN`."""
    rows = [{"rank": rank, "device": device} | timeline.totals_ns for device, timeline in timelines.items()]
    return pl.DataFrame(rows, schema=BREAKDOWN)


def _summarize_devices(trace: Trace) -> Iterator[TimeSummary]:
    """Yield span, busy and idle time and the event counts of every device."""
    work = trace.device_events.filter(pl.col("activity").is_in(WORK_ACTIVITIES))
    for device in work.partition_by("device"):
        start, end = device["start_ns"].to_numpy(), device["end_ns"].to_numpy()
        span, busy = int(np.max(end) - np.min(start)), union(start, end).total_ns
        yield TimeSummary(span, busy, span - busy, dict(device["activity"].cast(pl.String).value_counts().rows()))
