"""The pipeline: trace → streams → loops → metrics → findings, and the one object that every face shares."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl

from deepprof.collectors.errors import UsageError
from deepprof.collectors.trace import Trace
from deepprof.diagnosis.engine import diagnose_loop, rank
from deepprof.diagnosis.finding import Finding
from deepprof.metrics.evidence import gather_evidence
from deepprof.metrics.iteration_table import BUSY
from deepprof.metrics.loop import Agreement, Loop
from deepprof.metrics.mined import find_loops
from deepprof.metrics.sequence import main_sequence
from deepprof.metrics.spans import union
from deepprof.metrics.streams import classify_streams, with_names

__all__ = ["Agreement", "Analysis", "Loop", "Summary", "analyze"]

COUNTED = ("kernel", "memcpy", "memset", "graph")


@dataclass(frozen=True, slots=True)
class Summary:
    """Device time of all ranks and devices: unions of intervals, `busy_ns + idle_ns == span_ns`.

    The span of one device runs from its first event to its last; several devices add up to device time.
    """

    span_ns: int
    busy_ns: int
    idle_ns: int
    events: Mapping[str, int]  # kernel, memcpy, memset, graph


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """Everything DeepProf knows of one job: what renderers, the service and the Python API share."""

    traces: tuple[Trace, ...]
    summary: Summary
    streams: pl.DataFrame  # rank, device, stream, role, events, kernels, collectives, busy_ns
    loops: tuple[Loop, ...]
    no_loop_reason: str | None
    findings: tuple[Finding, ...]

    @cached_property
    def events(self) -> pl.DataFrame:
        """Device events of all ranks: the columns of `DEVICE_EVENTS` with `rank` and `name`."""
        parts = [with_names(t).with_columns(rank=pl.lit(t.rank or 0, pl.Int64)) for t in self.traces]
        return pl.concat(parts)

    @cached_property
    def iterations(self) -> pl.DataFrame:
        """Iterations of all loops: the columns of `ITERATIONS` with `loop` (its number), rank, device and stream."""
        from deepprof.metrics.iteration import ITERATIONS

        place = {"loop": pl.Int64, "rank": pl.Int64, "device": pl.Int64, "stream": pl.Int64}
        parts = [
            loop.iterations.select(
                *(pl.lit(value, pl.Int64).alias(key) for key, value in located(i, loop).items()), pl.all()
            )
            for i, loop in enumerate(self.loops)
        ]
        return pl.concat(parts) if parts else pl.DataFrame(schema={**place, **ITERATIONS})

    @cached_property
    def metrics(self) -> pl.DataFrame:
        """Table III, one row per loop, with `loop`, rank, device, stream, period and confidence."""
        rows = [
            located(i, loop)
            | {"period": loop.period, "confidence": loop.confidence}
            | {key: value for key, value in asdict(loop.metrics).items() if key != "iteration_ns"}
            | {"median_iteration_ns": loop.metrics.iteration_ns.median if loop.metrics.iteration_ns else None}
            for i, loop in enumerate(self.loops)
        ]
        return pl.DataFrame(rows)

    def to_json(self) -> str:
        """Return the report `deepprof.report/1`, with all findings."""
        from deepprof.render.json import encode

        return encode(self, limit=None)


def located(number: int, loop: Loop) -> dict[str, int | float | None]:
    """Return the columns that say which loop a row belongs to."""
    return {"loop": number, "rank": loop.rank, "device": loop.device, "stream": loop.stream}


def analyze(
    traces: Trace | Sequence[Trace], *, counts: Sequence[int] = (), stream: tuple[int, int] | None = None
) -> Analysis:
    """Find the iterations of one job and diagnose them.

    `traces` are its ranks. `counts` is the paper's mode: the iteration count, or one per loop of a program with
    several. `stream` names the main stream as (device, stream) instead of choosing it. Raises `UsageError` for a
    count below 2 or a stream that no trace has.
    """
    ranks = (traces,) if isinstance(traces, Trace) else tuple(traces)
    check_arguments(ranks, counts, stream)
    streams = [classify_streams(trace, stream) for trace in ranks]
    loops: list[Loop] = []
    findings: list[Finding] = []
    reasons: list[str] = []
    for trace, roles in zip(ranks, streams, strict=True):
        found, why_not = loops_of(trace, roles, counts)
        loops += found
        reasons += why_not
        findings += [finding for loop in found for finding in diagnose_loop(loop, trace)]
    return Analysis(
        traces=ranks,
        summary=summarize_time(ranks),
        streams=pl.concat(
            [
                roles.select(pl.lit(t.rank or 0, pl.Int64).alias("rank"), pl.all())
                for t, roles in zip(ranks, streams, strict=True)
            ]
        ),
        loops=tuple(loops),
        no_loop_reason=None if loops else "; ".join(dict.fromkeys(reasons)),
        findings=rank(findings),
    )


def check_arguments(ranks: Sequence[Trace], counts: Sequence[int], stream: tuple[int, int] | None) -> None:
    """Raise `UsageError` for arguments that cannot be meant."""
    if not ranks:
        raise UsageError("no trace given; name a file or a directory of ranks")
    if any(count < 2 for count in counts):
        raise UsageError(f"iteration counts {list(counts)}: each must be at least 2")
    if stream is not None and not any(has_stream(trace, stream) for trace in ranks):
        raise UsageError(f"stream {stream[0]}:{stream[1]} runs no kernel; streams that do: {list_streams(ranks)}")


def list_streams(ranks: Iterable[Trace]) -> str:
    """Return the streams that run kernels, as DEVICE:STREAM, at most a dozen."""
    tables = [classify_streams(trace).filter(pl.col("kernels") > 0) for trace in ranks]
    found = sorted({row for table in tables for row in table.select("device", "stream").rows()})
    return ", ".join(f"{device}:{number}" for device, number in found[:12]) or "none"


def has_stream(trace: Trace, stream: tuple[int, int]) -> bool:
    """Return whether a trace has kernels on (device, stream)."""
    device, number = stream
    return len(main_sequence(trace, device, number).symbols) > 0


def loops_of(trace: Trace, roles: pl.DataFrame, counts: Sequence[int]) -> tuple[list[Loop], list[str]]:
    """Return the loops on a trace's main streams, and for main streams without one the reason."""
    main = roles.filter(pl.col("role") == "main").select("device", "stream").rows()
    if not main:
        return [], [reason_without_kernels(trace)]
    loops: list[Loop] = []
    reasons: list[str] = []
    for device, number in main:
        sequence = main_sequence(trace, device, number)
        found, reason = find_loops(trace, sequence, gather_evidence(trace, sequence), counts)
        loops += found
        reasons += [reason] if reason else []
    return loops, reasons


