"""A library runs its fallback: a kernel for any case, where it has none that is written for this one.

Names of such kernels are a table (`diagnosis.fallbacks`): only those that their library itself runs last.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from deepprof.diagnosis.fallbacks import FALLBACKS, HALF_ON_PROCESSOR, LibraryFallback
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import FindingTexts, format_ms, format_percent
from deepprof.diagnosis.products import keep_kernels
from deepprof.diagnosis.rule import rule
from deepprof.diagnosis.work_claims import WorkClaim
from deepprof.diagnosis.work_evidence import describe_kernels, is_enough, name_whole, share_of_kernels
from deepprof.metrics.kernels.loop_work import LoopWork
from deepprof.metrics.operators import is_stand_in

LEAST = 0.08  # of the kernels' time
CERTAINTY = 0.7  # how much faster another kernel would be depends on the shapes


@rule("fallback-kernels", subject="work")
def fallback_kernels(seen: LoopWork) -> Iterator[Finding]:
    """Yield `fallback-kernels` for the fallback that uses most of the time."""
    if not is_enough(seen):
        return
    named = [(each, seen.work.kernels.filter(pl.col("name").str.contains(each.match))) for each in FALLBACKS]
    found = [*named, (HALF_ON_PROCESSOR, _list_half_products(seen))]
    worst, kernels = max(found, key=lambda each: float(each[1]["time_ns"].sum()))
    if share_of_kernels(seen, float(kernels["time_ns"].sum())) >= LEAST:
        yield _conclude(seen, worst, kernels)


def _list_half_products(seen: LoopWork) -> pl.DataFrame:
    """Return the operators of a processor that multiply float16, where operands were recorded."""
    roofline = seen.loop.roofline
    if roofline is None or not is_stand_in(seen.trace):
        return seen.work.kernels.clear()
    return keep_kernels(seen, roofline.groups.filter(pl.col("product_dtype") == "float16"))


def _write_part(fallback: LibraryFallback) -> str:
    """Return which part of its time a fallback could save, in words."""
    return "all" if fallback.saved_ratio == 1 else format_percent(fallback.saved_ratio)


def _conclude(seen: LoopWork, fallback: LibraryFallback, kernels: pl.DataFrame) -> Finding:
    saved_ns = fallback.saved_ratio * float(kernels["time_ns"].sum())
    claim = WorkClaim(
        same_launches=True, rule="fallback-kernels", seen=seen, kernels=kernels, saved_ns=saved_ns, certainty=CERTAINTY
    )
    texts = FindingTexts(
        title=f"{format_percent(claim.work_share)} of the computing time is {fallback.what}, a fallback",
        summary=(
            f"{describe_kernels(seen, kernels)}. The library runs it where it has no other kernel for the shape, type "
            f"or layout. At most {_write_part(fallback)} of it could be saved, {format_ms(saved_ns)} of "
            f"{name_whole(seen)} ({format_percent(seen.share(saved_ns))}); how long another kernel takes must be "
            "measured."
        ),
        advice=fallback.advice,
    )
    return claim.conclude(texts, {"fallback": fallback.what})
