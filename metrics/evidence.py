"""The evidence in a trace next to the kernels' order, as the arrays that the miner takes."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.trace import COPY_KINDS, Trace
from deepprof.metrics.host import HostSide, read_host
from deepprof.metrics.sequence import Sequence
from deepprof.metrics.spans import covered, union
from deepprof.mining.evidence import UPDATE, Evidence, Family, Trust

Int64s = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]

# Ranges that mark a whole iteration: PyTorch's profiler.step(), hand-written ones, and the engines' "execute_…".
STEP = re.compile(
    r"(?i)^(ProfilerStep|execute_"
    r"|((train|eval|global|bench|measure|profile|warm-?up)\w*[ _])?(step|iter|iteration|batch)[ _:-]*(?:$|[#\[(]))"
)
PART = re.compile(r"(?i)layer|block|attention|attn|mlp|expert|head\b|embed|norm\b")  # names of the parts of a model
# PyTorch's own ranges that come once per iteration, the rarest first: gradient accumulation loads several batches per
# iteration. The number ranks them by how often they proved to *end* where an iteration begins.
LOOPS = {UPDATE: 2.0, "Optimizer.zero_grad#": 1.0, "enumerate(DataLoader)#": 3.0}


class Mark(Struct, frozen=True):
    """When a range begins and ends, and whether the host has it or the device."""

    start_ns: int
    end_ns: int
    on_host: bool


def gather_evidence(trace: Trace, sequence: Sequence, host: HostSide | None = None) -> Evidence:
    """Return the evidence on where the iterations of `sequence` begin; what the trace lacks is left out.

    `host` is the trace's host side, if the caller already has it.
    """
    host = host or read_host(trace)
    n, begin, launch = len(sequence.symbols), sequence.start_ns, sequence.launch_ns
    waits, of_kernels = _mark(n, launch, host.waits_ns), sequence.directions is None
    copies = _mark_runs(sequence)
    if of_kernels:
        waits |= _mark(n, begin, _events_of(trace, sequence, pl.col("copy_kind") == "DtoH"))
        copies = _mark_inputs(trace, sequence, host)
    return Evidence(
        gaps=sequence.gap_ns.astype(np.float64),
        launch_gaps=_launch_gaps(host, sequence) if sequence.linked else None,
        copies=copies,
        syncs=waits,
        graphs=_mark(n, launch, host.graphs_ns) | _mark(n, begin, _graph_times(trace, sequence)),
        optimizer=host.optimizer if of_kernels else None,
        families=tuple(_find_families(host, sequence)),
        start=int(np.searchsorted(launch, 0)) if sequence.linked else 0,
        breaks=tuple(sequence.breaks.tolist()),
        durations=sequence.busy_ns.astype(np.float64),
    )


def _launch_gaps(host: HostSide, sequence: Sequence) -> npt.NDArray[np.float64]:
    """Return the host's own time before each launch: the time since the previous launch without runtime calls.

    A host that waits inside a runtime call (a synchronisation, a full launch queue) waits for the device, which does
    not show where an iteration begins; loading data or logging does. 0 where the time is unknown.
    """
    launch, gaps = sequence.launch_ns, np.zeros(len(sequence.symbols))
    own = np.diff(launch) - covered(host.calls, launch[:-1], launch[1:])
    gaps[1:] = np.where(launch[:-1] >= 0, own, 0)
    gaps[sequence.breaks] = 0
    return gaps


def _mark(n: int, times: Int64s, events: Int64s) -> Marks:
    """Return which of `n` symbols, which begin at `times`, is the first to begin after each event."""
    marks: Marks = np.zeros(n + 1, bool)
    marks[np.searchsorted(times, events)] = True
    return marks[:n]


def _mark_runs(sequence: Sequence) -> Marks:
    """Return which copies from the host follow another copy, or none; no kernel does."""
    if sequence.directions is None:
        return np.zeros(len(sequence.symbols), np.bool_)
    fed = sequence.directions[sequence.symbols] == COPY_KINDS.index("HtoD")
    return np.asarray(fed & ~np.append(False, fed[:-1])[: len(fed)])


def _events_of(trace: Trace, sequence: Sequence, which: pl.Expr) -> Int64s:
    """Return the start times of the device's events that `which` selects."""
    return trace.device_events.filter((pl.col("device") == sequence.device) & which)["start_ns"].to_numpy()


