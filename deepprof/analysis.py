"""The pipeline: trace → streams → loops → metrics → findings, and the one object that every face shares."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property

import numpy as np
import polars as pl

from deepprof.collectors.errors import UsageError
from deepprof.collectors.trace import Trace
from deepprof.diagnosis.causes import rank
from deepprof.diagnosis.engine import diagnose_loop
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.rules.straggler import straggler
from deepprof.metrics.breakdown.parts import PART_NAMES, PARTS
from deepprof.metrics.breakdown.table import with_parts
from deepprof.metrics.breakdown.timeline import Timeline, lay_out
from deepprof.metrics.clocks import on_one_clock
from deepprof.metrics.evidence import gather_evidence
from deepprof.metrics.host import read_host
from deepprof.metrics.iteration import ITERATIONS
from deepprof.metrics.iteration_table import BUSY
from deepprof.metrics.loop import Agreement, Loop
from deepprof.metrics.mined import find_loops
from deepprof.metrics.names import with_names
from deepprof.metrics.operators import stand_ins
from deepprof.metrics.ranks.comparison import RankComparison, compare_ranks
from deepprof.metrics.sequence import main_sequence
from deepprof.metrics.spans import union
from deepprof.metrics.streams import classify_streams

__all__ = ["BREAKDOWN", "METRICS", "Agreement", "Analysis", "Loop", "Summary", "analyze"]

PLACE = {"loop": pl.Int64(), "rank": pl.Int64(), "device": pl.Int64(), "stream": pl.Int64()}
METRICS = pl.Schema(
    PLACE
    | {
        "period": pl.Int64(),
        "confidence": pl.Float64(),
        "avg_interval_ns": pl.Int64(),
        "max_interval_ns": pl.Int64(),
        "avg_overlap_ratio": pl.Float64(),
        "avg_operation_ns": pl.Int64(),
        "avg_size_bytes": pl.Int64(),
        "median_iteration_ns": pl.Int64(),
        "warmup_excluded": pl.Int64(),
    }
)
BREAKDOWN = pl.Schema({"rank": pl.Int64(), "device": pl.Int64()} | dict.fromkeys(PART_NAMES, pl.Int64()))
FEWEST = 6  # kernels: fewer on a main stream are not worth a look


@dataclass(frozen=True, slots=True)
class Summary:
    """Device time of all ranks and devices: unions of intervals, `busy_ns + idle_ns == span_ns`.

    The span of one device runs from its first event to its last; several devices add up to device time.
    """

    span_ns: int
    busy_ns: int
    idle_ns: int
    events: Mapping[str, int]  # kernel, memcpy, memset, graph


@dataclass(frozen=True, kw_only=True, eq=False)
class Analysis:
    """Everything DeepProf knows of one job: what renderers, the service and the Python API share.

    `no_loop_reason` says why there is no loop at all, and `missing` why some main streams have none while others do.
    """

    traces: tuple[Trace, ...]
    summary: Summary
    streams: pl.DataFrame  # rank, device, stream, role, events, kernels, collectives, busy_ns
    loops: tuple[Loop, ...]
    no_loop_reason: str | None
    findings: tuple[Finding, ...]
    missing: tuple[str, ...] = ()
    timelines: Mapping[tuple[int, int], Timeline] = field(default_factory=dict)  # by rank and device
    ranks: RankComparison | None = None  # for a job of several ranks or devices

    @property
    def headline(self) -> Finding | None:
        """The root cause to look at first: the first finding of at least a warning that is no other one's symptom.

        What the recording lacks is none: it says nothing of the job.
        """
        told = (f for f in self.findings if f.severity != "info" and f.caused_by is None)
        return next((finding for finding in told if finding.rule != "capture-incomplete"), None)

    @cached_property
    def breakdown(self) -> pl.DataFrame:
        """Where each device's span goes: rank, device, and the columns `PART_NAMES`, in ns."""
        rows = [{"rank": rank, "device": device} | t.totals_ns for (rank, device), t in self.timelines.items()]
        return pl.DataFrame(rows, schema=BREAKDOWN)

    @cached_property
    def events(self) -> pl.DataFrame:
        """Device events of all ranks: the columns of `DEVICE_EVENTS` with `name` and `rank`."""
        named = [with_names(trace.device_events, trace.names) for trace in self.traces]
        ranks = [pl.lit(trace.rank or 0, pl.Int64).alias("rank") for trace in self.traces]
        return pl.concat(rows.with_columns(number) for rows, number in zip(named, ranks, strict=True))

    @cached_property
    def iterations(self) -> pl.DataFrame:
        """Iterations of all loops: `loop` (its number), rank, device, stream, and the columns of `Loop.table`."""
        empty = pl.DataFrame(schema={**PLACE, **ITERATIONS, **PARTS})
        places = [
            [pl.lit(v, pl.Int64).alias(k) for k, v in located(i, loop).items()] for i, loop in enumerate(self.loops)
        ]
        tables = [loop.table.select(*at, pl.all()) for at, loop in zip(places, self.loops, strict=True)]
        return pl.concat([empty, *tables])

    @cached_property
    def metrics(self) -> pl.DataFrame:
        """Table III, one row per loop, with the schema `METRICS`."""
        rows = []
        for number, loop in enumerate(self.loops):
            figures = asdict(loop.metrics) | {"period": loop.period, "confidence": loop.confidence}
            median = loop.metrics.iteration_ns.median if loop.metrics.iteration_ns else None
            rows.append(located(number, loop) | figures | {"median_iteration_ns": median})
        return pl.DataFrame([{key: row[key] for key in METRICS} for row in rows], schema=METRICS)

    def to_json(self) -> str:
        """Return the report `deepprof.report/1`, with all findings."""
        from deepprof.render.json import encode

        return encode(self, limit=None)


