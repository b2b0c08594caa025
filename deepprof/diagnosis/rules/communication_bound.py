"""Collectives that no computation hides."""

from __future__ import annotations

import re
from collections.abc import Iterator

import polars as pl
from msgspec.structs import replace

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.frameworks import advise
from deepprof.diagnosis.judgement import FindingTexts, SeverityLimits, format_ms
from deepprof.diagnosis.rule import rule
from deepprof.metrics.loop import Loop
from deepprof.metrics.names import with_names
from deepprof.metrics.spans import covered, union
from deepprof.metrics.streams import is_collective

PARTS = ("exposed_communication_ns",)
LIMITS = SeverityLimits(warning=0.15, critical=0.4)
TOGETHER = " Diagnose all ranks together to see whether one is late: then collectives are only where the others wait."
OVERLAP = f"Overlap it with computation, send less (bf16 instead of fp32), or send less often.{TOGETHER}"
LATENCY_HIDING = "--xla_gpu_enable_latency_hiding_scheduler=true; larger combine thresholds for fewer collectives."
# What to do with the kind of collective that uses most of the time, by a pattern in its name; the first match wins.
KINDS = (
    (
        "(?i)all.?to.?all",
        "all-to-all",
        "Exchange embeddings or experts' tokens while the dense part computes, and balance what each rank sends.",
    ),
    (
        "(?i)all.?gather|reduce.?scatter",
        "gathering and scattering",
        "FSDP: prefetch the next layer's parameters (forward_prefetch, backward_prefetch), larger units to wrap.",
    ),
    (
        "(?i)all.?reduce",
        "all-reduce",
        "DistributedDataParallel: gradients in buckets (bucket_cap_mb), no_sync() while they accumulate.",
    ),
)
MANY_COLLECTIVES, SHORT_NS = 50, 100_000  # this many collectives per iteration, shorter than this, should be fewer
FEWER = "They are many and short: pack them into fewer, larger ones."


@rule("communication-bound", parts=PARTS, limits=LIMITS, explains={"slow-iterations", "drift"})
def communication_bound(loop: Loop, trace: Trace) -> Iterator[Finding]:
    """Yield `communication-bound` when collectives run for a large part of the time and nothing computes."""
    claim = communication_bound.claim(loop)
    if claim is None:
        return
    whole, count, name = _describe_collectives(loop, trace)
    kind, how = next(((word, text) for pattern, word, text in KINDS if re.search(pattern, name)), ("", ""))
    serial = count >= MANY_COLLECTIVES and whole < SHORT_NS * count
    hidden = max(0.0, 1 - claim.cost.mean_ns / whole) if whole else 0.0
    texts = FindingTexts(
        title="Communication is not hidden behind computation",
        summary=(
            f"{claim.amount} only collectives run; "
            f"{100 * hidden:.0f} % of the {format_ms(whole)} that they take overlaps with computation. There are "
            f"{count:.0f} {claim.per}{f', mostly {kind}' if kind else ''}; in that time a rank may also be waiting for "
            "a slower one."
        ),
        advice=advise(trace, f"{OVERLAP} {FEWER}" if serial else OVERLAP, pytorch=how, jax=LATENCY_HIDING),
    )
    evidence = {
        "communication_ns_per_iteration": round(whole),
        "hidden_ratio": round(hidden, 4),
        "collectives_per_iteration": round(count, 2),
    }
    yield claim.conclude(texts, evidence, {"kernel": name} if name else None)


def among_all(finding: Finding) -> Finding:
    """Return the finding without the advice to diagnose all ranks together, for when that was done."""
    if finding.rule != "communication-bound":
        return finding
    return replace(finding, advice=finding.advice.replace(TOGETHER, ""))


def _describe_collectives(loop: Loop, trace: Trace) -> tuple[float, float, str]:
    """Return the time and the number of collectives per usual iteration, and the name that uses most time."""
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
