"""What the warps of the longest kernels wait for, where Nsight Compute measured it (DeepContext, analysis 4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import polars as pl

from deepprof.collectors.names.short import shorten
from deepprof.collectors.stalls.stall_reasons import NOT_STALLED
from deepprof.diagnosis.context_claims import ContextClaim
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import FindingTexts, format_ms, format_percent
from deepprof.diagnosis.rule import rule
from deepprof.metrics.contexts.per_loop import LoopContexts

LONG = 0.1  # of the device's time in an iteration
SHOWN = 3  # reasons
LEAST = 0.05  # of the time of a kernel's warps: what uses less is nothing to work on
ELSE = "The Kernel Profiling Guide of Nsight Compute explains the reason."
ADVICE: Mapping[str, str] = MappingProxyType(
    {
        "barrier": "Its blocks wait at __syncthreads: use smaller blocks, or give all warps the same work.",
        "branch_resolving": "It jumps often: unroll short loops, or compute both branches.",
        "dispatch_stall": "The dispatcher holds warps back: the source view of Nsight Compute shows where.",
        "drain": "It ends with many writes: write whole lines, in fewer instructions.",
        "gmma": "It waits for the tensor cores, as a matrix product should: use a smaller data type, or compute less.",
        "imc_miss": "It reads constants that are not cached: use fewer, or pass them in registers.",
        "lg_throttle": "It accesses global or local memory too often: read wider values (float4), spill no registers.",
        "long_scoreboard": (
            "It waits for global or local memory: read what is contiguous, reuse data in shared memory, fuse it with "
            "its neighbours, or have more warps or loads under way."
        ),
        "math_pipe_throttle": "An arithmetic unit is full: use tensor cores or a smaller data type, or compute less.",
        "membar": "It waits at memory fences: use fewer, or of the block instead of the device.",
        "mio_throttle": "It uses shared memory or special functions too often: read wider values, or call fewer.",
        "no_instruction": "Instructions are not there in time: unroll less, and avoid very small grids.",
        "no_instructions": "Instructions are not there in time: unroll less, and avoid very small grids.",
        "short_scoreboard": (
            "It waits for shared memory or special functions: avoid bank conflicts, and keep values in registers."
        ),
        "sleeping": "Its warps sleep on purpose: look for nanosleep and spinning.",
        "tex_throttle": "It reads textures too often: use fewer or wider reads.",
        "wait": "Instructions depend on the one before: unroll, or let each thread compute several results.",
    }
)


@rule("stalled-kernels", subject="contexts")
def stalled_kernels(seen: LoopContexts) -> Iterator[Finding]:
    """Yield `stalled-kernels` for every kernel with much of the device's time whose stall reasons were given."""
    whole = float(seen.table["device_ns"][0])
    kernels = _find_long(seen, LONG * whole)
    for name, taken_ns, context in kernels.iter_rows():
        reasons = _list_reasons(seen, name)
        if reasons:
            evidence = {"device_ns_per_iteration": round(taken_ns), "share_ratio": round(taken_ns / whole, 4)}
            shares = {f"{reason}_ratio": round(share, 4) for reason, share in reasons.items()}
            claim = ContextClaim(rule="stalled-kernels", seen=seen, context=context)
            yield claim.conclude(_write(name, taken_ns, whole, reasons), evidence | shares)


def _write(name: str, taken_ns: float, whole_ns: float, reasons: Mapping[str, float]) -> FindingTexts:
    """Return the texts on a kernel that takes this much of the device's time, and on why its warps wait."""
    listed = ", ".join(f"{reason} {format_percent(share)}" for reason, share in reasons.items())
    return FindingTexts(
        title=f"The warps of {shorten(name)} wait: {next(iter(reasons))}",
        summary=(
            f"It takes {format_ms(taken_ns)}, {format_percent(taken_ns / whole_ns)} of the device's work; of the time "
            f"of its warps Nsight Compute found {listed}."
        ),
        advice=" ".join(dict.fromkeys(ADVICE.get(reason, ELSE) for reason in reasons)),
    )


def _find_long(seen: LoopContexts, least_ns: float) -> pl.DataFrame:
    """Return the kernels that take `least_ns`, longest first: name, time, and the context with most of it."""
    known = seen.trace.names.gather(seen.trace.stalls["name_id"].unique())
    taken = pl.col("own_device_ns")
    rows = seen.table.filter((pl.col("kind") == "kernel") & (taken > 0) & pl.col("name").is_in(known.implode()))
    largest = pl.col("context").cast(pl.Int64).sort_by(taken, descending=True, maintain_order=True).first()
    added = rows.group_by("name").agg(taken_ns=taken.sum(), context=largest)
    return added.filter(pl.col("taken_ns") >= least_ns).sort("taken_ns", "name", descending=[True, False])


def _list_reasons(seen: LoopContexts, name: str) -> dict[str, float]:
    """Return the largest reasons why a kernel's warps wait, with their shares."""
    known = seen.trace.stalls.filter(seen.trace.names.gather(seen.trace.stalls["name_id"]) == name)
    waits = ~pl.col("reason").is_in(NOT_STALLED) & (pl.col("share_ratio") >= LEAST)
    top = known.unique("reason", keep="first").filter(waits).sort("share_ratio", "reason", descending=[True, False])
    return dict(top.select("reason", "share_ratio").head(SHOWN).iter_rows())