def located(number: int, loop: Loop) -> dict[str, int]:
    """Return the columns that say which loop a row belongs to."""
    return {"loop": number, "rank": loop.rank, "device": loop.device, "stream": loop.stream}


def analyze(
    traces: Trace | Sequence[Trace], *, counts: Sequence[int] = (), stream: tuple[int, int] | None = None
) -> Analysis:
    """Find the iterations of one job and diagnose them.

    `traces` are its ranks. `counts` is the paper's mode: the iteration count, or one per loop of a program with
    several. `stream` names the main stream as (device, stream) instead of choosing it. Raises `UsageError` for no
    trace, two traces of one rank, a count below 2, or a stream that no trace has.
    """
    given = stand_ins((traces,) if isinstance(traces, Trace) else traces)
    ranks = tuple(on_one_clock(trace) for trace in given)
    streams = [classify_streams(trace, stream) for trace in ranks]
    check_arguments(ranks, streams, counts, stream)
    looks = [look_at(trace, roles, counts) for trace, roles in zip(ranks, streams, strict=True)]
    loops = [loop for look in looks for loop in look.loops]
    reasons = [(trace.rank or 0, *why) for trace, look in zip(ranks, looks, strict=True) for why in look.reasons]
    pairs = [(loop, trace) for trace, look in zip(ranks, looks, strict=True) for loop in look.loops]
    compared = compare_ranks(loops, ranks)
    return Analysis(
        traces=ranks,
        summary=summarize_time(ranks),
        streams=pl.concat(numbered(trace, roles) for trace, roles in zip(ranks, streams, strict=True)),
        loops=tuple(loops),
        no_loop_reason=None if loops else "; ".join(dict.fromkeys(why for *_, why in reasons)),
        findings=rank(diagnose(pairs, compared, ranks)),
        missing=tuple(f"rank {number}{place}: no iteration found: {why}" for number, place, why in reasons if loops),
        timelines={
            (trace.rank or 0, device): timeline
            for trace, look in zip(ranks, looks, strict=True)
            for device, timeline in look.timelines.items()
        },
        ranks=compared,
    )


def diagnose(
    pairs: Sequence[tuple[Loop, Trace]], compared: RankComparison | None, ranks: Sequence[Trace]
) -> Iterator[Finding]:
    """Yield what the rules find in each loop, and between ranks."""
    for loop, trace in pairs:
        yield from diagnose_loop(loop, trace)
    if compared is not None:
        yield from straggler(compared, [loop for loop, _ in pairs], ranks)


def numbered(trace: Trace, roles: pl.DataFrame) -> pl.DataFrame:
    """Return a trace's streams with its rank."""
    return roles.select(pl.lit(trace.rank or 0, pl.Int64).alias("rank"), pl.all())


def check_arguments(
    ranks: Sequence[Trace], streams: Sequence[pl.DataFrame], counts: Sequence[int], stream: tuple[int, int] | None
) -> None:
    """Raise `UsageError` for arguments that cannot be meant."""
    if not ranks:
        raise UsageError("no trace given; name a file or a directory of ranks")
    twice = [number for number, times in Counter(trace.rank or 0 for trace in ranks).items() if times > 1]
    if twice:
        raise UsageError(f"two traces of rank {twice[0]}; give each its own (deepprof.read_job numbers them)")
    if any(not isinstance(count, int) or count < 2 for count in counts):
        raise UsageError(f"iteration counts {list(counts)}: each must be a whole number of at least 2")
    busy = [roles.filter(pl.col("kernels") > 0).select("device", "stream").rows() for roles in streams]
    if stream is not None and not any(stream in rows for rows in busy):
        known = ", ".join(
            f"{device}:{number}" for device, number in sorted({row for rows in busy for row in rows})[:12]
        )
        raise UsageError(f"stream {stream[0]}:{stream[1]} runs no kernel; streams that do: {known or 'none'}")


@dataclass(frozen=True, slots=True)
class Look:
    """What one trace shows: its loops, where its devices' time goes, and the reasons why main streams have no loop."""

    loops: list[Loop]
    timelines: dict[int, Timeline]
    reasons: list[tuple[str, str]]  # where, and why


def look_at(trace: Trace, roles: pl.DataFrame, counts: Sequence[int]) -> Look:
    """Return the loops on a trace's main streams, and for those without one where they are and the reason."""
    host = read_host(trace)
    timelines = {
        device: lay_out(trace, device, host.launches) for device in roles["device"].unique(maintain_order=True)
    }
    main = roles.filter(pl.col("role") == "main")
    look = Look([], timelines, [] if main.height else [("", reason_without_kernels(trace))])
    for device, number, kernels in main.select("device", "stream", "kernels").iter_rows():
        if kernels < FEWEST:
            look.reasons.append((f", device {device}", f"only {kernels} kernels on the main stream, too few to repeat"))
            continue
        sequence = main_sequence(trace, device, number, host)
        found, reason = find_loops(trace, sequence, gather_evidence(trace, sequence, host), counts)
        look.loops.extend(with_parts(loop, trace, timelines[device]) for loop in found)
        look.reasons.extend([(f", device {device}", reason)] if reason else [])
    return look


def reason_without_kernels(trace: Trace) -> str:
    """Return why a trace without any kernel to mine has no loop, in its importer's words where it has some."""
    if trace.device_events.filter(pl.col("activity").is_in(["kernel", "graph"])).height:
        return "only collectives ran on the device; no stream computes"
    said = [note for note in trace.notes if re.search("(?i)kernel|CUDA events|accelerator|device events", note)]
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
    return Summary(span, busy, span - busy, {activity: events[activity] for activity in BUSY})
