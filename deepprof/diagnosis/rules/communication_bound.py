"""Collectives that no computation hides."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.frameworks import advise
from deepprof.diagnosis.judgement import Claim, Limits, Texts, format_ms
from deepprof.metrics.breakdown.costs import cost_of
from deepprof.metrics.loop import Loop
from deepprof.metrics.names import with_names
from deepprof.metrics.spans import covered, union
from deepprof.metrics.streams import is_collective

__all__ = ["communication_bound"]

PARTS = ("exposed_communication_ns",)
LIMITS = Limits(warning=0.15, critical=0.4)
OVERLAP = (
    "Overlap it with computation, send less (gradients in bf16, reduce-scatter), or send less often. Diagnose all "
    "ranks together to see whether one is late: then collectives are only where the others wait."
)
OVERLAP_IN = {
    "pytorch": (
        "Gradients: DistributedDataParallel's bucket_cap_mb, FSDP's prefetching, no_sync() while they accumulate."
    ),
    "jax": "--xla_gpu_enable_latency_hiding_scheduler=true; larger combine thresholds for fewer collectives.",
}


def communication_bound(loop: Loop, trace: Trace) -> Iterator[Finding]:
    """Yield `communication-bound` when collectives run for a large part of the time and nothing computes."""
    cost = cost_of(loop, PARTS)
    if cost is None:
        return
    claim = Claim(rule="communication-bound", loop=loop, cost=cost, parts=PARTS, limits=LIMITS)
    if not claim.holds:
        return
    whole, count, name = describe_collectives(loop, trace)
    hidden = max(0.0, 1 - cost.mean_ns / whole) if whole else 0.0
    texts = Texts(
        title="Communication is not hidden behind computation",
        summary=(
            f"{claim.amount} only collectives run; "
            f"{100 * hidden:.0f} % of the {format_ms(whole)} that they take overlaps with computation. In that time a "
            "rank may also be waiting for a slower one."
        ),
        advice=advise(trace, OVERLAP, **OVERLAP_IN),
    )
    evidence = {
        "communication_ns_per_iteration": round(whole),
        "hidden_ratio": round(hidden, 4),
        "collectives_per_iteration": round(count, 2),
    }
    yield claim.conclude(texts, evidence, {"kernel": name} if name else None)


def describe_collectives(loop: Loop, trace: Trace) -> tuple[float, float, str]:
    """Return the time and the number of collectives per usual iteration, and the name that takes most time."""
    rows = loop.usual
    start = rows["start_ns"].to_numpy()
    until = start + rows["iteration_ns"].to_numpy()
    device = trace.device_events.filter(pl.col("device") == loop.device)
    ran = with_names(device, trace.names).filter(is_collective())
    begin, end = ran["start_ns"].to_numpy(), ran["end_ns"].to_numpy()
    inside = pl.Series(covered(union(start, until), begin, end))
    taken = ran.with_columns(inside=inside).filter(pl.col("inside") > 0)
    most = taken.group_by("name").agg(pl.col("inside").sum()).sort("inside", "name", descending=[True, False])
    whole = float(covered(union(begin, end), start, until).mean())
    return whole, taken.height / rows.height, most["name"][0] if most.height else ""
