"""The same kernels, launched in the same way, last longer and longer: a falling clock, or another job on the device."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import FindingTexts, format_ms, format_percent
from deepprof.diagnosis.rule import rule
from deepprof.diagnosis.work_claims import WorkClaim
from deepprof.diagnosis.work_evidence import is_enough, name_whole
from deepprof.metrics.kernels.loop_work import LoopWork
from deepprof.metrics.kernels.slowing import SlowingKernels, find_slowing

CERTAINTY = 0.85
LOOK = (
    "Look at clocks, temperature and power over time (nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE; rocm-smi) and at "
    "other jobs on the same device. A power limit, cooling or a neighbour is the usual reason; lock the clocks to see."
)


@rule("slowing-kernels", subject="work")
def slowing_kernels(seen: LoopWork) -> Iterator[Finding]:
    """Yield `slowing-kernels` where most of the work, equal in every iteration, becomes slower."""
    if seen.loop.single or not is_enough(seen):
        return
    waiting = seen.kinds.table.with_row_index("kind").filter(pl.col("category") == "communication")["kind"]
    kernels = seen.kernels.filter((pl.col("kind") >= 0) & ~pl.col("kind").is_in(waiting.cast(pl.Int64).implode()))
    found = find_slowing(kernels, seen.trace.launch_shapes, seen.iterations)
    if found is not None:
        yield _conclude(seen, found)


def _conclude(seen: LoopWork, found: SlowingKernels) -> Finding:
    kernels = seen.work.kernels.filter(pl.col("kind").is_in(found.kinds.implode()))
    claim = WorkClaim(
        same_launches=True,
        rule="slowing-kernels",
        seen=seen,
        kernels=kernels,
        saved_ns=found.lost_ns,
        certainty=CERTAINTY,
    )
    texts = FindingTexts(
        title=(f"The same kernels take {format_percent(found.growth)} longer at the end than at the start"),
        summary=(
            f"Over {seen.iterations} iterations kernels of the same name, launch shape and place become slower, "
            f"those with {format_percent(found.even_ratio)} of their time by the same factor. "
            f"{format_ms(found.lost_ns)} of {name_whole(seen)} ({format_percent(seen.share(found.lost_ns))}) would be "
            "saved on average if all ran as in the first third."
        ),
        advice=LOOK,
    )
    evidence = {
        "growth_ratio": round(found.growth, 4),
        "even_ratio": round(found.even_ratio, 4),
        "first_slowness_ratio": round(float(found.slowness[0]), 4),
        "last_slowness_ratio": round(float(found.slowness[-1]), 4),
        "iterations": seen.iterations,
    }
    return claim.conclude(texts, evidence)
