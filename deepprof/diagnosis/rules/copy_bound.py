"""Copies from the host fill the time between iterations (Gu et al., section VI): too large, or not overlapped."""

from __future__ import annotations

from collections.abc import Iterator

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding
from deepprof.metrics.intervals import Intervals, copies_during, intervals_of
from deepprof.metrics.loop import Loop

__all__ = ["copy_bound"]

LARGE_OVERLAP = 0.5  # copies fill at least half of the interval
LARGE_SHARE = 0.1  # and they take this much of the iteration
CRITICAL_SHARE = 0.3  # nothing computes meanwhile


def copy_bound(loop: Loop, trace: Trace) -> Iterator[Finding]:
    """Yield `copy-bound` when most of a large interval is copying from the host."""
    intervals = intervals_of(loop)
    if intervals is None or intervals.overlap_ratio < LARGE_OVERLAP:
        return
    if intervals.copying_ns >= LARGE_SHARE * intervals.whole_ns:
        yield copying_too_long(loop, trace, intervals)


def copying_too_long(loop: Loop, trace: Trace, intervals: Intervals) -> Finding:
    """Return the finding with the size, the speed and the kind of memory of the copies."""
    copies, iterations = copies_during(intervals, trace, loop.device), intervals.iterations.height
    nbytes, taken = int(copies["nbytes"].sum()), int((copies["end_ns"] - copies["start_ns"]).sum())
    pageable = bool(copies["name"].str.contains("(?i)pageable").any())
    per_second, share = nbytes / max(1, taken) * 1e9, intervals.copying_ns / intervals.whole_ns
    return Finding(
        rule="copy-bound",
        severity="critical" if share >= CRITICAL_SHARE else "warning",
        title="Copies from the host fill the time between iterations",
        summary=(
            f"Each iteration waits {intervals.copying_ns / 1e6:.1f} ms ({100 * share:.0f} % of its time) for copies "
            f"from the host: {nbytes / iterations / 1e6:.1f} MB at {per_second / 1e9:.1f} GB/s"
            + (", from pageable memory" if pageable else "")
            + "."
        ),
        evidence=intervals.evidence()
        | {
            "copy_ns_per_iteration": round(intervals.copying_ns),
            "copied_bytes_per_iteration": round(nbytes / iterations),
            "bytes_per_second": round(per_second),
            "copies_per_iteration": round(copies.height / iterations, 2),
            "pageable": "yes" if pageable else "no",
        },
        advice=(
            "Copy less (smaller types, only what the model reads, keep constants on the device), and copy earlier: "
            "pinned memory (pin_memory=True), .to(device, non_blocking=True), and the next batch prefetched on its "
            "own stream while this one computes."
        ),
        headroom_ns_per_iteration=round(intervals.copying_ns),
        confidence=round(loop.confidence * min(1.0, 0.4 + intervals.overlap_ratio), 3),
        rank=loop.rank,
        device=loop.device,
        stream=loop.stream,
        iterations=intervals.bounds,
    )
