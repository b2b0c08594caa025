"""A job as a Chrome JSON trace for ui.perfetto.dev: its own events, and next to them what DeepProf found in them.

Each device of every rank is a process with tracks for findings, iterations, nested loops, idle causes and streams; the
host is a process with a track per thread. Slices that overlap without nesting get their own lanes, because viewers
drop them otherwise. Events become text a piece at a time: next to the analysis this takes memory for the order and the
lanes of one table, about 300 bytes an event, and for `document.PIECE` events as text.
"""

from __future__ import annotations

from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding
from deepprof.metrics.annotation.trace_annotation import TraceAnnotation, annotate
from deepprof.render.perfetto.clock import choose_clock
from deepprof.render.perfetto.devices import annotation_layer, count_memory, count_on_device, devices_of, stream_layer
from deepprof.render.perfetto.document import PerfettoDocument, PerfettoResult, PlacedLayer
from deepprof.render.perfetto.found import extent_of, finding_layer, found_layers
from deepprof.render.perfetto.layers import SliceLayer, number
from deepprof.results.analysis_result import AnalysisResult

__all__ = ["PerfettoResult", "write_perfetto"]

Int64s = npt.NDArray[np.int64]

THREAD = ["process", "thread"]


def write_perfetto(analysis: AnalysisResult, file: BinaryIO, *, flows: bool = False) -> PerfettoResult:
    """Write a job to `file` and return what was written.

    Times are microseconds from the first record on, with three decimals; `otherData.zero_ns` is that record's own
    time. With `flows` arrows lead from launches to what they launched. Raises what `file.write` raises.
    """
    document = PerfettoDocument(file, choose_clock(analysis.traces))
    for trace in analysis.traces:
        document.begin_rank(trace.rank or 0)
        streams = []
        for device in devices_of(trace):
            placed = _write_device(document, analysis, trace, device)
            streams += [placed] if flows else []  # only arrows need the tables once more
        host = _write_host(document, analysis, trace)
        for stream in streams:
            document.point(host, stream, _find_launches(host, stream))
    document.close()
    return document.written


def _write_device(document: PerfettoDocument, analysis: AnalysisResult, trace: Trace, device: int) -> PlacedLayer:
    """Write one device, with what was found above what ran, and return its streams."""
    rank = trace.rank or 0
    process = document.add_process(f"rank {rank} {devices_of(trace)[device]}")
    loops = [loop for loop in analysis.loops if (loop.rank, loop.device) == (rank, device)]
    findings = [f for f in analysis.findings if _place_of(f, analysis) == (rank, device)]
    for layer in found_layers(findings, loops, analysis.timelines.get((rank, device)), _annotation_of(analysis, trace)):
        document.add(process, layer)
    streams = document.add(process, stream_layer(trace, device, analysis.streams))
    document.add(process, annotation_layer(trace, device))
    document.count(process, count_on_device(trace, device, loops))
    return streams


def _annotation_of(analysis: AnalysisResult, trace: Trace) -> TraceAnnotation:
    return analysis.annotated.get(trace.rank or 0) or annotate(trace, (), None)


def _write_host(document: PerfettoDocument, analysis: AnalysisResult, trace: Trace) -> PlacedLayer:
    """Write the host of one rank, with the findings on ranks that used no device, and return its threads."""
    rank = trace.rank or 0
    process = document.add_process(f"rank {rank} host")
    findings = [f for f in analysis.findings if _place_of(f, analysis) == (rank, None)]
    document.add(process, finding_layer(findings, (), extent_of(trace)))
    threads = document.add(process, _host_layer(trace))
    document.count(process, _count_on_host(trace))
    return threads


def _place_of(finding: Finding, analysis: AnalysisResult) -> tuple[int, int | None]:
    """Return the rank and device that a finding is shown with: its own ones, or the first possible ones."""
    ranks = [trace.rank or 0 for trace in analysis.traces]
    rank = finding.rank if finding.rank in ranks else ranks[0]
    known = list(devices_of(analysis.traces[ranks.index(rank)]))
    loops = [loop.device for loop in analysis.loops if loop.rank == rank]
    return rank, finding.device if finding.device in known else next((d for d in [*loops, *known] if d in known), None)


def _host_layer(trace: Trace) -> SliceLayer:
    """Return all host events, and the annotations that are on no device, on their threads.

    The threads that call the runtime most come first.
    """
    events = trace.host_events.select(
        "start_ns", "end_ns", *THREAD, "name_id", "correlation", "external_id", kind=pl.col("category").cast(pl.String)
    )
    elsewhere = (pl.col("side") == "host") | pl.col("device").is_null()
    ranges = trace.annotations.filter(elsewhere).select(
        "start_ns", "end_ns", *THREAD, "name_id", kind=pl.lit("annotation")
    )
    both = pl.concat([events, ranges], how="diagonal")
    threads = (
        both.group_by(THREAD)
        .agg(calls=(pl.col("kind") == "runtime").sum())
        .sort("calls", *THREAD, descending=[True, False, False])
        .with_row_index("track")
    )
    several = threads["process"].n_unique() > 1
    labels = [_name_thread(process, thread, several=several) for _, process, thread, _ in threads.iter_rows()]
    rows = both.join(threads, on=THREAD, how="left", nulls_equal=True, maintain_order="left")
    args = {
        "correlation": number("correlation"),
        "external_id": number("external_id"),
        "closed": pl.when(pl.col("end_ns").is_null()).then(pl.lit("false")),
    }
    return SliceLayer(labels, rows, trace.names, pl.col("kind"), args)


def _name_thread(process: int | None, thread: int | None, *, several: bool) -> str:
    """Return a thread's name, with its process where there are several."""
    name = "unknown thread" if thread is None else f"thread {thread}"
    return f"{name} of process {'?' if process is None else process}" if several else name


def _count_on_host(trace: Trace) -> pl.DataFrame:
    """Return the host's memory in use, as counters."""
    return count_memory(trace, pl.col("device").is_null() | (pl.col("device") < 0))


def _find_launches(host: PlacedLayer, device: PlacedLayer) -> tuple[Int64s, Int64s]:
    """Return the rows of the host's launches and of what each launched, pair by pair; a graph is launched once."""
    calls = host.layer.rows.select("correlation", "kind").with_row_index("call")
    linked = calls.filter((pl.col("kind") == "runtime") & pl.col("correlation").is_not_null())
    first = linked.unique("correlation", keep="first", maintain_order=True)
    events = device.layer.rows.select("correlation").with_row_index("event")
    pairs = events.join(first, on="correlation", how="inner", maintain_order="left")
    return pairs["call"].cast(pl.Int64).to_numpy(), pairs["event"].cast(pl.Int64).to_numpy()
