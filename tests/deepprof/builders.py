"""Analyses built by hand, so that a renderer's test states all it rests on."""

from __future__ import annotations

from typing import Any

import polars as pl

from deepprof.analysis import BREAKDOWN, Agreement, Analysis, Loop, TimeSummary
from deepprof.collectors.trace import DEVICES, Accounting, Trace, empty_table
from deepprof.diagnosis.finding import Finding
from deepprof.metrics.iteration import ITERATIONS, LoopMetrics, Spread
from deepprof.results.analysis_result import describe_recording

BASE_NS = 1_700_000_000_000_000_000
STREAMS = {
    "rank": pl.Int64,
    "device": pl.UInt16,
    "stream": pl.Int64,
    "role": pl.String,
    "events": pl.Int64,
    "busy_ns": pl.Int64,
}


def build_trace(path: str = "job.json.gz", rank: int | None = 0, **changes: Any) -> Trace:
    """A trace without rows whose records were all dropped for a reason."""
    devices = {
        "device": [0],
        "name": ["NVIDIA A100"],
        "memory_nbytes": [1],
        "multiprocessors": [108],
        "properties": ["{}"],
    }
    fields: dict[str, Any] = {
        "path": path,
        "format": "kineto",
        "names": pl.Series("names", [], dtype=pl.String),
        "accounting": Accounting(read=10, kept=0, dropped={"metadata": 7, "flow": 3}, flagged={"unlinked": 2}),
        "devices": pl.DataFrame(devices, schema=dict(DEVICES)),
        "rank": rank,
    }
    return Trace(**(fields | changes))


def build_iterations(times_ns: list[int], *, warmup: int = 1, partial: bool = True) -> pl.DataFrame:
    """One row per time, back to back, 80 % of every operation; the last one incomplete if `partial`."""
    rows = []
    start = BASE_NS
    for index, time in enumerate(times_ns):
        last = index == len(times_ns) - 1
        rows.append(build_row(index, start, time, complete=not (partial and last), warmup=index < warmup, last=last))
        start += time
    return pl.DataFrame(rows, schema=dict(ITERATIONS), orient="row")


def build_row(index: int, start: int, time: int, *, complete: bool, warmup: bool, last: bool) -> dict[str, Any]:
    operation = time * 8 // 10
    return {
        "index": index,
        "start_ns": start,
        "end_ns": start + operation,
        "kernels": 335,
        "events": 340,
        "edits": 0,
        "complete": complete,
        "warmup": warmup,
        "iteration_ns": None if last else time,
        "operation_ns": operation,
        "interval_ns": None if last else time - operation,
        "overlap_ratio": None if last else 0.125,
        "htod_ns": 1_000,
        "htod_bytes": 65_536,
        "busy_ns": operation,
        "idle_ns": 0 if last else time - operation,
    }


def build_metrics(**changes: Any) -> LoopMetrics:
    fields = {
        "avg_interval_ns": 12_300_000,
        "max_interval_ns": 92_380_000,
        "avg_overlap_ratio": 0.0125,
        "avg_operation_ns": 21_400_000,
        "avg_size_bytes": 65_536,
        "iteration_ns": Spread(median=57_100_000, p5=30_000_000, p95=110_000_000),
        "warmup_excluded": 1,
    }
    return LoopMetrics(**(fields | changes))


def build_loop(times_ns: list[int] | None = None, **changes: Any) -> Loop:
    times_ns = [10_000_000 * (k + 1) for k in range(8)] if times_ns is None else times_ns
    fields: dict[str, Any] = {
        "rank": 0,
        "device": 0,
        "stream": 7,
        "period": 335,
        "confidence": 0.98,
        "evidence": "335 kernels repeat 8 times, 0 edits",
        "boundary_source": "framework",
        "boundary_confidence": 0.9,
        "agreement": Agreement("ProfilerStep", 8, 1.0, 8, 8),
        "iterations": build_iterations(times_ns),
        "metrics": build_metrics(),
        "cycles": ({"every": 10, "extra_events": 12, "kind": "statistics"},),
        "nested": ({"events": 13, "repeats": 8},),
    }
    return Loop(**(fields | changes))


def build_finding(**changes: Any) -> Finding:
    fields: dict[str, Any] = {
        "rule": "graph-growth",
        "severity": "critical",
        "title": "the graph grows with every iteration",
        "summary": "The time between iterations grows by 2.2 ms each time; 10 more host operators explain 97 % of it.",
        "evidence": {"slope_ns": 2_200_000, "r_squared": 0.99, "operator": "aten::add", "absent": None},
        "advice": "Build the graph once, before the loop; keep loss.item() instead of loss.",
        "confidence": 0.97,
        "headroom_ns_per_iteration": 48_000_000,
        "rank": 0,
        "iterations": (1, 39),
        "location": {"stream": 7, "name": "aten::add"},
    }
    return Finding(**(fields | changes))


def build_analysis(**changes: Any) -> Analysis:
    loops = changes.get("loops", (build_loop(),))
    streams = [(0, 0, 7, "main", 13_700, 900_000), (0, 0, 20, "copy", 82, 1_000)]
    fields: dict[str, Any] = {
        "traces": (build_trace(),),
        "summary": TimeSummary(1_000_000, 901_000, 99_000, {"kernel": 13_700, "memcpy": 82, "memset": 41, "graph": 0}),
        "streams": pl.DataFrame(streams, schema=STREAMS, orient="row"),
        "loops": loops,
        "no_loop_reason": None if loops else "only 2 repetitions were seen; 3 are needed",
        "findings": (build_finding(),),
        "breakdown": empty_table(BREAKDOWN),
    }
    fields |= changes
    return Analysis(recordings=tuple(map(describe_recording, fields["traces"])), **fields)
