"""A job as a Chrome JSON trace for ui.perfetto.dev: its own events, and beside them what DeepProf found in them.

Each device of each rank is a process with tracks for findings, iterations, nested loops, idle causes and streams; the
host is a process with a track per thread. Slices that overlap without nesting get lanes of their own, because viewers
drop them otherwise. Events become text a piece at a time: beside the analysis this takes memory for the order and the
lanes of one table, about 300 bytes an event, and for `document.PIECE` events as text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from deepprof.render.perfetto.clock import choose_clock
from deepprof.render.perfetto.devices import annotation_layer, count_on_device, devices_of, stream_layer
from deepprof.render.perfetto.document import PerfettoDocument, PerfettoResult, PlacedLayer
from deepprof.render.perfetto.found import extent_of, finding_layer, found_layers
from deepprof.render.perfetto.hosts import count_on_host, find_launches, host_layer

if TYPE_CHECKING:
    from deepprof.analysis import Analysis
    from deepprof.collectors.trace import Trace
    from deepprof.diagnosis.finding import Finding

__all__ = ["PerfettoResult", "write_perfetto"]


def write_perfetto(analysis: Analysis, file: BinaryIO, *, flows: bool = False) -> PerfettoResult:
    """Write a job to `file` and return what was written.

    Times are microseconds from the first record on, with three decimals; `otherData.zero_ns` is that record's own
    time. With `flows` arrows lead from launches to what they launched. Raises what `file.write` raises.
    """
    document = PerfettoDocument(file, choose_clock(analysis.traces))
    for trace in analysis.traces:
        document.begin_rank(trace.rank or 0)
        streams = []
        for device in devices_of(trace):
            placed = write_device(document, analysis, trace, device)
            streams += [placed] if flows else []  # only arrows need the tables once more
        host = write_host(document, analysis, trace)
        for stream in streams:
            document.point(host, stream, find_launches(host, stream))
    document.close()
    return document.written


def write_device(document: PerfettoDocument, analysis: Analysis, trace: Trace, device: int) -> PlacedLayer:
    """Write one device, with what was found above what ran, and return its streams."""
    rank = trace.rank or 0
    process = document.add_process(f"rank {rank} {devices_of(trace)[device]}")
    loops = [loop for loop in analysis.loops if (loop.rank, loop.device) == (rank, device)]
    findings = [f for f in analysis.findings if place_of(f, analysis) == (rank, device)]
    for layer in found_layers(findings, loops, analysis.timelines.get((rank, device)), trace):
        document.add(process, layer)
    streams = document.add(process, stream_layer(trace, device, analysis.streams))
    document.add(process, annotation_layer(trace, device))
    document.count(process, count_on_device(trace, device, loops))
    return streams


def write_host(document: PerfettoDocument, analysis: Analysis, trace: Trace) -> PlacedLayer:
    """Write the host of one rank, with the findings on ranks that used no device, and return its threads."""
    rank = trace.rank or 0
    process = document.add_process(f"rank {rank} host")
    findings = [f for f in analysis.findings if place_of(f, analysis) == (rank, None)]
    document.add(process, finding_layer(findings, (), extent_of(trace)))
    threads = document.add(process, host_layer(trace))
    document.count(process, count_on_host(trace))
    return threads


def place_of(finding: Finding, analysis: Analysis) -> tuple[int, int | None]:
    """Return the rank and device that a finding is shown with: its own ones, or the first possible ones."""
    ranks = [trace.rank or 0 for trace in analysis.traces]
    rank = finding.rank if finding.rank in ranks else ranks[0]
    known = list(devices_of(analysis.traces[ranks.index(rank)]))
    loops = [loop.device for loop in analysis.loops if loop.rank == rank]
    return rank, finding.device if finding.device in known else next((d for d in [*loops, *known] if d in known), None)
