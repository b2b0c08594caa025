"""Casts from one type to another are much of the computing time, as where autocast casts the weights every time."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.frameworks import advise
from deepprof.diagnosis.judgement import FindingTexts, format_ms, format_percent
from deepprof.diagnosis.rule import rule
from deepprof.diagnosis.work_claims import WorkClaim
from deepprof.diagnosis.work_evidence import is_at_work, is_large, weigh_names, write_per, write_share
from deepprof.diagnosis.work_marks import LEAST_CASTS, mark_casts
from deepprof.metrics.kernels.inner_casts import measure_inner_casts
from deepprof.metrics.kernels.kinds import PRODUCTS
from deepprof.metrics.kernels.loop_work import LoopWork
from deepprof.metrics.kernels.operator_runs import sum_typed
from deepprof.metrics.operators import is_stand_in

CERTAINTY = 0.8  # some casts may be needed
KEEP = "Keep tensors in the type in which they are used, and cast weights once instead of in every iteration."
KEEP_IN = {
    "pytorch": (
        "Parameters in bfloat16 need no casts; autocast keeps casted weights only with its cache on, within one region "
        "and where gradients are recorded (not under no_grad), so put one region around the whole forward pass. With "
        "bfloat16 parameters keep a float32 copy in the optimizer, and compare the loss."
    ),
    "jax": "Cast the parameters once before the loop, and check that no operand is float32 by accident.",
    "tensorflow": "A mixed_bfloat16 policy for the whole model; for inference, convert the weights once.",
}


@rule("repeated-casts", subject="work")
def repeated_casts(seen: LoopWork) -> Iterator[Finding]:
    """Yield `repeated-casts` when casts are a tenth of the computing time of a program that multiplies."""
    if not is_at_work(seen):
        return
    kernels = _list_operators(seen) if is_stand_in(seen.trace) else _list_kernels(seen)
    if kernels.is_empty():
        return
    claim = WorkClaim(
        rule="repeated-casts",
        seen=seen,
        kernels=kernels,
        saved_ns=float(kernels["time_ns"].sum()),
        certainty=weigh_names(kernels, CERTAINTY),
    )
    products_ns = float(seen.work.table.filter(pl.col("category").is_in(PRODUCTS))["time_ns"].sum())
    count = float(kernels["kernels"].sum())
    more = f", more than all products ({format_percent(seen.work_share(products_ns))})"
    compared = more if claim.taken_ns > products_ns else ""
    texts = FindingTexts(
        title=f"{write_share(claim.work_share)} is casts between types{compared}",
        summary=(
            f"{count:.0f} kernels {write_per(seen)} only change the type of tensors: {format_ms(claim.taken_ns)}, "
            f"{format_percent(seen.share(claim.saved_ns))} of the time, which is the most that could be saved, if none "
            "of them were needed."
        ),
        advice=advise(seen.trace, KEEP, **KEEP_IN),
    )
    yield claim.conclude(texts, {"products_ns_per_iteration": round(products_ns)})


def _list_kernels(seen: LoopWork) -> pl.DataFrame:
    """Return the kernels that only cast, none where they need little time."""
    typed = seen.typed
    return sum_typed(seen, typed.filter(mark_casts(seen, typed)))


def _list_operators(seen: LoopWork) -> pl.DataFrame:
    """Return the operators of a processor in which tensors are cast, with the amounts of these casts."""
    found = measure_inner_casts(seen)
    has_products = not seen.work.table.filter(pl.col("category").is_in(PRODUCTS)).is_empty()
    large = has_products and is_large(seen, float(found["time_ns"].sum()), LEAST_CASTS)
    return found if large else found.clear()
