"""Something is added, kept or built anew in every iteration: the graph of the paper (Gu et al., section VI), and more.

The paper's case: each iteration adds operations to the TensorFlow graph, so that the host needs longer and longer
before the next iteration's first kernel. Modern variants: a growing number of kernels, code that is compiled and graphs
that are captured in every iteration. Memory that is never given back has its own rule, `memory-growth`.
"""

from __future__ import annotations

from collections.abc import Iterator

from deepprof.collectors.trace import Trace
from deepprof.diagnosis import Severity
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import format_ms, many, share_out
from deepprof.diagnosis.rule import rule
from deepprof.metrics.breakdown.costs import threads_of
from deepprof.metrics.breakdown.parts import PART_NAMES
from deepprof.metrics.breakdown.program_places import find_place
from deepprof.metrics.intervals import mean
from deepprof.metrics.loop import Loop
from deepprof.metrics.series.growth import (
    UNEXPLAINED,
    CountGrowth,
    IntervalGrowth,
    Rebuilding,
    find_count_growth,
    find_interval_growth,
    find_rebuilding,
)
from deepprof.metrics.series.trend import find_trend

RULE = "graph-growth"
CRITICAL_INTERVAL = 0.5  # of the iteration's time
WARNING, CRITICAL = 0.1, 0.3  # share of the iteration's time that is lost
MIN_COUNT_GROWTH = 0.1  # a count that grows by a tenth over a capture, which shows a small part of a job


@rule(RULE, explains={"host-bound", "launch-bound", "sync-bound", "slow-iterations", "drift", "memory-growth"})
def graph_growth(loop: Loop, trace: Trace) -> Iterator[Finding]:
    """Yield `graph-growth` for the costliest thing that grows or is built in every iteration; `cause` names it."""
    interval = find_interval_growth(loop)
    count = None if interval else find_count_growth(loop)  # a few more kernels do not make the host slower
    rebuilding = find_rebuilding(loop, trace)
    found = [
        *([_describe_interval(loop, trace, interval)] if interval else []),
        *([_describe_count(loop, count)] if count else []),
        *([_describe_rebuilding(loop, rebuilding)] if rebuilding else []),
    ]
    yield from sorted(found, key=lambda f: f.headroom_ns_per_iteration or 0, reverse=True)[:1]


def _graded(share: float) -> Severity:
    if share >= CRITICAL:
        return "critical"
    return "warning" if share >= WARNING else "info"


def _describe_interval(loop: Loop, trace: Trace, growth: IntervalGrowth) -> Finding:
    intervals, trend = growth.intervals, growth.trend
    first, last = (mean(part["interval_ns"]) for part in (intervals.iterations.head(3), intervals.iterations.tail(3)))
    kernels = find_trend(intervals.iterations["kernels"].to_numpy())
    return Finding(
        rule=RULE,
        severity="critical" if intervals.interval_ns >= CRITICAL_INTERVAL * intervals.whole_ns else "warning",
        title="Every iteration makes the host slower: the graph grows",
        summary=(
            f"The device waits {last / 1e6:.1f} ms before an iteration at the end of the trace and waited "
            f"{first / 1e6:.1f} ms at its start, {show_slope(trend.slope)} per iteration, while an iteration's "
            f"own work takes {intervals.operation_ns / 1e6:.1f} ms and copies fill "
            f"{100 * intervals.overlap_ratio:.0f} % of the wait."
        ),
        evidence=intervals.evidence()
        | {
            "cause": "interval",
            "first_interval_ns": round(first),
            "last_interval_ns": round(last),
            "lasting_ns_per_iteration": round(max(0.0, float(growth.unexplained_ns[-3:].mean()))),
            "slope_ns_per_iteration": round(trend.slope),
            "growth_ratio": round(trend.growth, 3),
            "tau": round(trend.tau, 3),
            "p_value": float(f"{trend.p_value:.2g}"),
            "kernels_per_iteration_slope": round(kernels.slope, 3) if kernels else None,
        },
        advice=(
            "Look for what is added in every iteration: operations created inside the training loop (TensorFlow 1 "
            "graphs), losses or metrics kept with their autograd history (use .item() or .detach()), hooks or "
            "callbacks registered again, re-compilation for new shapes. Build it once before the loop."
        ),
        headroom_ns_per_iteration=round(growth.waiting_ns),
        confidence=round(loop.confidence * min(1.0, abs(trend.tau) + 0.1), 3),
        **loop.place,
        iterations=intervals.bounds,
        location=find_place(trace, intervals.spans, threads_of(loop)),
        parts=share_out(growth.waiting_ns, loop, UNEXPLAINED),
    )


