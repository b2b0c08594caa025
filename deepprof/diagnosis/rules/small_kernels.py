"""Kernels so short that starting them costs as much as running them, though they are queued in time."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
from msgspec.structs import replace

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.frameworks import advise
from deepprof.diagnosis.judgement import CostClaim, FindingTexts, SeverityLimits, format_ms, format_percent
from deepprof.diagnosis.rule import rule
from deepprof.metrics.breakdown.costs import cost_of, mean_of, windows_of
from deepprof.metrics.loop import Loop
from deepprof.metrics.operators import is_stand_in
from deepprof.metrics.spans import covered, intersect, union

SHORT_NS = 6_000  # twice the time of an empty kernel with its start: a shorter kernel is mostly overhead
PARTS = ("idle_startup_ns",)
MANY_SMALL_KERNELS = 50  # per iteration
LIMITS = SeverityLimits(warning=0.3, critical=0.7)
FUSE = (
    "Fuse chains of element-wise operators into one kernel; fewer and larger tensors (one packed buffer instead of "
    "many parameters), larger batches."
)
FUSE_IN = {
    "pytorch": "torch.compile, fused or foreach optimizers.",
    "jax": "One jit around the whole step, so that XLA sees all of it.",
    "tensorflow": "tf.function(jit_compile=True).",
}


@rule("small-kernels", parts=PARTS, limits=LIMITS)
def small_kernels(loop: Loop, trace: Trace) -> Iterator[Finding]:
    """Yield `small-kernels` when short kernels and the gaps between queued ones use much of most iterations."""
    startup = cost_of(loop, PARTS)
    if startup is None or is_stand_in(trace):
        return
    count, taken_ns, typical_ns = _measure_short(loop, trace)
    cost = replace(startup, mean_ns=startup.mean_ns + taken_ns, steadiness=1.0)
    cost = replace(cost, usual_share=cost.share)
    claim = CostClaim(
        rule="small-kernels", loop=loop, cost=cost, parts=PARTS, limits=LIMITS, headroom_ns=startup.mean_ns
    )
    if count < MANY_SMALL_KERNELS or not claim.holds:
        return
    texts = FindingTexts(
        title="Most kernels are too short for the device",
        summary=(
            f"{count:.0f} kernels {claim.per} take {typical_ns / 1e3:.1f} µs in the middle: they and the pauses "
            f"before queued kernels ({format_ms(startup.mean_ns)}, {format_percent(startup.share)}) are "
            f"{format_percent(cost.share)} of the time, "
            "whatever the host does."
        ),
        advice=advise(trace, FUSE, **FUSE_IN),
    )
    evidence = {
        "short_kernels_per_iteration": round(count, 1),
        "short_kernels_ns_per_iteration": round(taken_ns),
        "median_short_kernel_ns": round(typical_ns),
        "startup_ns_per_iteration": round(startup.mean_ns),
        "idle_launch_ns_per_iteration": round(mean_of(loop, "idle_launch_ns")),
    }
    yield claim.conclude(texts, evidence)


def _measure_short(loop: Loop, trace: Trace) -> tuple[float, float, float]:
    """Return number and time of short kernels per usual iteration, and the median time of one.

    Time counts once where they overlap, and not at all where something longer runs next to them.
    """
    windows = windows_of(loop)
    work = trace.device_events.filter((pl.col("device") == loop.device) & (pl.col("activity") != "sync"))
    short = (pl.col("activity") == "kernel") & (pl.col("end_ns") - pl.col("start_ns") < SHORT_NS)
    kernels, rest = work.filter(short), work.filter(~short)
    begin, end = kernels["start_ns"].to_numpy(), kernels["end_ns"].to_numpy()
    inside = covered(windows, begin, end)
    used = inside[inside > 0]
    running = intersect(union(begin, end), windows)
    beside = intersect(running, union(rest["start_ns"].to_numpy(), rest["end_ns"].to_numpy()))
    alone_ns = running.total_ns - beside.total_ns
    return len(used) / loop.usual.height, alone_ns / loop.usual.height, float(pl.Series(used).median() or 0)  # type: ignore[arg-type]
