"""The device waits for the host between iterations; when the wait grows, the graph does (Gu et al., section VI).

The paper's case: each iteration adds operations to the TensorFlow graph, so that the host needs longer and longer
before the next iteration's first kernel, while the iteration itself stays the same and next to nothing is copied.
Without the growth the same picture is `host-bound`: the cause lies outside the iteration and is not known.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding, Severity
from deepprof.metrics.intervals import host_range_during, usable_iterations
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
    used = usable_iterations(loop)
    if used.height < 2:
        return
    interval, operation = mean(used, "interval_ns"), mean(used, "operation_ns")
    share, overlap = interval / max(1.0, interval + operation), mean(used, "overlap_ratio")
    if share < LARGE_SHARE or overlap >= SMALL_OVERLAP:
        return
    trend = find_trend(used["interval_ns"].to_numpy())
    if trend is not None and trend.growth >= GROWTH and trend.p_value < CHANCE:
        yield growing(loop, trace, used, share, trend)
    else:
        yield host_bound(loop, trace, used, share)


def mean(used: pl.DataFrame, column: str) -> float:
    """Return a column's mean, 0 without values."""
    return float(used[column].mean() or 0.0)  # type: ignore[arg-type]


def growing(loop: Loop, trace: Trace, used: pl.DataFrame, share: float, trend: Trend) -> Finding:
    """Return the finding for an interval that grows."""
    first, last = mean(used.head(3), "interval_ns"), mean(used.tail(3), "interval_ns")
    kernels = find_trend(used["kernels"].to_numpy())
    added = (kernels.slope if kernels else 0.0) or 0.0
    return Finding(
        rule="graph-growth",
        severity=severity(share),
        title="Every iteration makes the host slower: the graph grows",
        summary=(
            f"The device waits {last / 1e6:.1f} ms before an iteration at the end of the trace and waited "
            f"{first / 1e6:.1f} ms at its start, {trend.slope / 1e6:+.2f} ms per iteration, while an iteration's "
            f"own work takes {mean(used, 'operation_ns') / 1e6:.1f} ms and copies fill "
            f"{100 * mean(used, 'overlap_ratio'):.0f} % of the wait."
        ),
        evidence=evidence(used, share)
        | {
            "first_interval_ns": round(first),
            "last_interval_ns": round(last),
            "slope_ns_per_iteration": round(trend.slope),
            "growth_ratio": round(trend.growth, 3),
            "tau": round(trend.tau, 3),
            "p_value": float(f"{trend.p_value:.2g}"),
            "kernels_per_iteration_slope": round(added, 3),
        },
        advice=(
            "Look for what is added in every iteration: operations created inside the training loop (TensorFlow 1 "
            "graphs), losses or metrics kept with their autograd history (use .item() or .detach()), hooks or "
            "callbacks registered again, re-compilation for new shapes. Build it once before the loop."
        ),
        headroom_ns_per_iteration=round(mean(used, "interval_ns")),
        confidence=round(loop.confidence * min(1.0, abs(trend.tau) + 0.1), 3),
        rank=loop.rank,
        iterations=bounds(used),
        location=host_range_during(loop, trace, used),
    )


def host_bound(loop: Loop, trace: Trace, used: pl.DataFrame, share: float) -> Finding:
    """Return the finding for a large interval that does not grow."""
    location = host_range_during(loop, trace, used)
    doing = f"; meanwhile the host is in {location['range']}" if location else ""
    return Finding(
        rule="host-bound",
        severity=severity(share),
        title="The device waits for the host between iterations",
        summary=(
            f"{mean(used, 'interval_ns') / 1e6:.1f} ms of idle device time between iterations, "
            f"{100 * share:.0f} % of an iteration; copies fill {100 * mean(used, 'overlap_ratio'):.0f} % of it "
            f"and it does not grow{doing}."
        ),
        evidence=evidence(used, share),
        advice=(
            "Find out what the host does between the last kernel of an iteration and the first of the next: loading "
            "and augmenting data (more DataLoader workers, prefetching, pinned memory), logging, metrics, "
            "checkpoints, .item() or print of a tensor. Move it off the training thread or do it less often."
        ),
        headroom_ns_per_iteration=round(mean(used, "interval_ns")),
        confidence=round(loop.confidence * min(1.0, 0.6 + share), 3),
        rank=loop.rank,
        iterations=bounds(used),
        location=location,
    )


def severity(share: float) -> Severity:
    """Return how bad it is that this share of an iteration is waiting."""
    return "critical" if share >= CRITICAL_SHARE else "warning"


def evidence(used: pl.DataFrame, share: float) -> dict[str, int | float | str | None]:
    """Return the numbers that both findings rest on."""
    return {
        "avg_interval_ns": round(mean(used, "interval_ns")),
        "avg_operation_ns": round(mean(used, "operation_ns")),
        "interval_share_ratio": round(share, 4),
        "avg_overlap_ratio": round(mean(used, "overlap_ratio"), 4),
        "iterations": used.height,
    }


def bounds(used: pl.DataFrame) -> tuple[int, int]:
    """Return the first and the last iteration's index."""
    return int(used["index"][0]), int(used["index"][-1])
