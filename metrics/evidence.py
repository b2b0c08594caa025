"""What a trace knows beside the kernels' order, as the arrays that the miner takes."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.metrics.sequence import Sequence
from deepprof.metrics.spans import covered, union
from deepprof.mining.evidence import Evidence, Family, Trust

__all__ = ["gather_evidence"]

Int64s = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]

# Ranges that mark a whole step: PyTorch's profiler.step(), hand-written ones, and the engines' "execute_…".
STEP = re.compile(r"(?i)^(ProfilerStep\b|((train|eval|global)\w*[ _])?(step|iter|iteration)\b|execute_)")
# PyTorch's own ranges that come once per iteration, the rarest first: gradient accumulation loads several batches per
# step. The number ranks them by how often they proved to *end* where an iteration begins.
LOOPS = {"Optimizer.step#": 2.0, "Optimizer.zero_grad#": 1.0, "enumerate(DataLoader)#": 3.0}
INNER = ("nccl:", "gloo:", "rccl:", "ucc:")  # collectives come many times per iteration and mark nothing
WAITS = ("Synchronize", "hipStreamSynchronize")
# "lamb" must not match C++'s lambda.
OPTIMIZER = r"(?i)multi_tensor_apply|adam|sgd|lamb(?:[^d]|$)|lars\b|rmsprop|adagrad|adafactor|momentum|optimizer"


def gather_evidence(trace: Trace, sequence: Sequence) -> Evidence:
    """Return the evidence on where the iterations of `sequence` begin; what the trace lacks is left out."""
    return Evidence(
        gaps=sequence.gap_ns.astype(np.float64),
        launch_gaps=launch_gaps(trace, sequence) if sequence.linked else None,
        copies=mark(len(sequence.symbols), sequence.start_ns, copy_times(trace, sequence, ["HtoD"])),
        syncs=wait_marks(trace, sequence),
        graphs=graph_marks(trace, sequence),
        optimizer=trace.names.str.contains(OPTIMIZER).fill_null(value=False).to_numpy(),
        families=tuple(find_families(trace, sequence)),
        start=int(np.searchsorted(sequence.launch_ns, 0)) if sequence.linked else 0,
    )


def launch_gaps(trace: Trace, sequence: Sequence) -> npt.NDArray[np.float64]:
    """Return the host's own time before each launch: since the launch before, runtime calls left out.

    A host that waits inside a runtime call (a synchronisation, a full launch queue) waits for the device, which says
    nothing on where an iteration begins; a host that loads data or logs does. 0 where it is not known.
    """
    calls = trace.host_events.filter(pl.col("category") == "runtime")
    inside = union(calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy())
    launch, gaps = sequence.launch_ns, np.zeros(len(sequence.symbols))
    known = launch[:-1] >= 0
    gaps[1:] = np.where(known, np.diff(launch) - covered(inside, launch[:-1], launch[1:]), 0)
    return gaps


def mark(n: int, times: Int64s, events: Int64s) -> Marks:
    """Return which of `n` symbols, which begin at `times`, is the first to begin after each event."""
    marks: Marks = np.zeros(n + 1, bool)
    marks[np.searchsorted(times, events)] = True
    return marks[:n]


def copy_times(trace: Trace, sequence: Sequence, kinds: list[str]) -> Int64s:
    """Return the start times of the device's copies of the given kinds."""
    of_kind = (pl.col("device") == sequence.device) & pl.col("copy_kind").is_in(kinds)
    return trace.device_events.filter(of_kind)["start_ns"].to_numpy()


def wait_marks(trace: Trace, sequence: Sequence) -> Marks:
    """Return which symbols follow a wait of the host for the device: a synchronisation call or a copy back."""
    n = len(sequence.symbols)
    waiting = trace.names.str.contains("|".join(WAITS)).fill_null(value=False).arg_true()
    calls = trace.host_events.filter((pl.col("category") == "runtime") & pl.col("name_id").is_in(waiting.implode()))
    after_call = mark(n, sequence.launch_ns, calls["end_ns"].sort().to_numpy())
    return after_call | mark(n, sequence.start_ns, copy_times(trace, sequence, ["DtoH"]))


def graph_marks(trace: Trace, sequence: Sequence) -> Marks:
    """Return which symbols are whole graph launches, or the first kernel that one graph launch made."""
    names = trace.names.str.contains("GraphLaunch").fill_null(value=False).arg_true()
    calls = trace.host_events.filter((pl.col("category") == "runtime") & pl.col("name_id").is_in(names.implode()))
    first = mark(len(sequence.symbols), sequence.launch_ns, calls["start_ns"].sort().to_numpy())
    graphs = trace.device_events.filter(
        (pl.col("activity") == "graph") & (pl.col("device") == sequence.device) & (pl.col("stream") == sequence.stream)
    )
    return first | mark(len(sequence.symbols), sequence.start_ns, graphs["start_ns"].to_numpy())


def find_families(trace: Trace, sequence: Sequence) -> list[Family]:
    """Return the host ranges by name, digits aside, the framework's most telling ones first."""
    ranges = trace.annotations.filter(pl.col("end_ns").is_not_null() & (pl.col("end_ns") > pl.col("start_ns")))
    host = ranges.filter(pl.col("side") == "host")
    ranges = host if host.height else ranges.filter(pl.col("device") == sequence.device)
    names = pl.DataFrame({"name": trace.names}).with_row_index("name_id")
    named = ranges.join(names, on="name_id", how="left", maintain_order="left").with_columns(
        family=pl.col("name").str.replace(r"#?\d+$", "").str.replace_all(r"\d+", "#")
    )
    usable = named.filter(~pl.any_horizontal(pl.col("name").str.starts_with(prefix) for prefix in INNER))
    groups = usable.partition_by("family", maintain_order=True)
    families = [make_family(group, sequence) for group in groups]
    return sorted(families, key=lambda f: order(f.name))


def order(name: str) -> int:
    """Return the place of a range among the framework's loop ranges, after them for all others."""
    return next((i for i, prefix in enumerate(LOOPS) if name.startswith(prefix)), len(LOOPS))


def make_family(group: pl.DataFrame, sequence: Sequence) -> Family:
    """Return one family; its positions are the first symbols launched after each range began or, for some, ended."""
    name, host = group["name"][0], group["side"][0] == "host"
    family = group["family"][0]
    group = group.sort("end_ns" if order(name) < len(LOOPS) else "start_ns")
    times = sequence.launch_ns if host and sequence.linked else sequence.start_ns
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


def trust_in(name: str, *, framework: bool) -> Trust:
    """Return who wrote a range, and whether it marks steps."""
    if framework:
        return "loop" if order(name) < len(LOOPS) else "framework"
    return "step" if STEP.search(name) else "range"