def show_slope(slope_ns: float) -> str:
    """Return a slope in ms, or in µs where it would round to nothing."""
    if abs(slope_ns) >= 1e4:
        return f"{slope_ns / 1e6:+.2f} ms"
    return f"{slope_ns / 1e3:+.2f} µs"


def _describe_count(loop: Loop, growth: CountGrowth) -> Finding:
    """Return the finding for a growing number of kernels or other device events."""
    trend, what = growth.trend, "kernels" if growth.count == "kernels" else "device events"
    share = growth.lost_ns / max(1.0, growth.time_ns)
    slower = (
        f"and takes {format_ms(growth.lost_ns)} longer ({100 * share:.0f} %)" if share >= 0.01 else "in the same time"
    )
    severity = _graded(share)
    return Finding(
        rule=RULE,
        severity="warning" if severity == "info" and trend.growth >= MIN_COUNT_GROWTH else severity,
        title="Every iteration runs more kernels than the one before: the graph grows",
        summary=(
            f"An iteration runs {growth.last:.0f} {what} at the end of the trace and ran {growth.first:.0f} at its "
            f"start ({trend.slope:+.2g} per iteration), {slower}."
        ),
        evidence={
            "cause": growth.count,
            f"first_{growth.count}": growth.first,
            f"last_{growth.count}": growth.last,
            "slope_per_iteration": round(trend.slope, 4),
            "growth_ratio": round(trend.growth, 3),
            "tau": round(trend.tau, 3),
            "p_value": float(f"{trend.p_value:.2g}"),
            "lost_ns_per_iteration": round(growth.lost_ns),
            "lasting_ns_per_iteration": round(growth.lost_ns),
            "share_ratio": round(share, 4),
        },
        advice=(
            "Look for what is carried from one iteration to the next: a loss summed up with its autograd history "
            "(use .item() or .detach()), hooks, callbacks or layers registered again, lists of tensors that are "
            "reduced each time, sequences or caches that become longer."
        ),
        headroom_ns_per_iteration=round(growth.extra_ns),
        confidence=round(loop.confidence * min(1.0, trend.tau + 0.1), 3),
        **loop.place,
        iterations=growth.bounds,
        parts=share_out(growth.extra_ns, loop, PART_NAMES),
    )


def _describe_rebuilding(loop: Loop, found: Rebuilding) -> Finding:
    """Return the finding for code or graphs that are built in most iterations."""
    what = "captures a graph" if found.graphs else "compiles"
    return Finding(
        rule=RULE,
        severity=_graded(found.idle_ns / max(1.0, found.time_ns)),
        title=(
            "Graphs are captured anew in every iteration" if found.graphs else "Code is compiled in every iteration"
        ),
        summary=(
            f"In {found.affected} of {found.iterations} iterations the host {what} for {format_ms(found.building_ns)} "
            f"({found.name}); the device idles for {format_ms(found.idle_ns)} of an iteration "
            f"({100 * found.idle_ns / max(1.0, found.time_ns):.0f} %) meanwhile."
        ),
        evidence={
            "cause": "capture" if found.graphs else "compilation",
            "affected_iterations": found.affected,
            "iterations": found.iterations,
            "building_ns_per_iteration": round(found.building_ns),
            "idle_ns_per_iteration": round(found.idle_ns),
            "share_ratio": round(found.idle_ns / max(1.0, found.time_ns), 4),
        },
        advice=(
            "Capture the graph once and replay it: keep the graph object, copy new inputs into the tensors it was "
            "captured with, pad batches to a few fixed sizes with a graph each."
            if found.graphs
            else "Give the compiler the same shapes and types each time: pad or bucket sequences, drop the last short "
            "batch, mark what varies as dynamic (torch._dynamo.mark_dynamic, dynamic=True); TORCH_LOGS=recompiles "
            "says what differed. Create compiled functions once, outside the loop."
        ),
        headroom_ns_per_iteration=round(found.idle_ns),
        confidence=round(loop.confidence * many(found.iterations) * (0.5 + 0.5 * found.affected / found.iterations), 3),
        **loop.place,
        iterations=found.bounds,
        location={"call" if found.graphs else "range": found.name},
        parts=share_out(found.idle_ns, loop, UNEXPLAINED),
    )