def reason_without_kernels(trace: Trace) -> str:
    """Return why a trace without any kernel to mine has no loop, in its importer's words where it has some."""
    if trace.device_events.filter(pl.col("activity").is_in(["kernel", "graph"])).height:
        return "only collectives ran on the device; no stream computes"
    said = [note for note in trace.notes if re.search("(?i)kernel|CUDA events|accelerator", note)]
    return "; ".join(["the trace holds no GPU kernel", *said])


def summarize_time(ranks: Iterable[Trace]) -> Summary:
    """Return span, busy and idle time over all ranks and devices, and the event counts."""
    span = busy = 0
    events: Counter[str] = Counter()
    for trace in ranks:
        work = trace.device_events.filter(pl.col("activity").is_in(BUSY))
        events.update(dict(work["activity"].cast(pl.String).value_counts().rows()))
        for device in work.partition_by("device"):
            start, end = device["start_ns"].to_numpy(), device["end_ns"].to_numpy()
            span += int(np.max(end) - np.min(start))
            busy += union(start, end).total_ns
    return Summary(span, busy, span - busy, {activity: events[activity] for activity in COUNTED})


def without_ranges(trace: Trace) -> Trace:
    """Return the trace as if nobody had annotated it: what the miner finds alone is scored against the ranges."""
    kept = trace.annotations.clear()
    accounting = replace(
        trace.accounting,
        kept=trace.accounting.kept - trace.annotations.height,
        dropped=dict(trace.accounting.dropped) | {"hidden": trace.annotations.height},
    )
    return replace(trace, annotations=kept, accounting=accounting)
