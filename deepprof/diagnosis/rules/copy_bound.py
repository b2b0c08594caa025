"""Copies from the host fill the time between iterations (Gu et al., section VI): too large, or not overlapped."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.rules.graph_growth import bounds, evidence, mean, severity
from deepprof.metrics.intervals import copies_in_intervals, usable_iterations
from deepprof.metrics.loop import Loop

__all__ = ["copy_bound"]

LARGE_OVERLAP = 0.5  # copies fill at least half of the interval
LARGE_SHARE = 0.1  # and they take this much of the iteration


def copy_bound(loop: Loop, trace: Trace) -> Iterator[Finding]:
    """Yield `copy-bound` when most of a large interval is copying from the host."""
    used = usable_iterations(loop)
    if used.height < 2:
        return
    copying = used.select((pl.col("interval_ns") * pl.col("overlap_ratio")).alias("ns"))
    per_iteration = mean(copying, "ns")
    whole = mean(used, "interval_ns") + mean(used, "operation_ns")
    share = per_iteration / max(1.0, whole)
    if mean(used, "overlap_ratio") < LARGE_OVERLAP or share < LARGE_SHARE:
        return
    yield copying_too_long(loop, trace, used, per_iteration, share)


def copying_too_long(loop: Loop, trace: Trace, used: pl.DataFrame, per_iteration: float, share: float) -> Finding:
    """Return the finding with the size, the speed and the kind of memory of the copies."""
    copies = copies_in_intervals(loop, trace, used)
    nbytes, taken = int(copies["nbytes"].sum()), int((copies["end_ns"] - copies["start_ns"]).sum())
    pageable = bool(copies["name"].str.contains("(?i)pageable").any())
    per_second = nbytes / max(1, taken) * 1e9
    size = nbytes / used.height
    return Finding(
        rule="copy-bound",
        severity=severity(share + 0.2),  # nothing else runs meanwhile: a third of the time is critical already
        title="Copies from the host fill the time between iterations",
        summary=(
            f"Each iteration waits {per_iteration / 1e6:.1f} ms ({100 * share:.0f} % of its time) for copies from the "
            f"host: {size / 1e6:.1f} MB at {per_second / 1e9:.1f} GB/s" + (", from pageable memory" if pageable else "") + "."
        ),
        evidence=evidence(used, share)
        | {
            "copy_ns_per_iteration": round(per_iteration),
            "copied_bytes_per_iteration": round(size),
            "bytes_per_second": round(per_second),
            "copies_per_iteration": round(copies.height / used.height, 2),
            "pageable": "yes" if pageable else "no",
        },
        advice=(
            "Copy less (smaller types, only what the model reads, keep constants on the device), and copy earlier: "
            "pinned memory (pin_memory=True), .to(device, non_blocking=True), and the next batch prefetched on its "
            "own stream while this one computes."
        ),
        headroom_ns_per_iteration=round(per_iteration),
        confidence=round(loop.confidence * min(1.0, 0.4 + mean(used, "overlap_ratio")), 3),
        rank=loop.rank,
        iterations=bounds(used),
        location=None,
    )