def _mark_inputs(trace: Trace, sequence: Sequence, host: HostSide) -> Marks:
    """Return which symbols follow a copy from the host, in the order of the launches where these are known.

    Copies on their own stream run long before the kernels that wait for them.
    """
    copies = trace.device_events.filter((pl.col("device") == sequence.device) & (pl.col("copy_kind") == "HtoD"))
    linked = copies.select("correlation", "start_ns").join(host.launches, on="correlation", how="left")
    known = linked["launch_ns"].is_not_null() & sequence.linked
    launched = _mark(len(sequence.symbols), sequence.launch_ns, linked.filter(known)["launch_ns"].to_numpy())
    return launched | _mark(len(sequence.symbols), sequence.start_ns, linked.filter(~known)["start_ns"].to_numpy())


def _graph_times(trace: Trace, sequence: Sequence) -> Int64s:
    """Return the start times of the stream's graph launches that were recorded as one event each."""
    return _events_of(trace, sequence, (pl.col("activity") == "graph") & (pl.col("stream") == sequence.stream))


def _find_families(host: HostSide, sequence: Sequence) -> list[Family]:
    """Return the host ranges grouped by name without digits, the framework's loop ranges first."""
    own = host.ranges.filter((pl.col("side") == "host") | (pl.col("device") == sequence.device))
    groups = own.partition_by("family", maintain_order=True)
    return sorted((_make_family(group, sequence) for group in groups), key=lambda f: order(f.name))


def order(name: str) -> int:
    """Return the place of a range among the framework's loop ranges, after them for all others."""
    return next((i for i, prefix in enumerate(LOOPS) if name.startswith(prefix)), len(LOOPS))


def _make_family(group: pl.DataFrame, sequence: Sequence) -> Family:
    """Return one family; its positions are the first symbols launched after each range began or, for some, ended."""
    name, host = group["name"][0], group["side"][0] == "host"
    family = group["family"][0]
    group = group.sort("end_ns" if order(name) < len(LOOPS) else "start_ns")
    times = _times_for(sequence, on_host=host)
    begin, end = (np.searchsorted(times, group[edge].to_numpy()) for edge in ("start_ns", "end_ns"))
    positions, first = np.unique(end if order(name) < len(LOOPS) else begin, return_index=True)
    spans = union(group["start_ns"].to_numpy(), group["end_ns"].to_numpy())
    reach = int(spans.ends[-1] - spans.starts[0]) if len(spans.starts) else 0
    return Family(
        family,
        trust_in(family, framework=bool(group["framework"][0])),
        positions.astype(np.int64),
        spans.total_ns / reach if reach else 0.0,
        end[first].astype(np.int64),
        telling=next((rank for prefix, rank in LOOPS.items() if name.startswith(prefix)), 0.0),
    )


def find_range(host: HostSide, sequence: Sequence, family: str, position: int) -> Mark:
    """Return the first range of a family after which the kernel at `position` is the first to be launched."""
    own = host.ranges.filter(pl.col("family") == family).sort("start_ns")
    for row in own.select("start_ns", "end_ns", "side").iter_rows():
        mark = Mark(row[0], row[1], row[2] == "host")
        if int(np.searchsorted(_times_for(sequence, on_host=mark.on_host), mark.start_ns)) == position:
            return mark
    raise ValueError(f"no range of {family} begins at kernel {position}")


def _times_for(sequence: Sequence, *, on_host: bool) -> Int64s:
    """Return when kernels begin, by the clock of a range: their launch for one on the host, where that is known."""
    return sequence.launch_ns if on_host and sequence.linked else sequence.start_ns


def trust_in(name: str, *, framework: bool) -> Trust:
    """Return the origin of a range, and whether it marks iterations or parts of a model."""
    if framework:
        return "loop" if order(name) < len(LOOPS) else "framework"
    if STEP.search(name):
        return "step"
    return "part" if PART.search(name) else "range"
