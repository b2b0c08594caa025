"""The device waits for the host between iterations; when the wait grows, the graph does (Gu et al., section VI).

The paper's case: each iteration adds operations to the TensorFlow graph, so that the host needs longer and longer
before the next iteration's first kernel, while the iteration itself stays the same and next to nothing is copied.
Without the growth the same picture is `host-bound`: the cause lies outside the iteration and is not known.
"""

from __future__ import annotations

from collections.abc import Iterator

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding, Severity
from deepprof.metrics.intervals import Intervals, host_range_during, intervals_of, mean
from deepprof.metrics.loop import Loop
from deepprof.metrics.trend import Trend, find_trend

__all__ = ["graph_growth"]

SMALL_OVERLAP = 0.3  # copies fill less of the interval than this, or they are the cause
LARGE_SHARE = 0.2  # of the iteration's time: below, the interval is no headline
CRITICAL_SHARE = 0.5
GROWTH = 0.5  # the interval grows by half of its median over the capture
CHANCE = 0.01


def graph_growth(loop: Loop, trace: Trace) -> Iterator[Finding]:
    """Yield `graph-growth` or `host-bound` when the interval is large and copies do not explain it."""
    intervals = intervals_of(loop)
    if intervals is None or intervals.overlap_ratio >= SMALL_OVERLAP:
        return
    if intervals.interval_ns < LARGE_SHARE * intervals.whole_ns:
        return
    trend = find_trend(intervals.iterations["interval_ns"].to_numpy())
    if trend is not None and trend.growth >= GROWTH and trend.p_value < CHANCE:
        yield growing(loop, trace, intervals, trend)
    else:
        yield host_bound(loop, trace, intervals)


def severity(intervals: Intervals) -> Severity:
    """Return how bad it is that this share of an iteration is waiting."""
    return "critical" if intervals.interval_ns >= CRITICAL_SHARE * intervals.whole_ns else "warning"


def growing(loop: Loop, trace: Trace, intervals: Intervals, trend: Trend) -> Finding:
    """Return the finding for an interval that grows."""
    first, last = (mean(part["interval_ns"]) for part in (intervals.iterations.head(3), intervals.iterations.tail(3)))
    kernels = find_trend(intervals.iterations["kernels"].to_numpy())
    return Finding(
        rule="graph-growth",
        severity=severity(intervals),
        title="Every iteration makes the host slower: the graph grows",
        summary=(
            f"The device waits {last / 1e6:.1f} ms before an iteration at the end of the trace and waited "
            f"{first / 1e6:.1f} ms at its start, {trend.slope / 1e6:+.2f} ms per iteration, while an iteration's "
            f"own work takes {intervals.operation_ns / 1e6:.1f} ms and copies fill "
            f"{100 * intervals.overlap_ratio:.0f} % of the wait."
        ),
        evidence=intervals.evidence()
        | {
            "first_interval_ns": round(first),
            "last_interval_ns": round(last),
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
        headroom_ns_per_iteration=round(intervals.interval_ns),
        confidence=round(loop.confidence * min(1.0, abs(trend.tau) + 0.1), 3),
        rank=loop.rank,
        device=loop.device,
        stream=loop.stream,
        iterations=intervals.bounds,
        location=host_range_during(intervals, trace),
    )


def host_bound(loop: Loop, trace: Trace, intervals: Intervals) -> Finding:
    """Return the finding for a large interval that does not grow."""
    location, share = host_range_during(intervals, trace), intervals.interval_ns / intervals.whole_ns
    doing = f"; meanwhile the host is in {location['range']}" if location else ""
    return Finding(
        rule="host-bound",
        severity=severity(intervals),
        title="The device waits for the host between iterations",
        summary=(
            f"{intervals.interval_ns / 1e6:.1f} ms of idle device time between iterations, {100 * share:.0f} % of an "
            f"iteration; copies fill {100 * intervals.overlap_ratio:.0f} % of it and it does not grow{doing}."
        ),
        evidence=intervals.evidence(),
        advice=(
            "Find out what the host does between the last kernel of an iteration and the first of the next: loading "
            "and augmenting data (more DataLoader workers, prefetching, pinned memory), logging, metrics, "
            "checkpoints, .item() or print of a tensor. Move it off the training thread or do it less often."
        ),
        headroom_ns_per_iteration=round(intervals.interval_ns),
        confidence=round(loop.confidence * min(1.0, 0.6 + share), 3),
        rank=loop.rank,
        device=loop.device,
        stream=loop.stream,
        iterations=intervals.bounds,
        location=location,
    )
