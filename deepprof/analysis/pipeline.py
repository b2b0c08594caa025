"""The stages of an analysis: what one rank's trace shows, from its records to the findings.

read (`deepprof.job`) → clock → streams → loops and breakdown → contexts → annotation → work → costs → findings. Each
stage needs what the stages before it returned, and changes nothing of it. `merging` makes one analysis of the parts of
all ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import polars as pl
from msgspec.structs import replace

from deepprof.analysis.findings import find_findings
from deepprof.analysis.part import RankPart, describe_rank
from deepprof.collectors.trace import Trace
from deepprof.metrics.annotation.anatomy import read_anatomy
from deepprof.metrics.annotation.trace_annotation import TraceAnnotation, annotate
from deepprof.metrics.call_order import link_in_order
from deepprof.metrics.clocks import on_one_clock
from deepprof.metrics.contexts.slices import has_code
from deepprof.metrics.contexts.tree import ContextTree, build_tree
from deepprof.metrics.cost.loop_device import find_device_peaks
from deepprof.metrics.cost.loop_roofline import WorkSources, measure_roofline
from deepprof.metrics.cost.roofs import DevicePeaks
from deepprof.metrics.cost.trace_costs import find_costs
from deepprof.metrics.kernels.classify import KernelKinds, find_kernel_kinds
from deepprof.metrics.kernels.loop_work import measure_loop_work
from deepprof.metrics.loop import Loop
from deepprof.metrics.operators import is_stand_in
from deepprof.metrics.options import AnalysisOptions
from deepprof.metrics.ranks.facts import longest_loops
from deepprof.metrics.selection.selected_trace import keep_roles
from deepprof.metrics.sharing.shared_places import SharedWork
from deepprof.metrics.sharing.shares import ShareOfDevice, measure_share
from deepprof.metrics.streams import classify_streams
from deepprof.metrics.top import top_of_loop
from deepprof.metrics.trace_loops import FoundLoops, search_trace


def examine(trace: Trace, options: AnalysisOptions, recorded: Trace | None = None) -> tuple[Trace, RankPart]:
    """Return the trace with the host on the device's clock, and the rank's part of the analysis.

    `recorded` is the trace as it was read, if operators were made its kernels since (CPU fallback). The caller checks
    that no two ranks have the same number, and that some rank has the requested stream.
    """
    recorded, trace = recorded or trace, on_one_clock(link_in_order(trace))
    streams = classify(trace, options)
    found = find_loops(trace, streams, options)
    tree = read_contexts(trace, recorded)
    kinds = find_kernel_kinds(trace, recorded, None if tree is None else (tree.slices, tree.sites))
    annotation = annotate(trace, found.loops, tree)
    found = _measure_layers(found, annotation)
    peaks = find_peaks(trace, found, options)
    found = _measure_costs(found, annotation, recorded, peaks)
    found = measure_work(found, trace, kinds)
    shares = _measure_shares(found, trace, options.find_shared(trace.rank or 0))
    findings = find_findings(annotation, found, kinds, shares, peaks)
    part = describe_rank(
        annotation, streams=streams, found=found, kinds=kinds, shares=shares, findings=findings, options=options
    )
    return trace, part


def classify(trace: Trace, options: AnalysisOptions) -> pl.DataFrame:
    """Return the streams of a trace with their roles, a table `STREAMS`."""
    return keep_roles(classify_streams(trace, options.stream), options.find_known(trace))


def find_loops(trace: Trace, streams: pl.DataFrame, options: AnalysisOptions) -> FoundLoops:
    """Return the measured loops of a trace, and where the time of its devices goes."""
    rank = trace.rank or 0
    others = {device: each.others(rank) for device, each in options.find_shared(rank).items()}
    return search_trace(trace, streams, options, others)


def read_contexts(trace: Trace, recorded: Trace) -> ContextTree | None:
    """Return the calling contexts of a trace, None where they would be no more than its device events."""
    known = recorded if is_stand_in(trace) else trace
    return build_tree(trace, known) if has_code(known) else None


def _measure_layers(found: FoundLoops, annotation: TraceAnnotation) -> FoundLoops:
    loops = (
        replace(loop, anatomy=read_anatomy(annotation, loop, found.timelines[loop.device])) for loop in found.loops
    )
    return replace(found, loops=tuple(loops))


def find_peaks(trace: Trace, found: FoundLoops, options: AnalysisOptions) -> Mapping[int, DevicePeaks | None]:
    """Return the peaks of every device, None where they are neither given nor known."""
    return {device: options.peaks or find_device_peaks(trace, device) for device in found.timelines}


def _measure_costs(
    found: FoundLoops, annotation: TraceAnnotation, recorded: Trace, peaks: Mapping[int, DevicePeaks | None]
) -> FoundLoops:
    """Return the loops next to the peaks of their devices; as they are where no operands were read."""
    if recorded.operands.is_empty():
        return found
    trace, tree = annotation.trace, annotation.tree
    sources = WorkSources(find_costs(trace, recorded, tree), tree, annotation.layers)
    return found.with_each(partial(_compare_with_peaks, trace=trace, sources=sources, peaks=peaks))


def _compare_with_peaks(
    loop: Loop, trace: Trace, sources: WorkSources, peaks: Mapping[int, DevicePeaks | None]
) -> Loop:
    """Return the loop with its roofline, and the utilisation among its metrics."""
    found = measure_roofline(trace, loop, sources, peaks.get(loop.device))
    if found is None:
        return loop
    metrics = loop.metrics.with_utilization(found.mfu_ratio, found.hfu_ratio)
    return replace(loop, roofline=found, metrics=metrics)


def measure_work(found: FoundLoops, trace: Trace, kinds: KernelKinds) -> FoundLoops:
    """Return the loops with what the devices compute in them, and the kernels and copies that use the time."""
    return found.with_each(
        lambda loop: replace(loop, top=top_of_loop(loop, trace, kinds), work=measure_loop_work(loop, trace, kinds))
    )


def _measure_shares(found: FoundLoops, trace: Trace, shared: Mapping[int, SharedWork]) -> tuple[ShareOfDevice, ...]:
    longest, rank = longest_loops(found.loops), trace.rank or 0
    return tuple(
        measure_share(trace, each, own, longest.get((rank, device)))
        for device, each in shared.items()
        for own in each.works
        if (own.rank, own.device) == (rank, device)
    )
