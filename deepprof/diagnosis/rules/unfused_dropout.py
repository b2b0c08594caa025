"""Dropout draws its random numbers in their own kernels, writes them, and reads them again for a mask."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.frameworks import advise
from deepprof.diagnosis.judgement import FindingTexts, format_ms, format_percent
from deepprof.diagnosis.rule import rule
from deepprof.diagnosis.work_claims import WorkClaim
from deepprof.diagnosis.work_evidence import is_at_work, weigh_names, write_per, write_share
from deepprof.diagnosis.work_marks import mark_dropout
from deepprof.diagnosis.work_words import name_operations
from deepprof.metrics.kernels.loop_work import LoopWork
from deepprof.metrics.kernels.operator_runs import sum_typed

CERTAINTY = 0.6  # the numbers may be noise for something else than dropout
FUSE = "Let one kernel draw the numbers and apply the mask."
FUSE_IN = {
    "pytorch": "torch.nn.functional.dropout does it, and torch.compile; the mask need not be written.",
    "jax": "Put the block under one jax.jit, and use jax_default_prng_impl='rbg', whose numbers cost less.",
    "tensorflow": "tf.function(jit_compile=True) fuses tf.nn.dropout with what surrounds it.",
}


@rule("unfused-dropout", subject="work")
def unfused_dropout(seen: LoopWork) -> Iterator[Finding]:
    """Yield `unfused-dropout` when random numbers and the masks made of them are a tenth of the computing time."""
    if not is_at_work(seen):
        return
    typed = seen.typed
    marked = mark_dropout(seen, typed)
    if not marked.any():
        return
    kernels = sum_typed(seen, typed.filter(marked))
    drawn_ns = float(kernels.filter(pl.col("category") == "random")["time_ns"].sum())
    claim = WorkClaim(
        rule="unfused-dropout",
        seen=seen,
        kernels=kernels,
        saved_ns=float(kernels["time_ns"].sum()),
        certainty=weigh_names(kernels, CERTAINTY),
    )
    drawn = format_percent(drawn_ns / claim.taken_ns)
    texts = FindingTexts(
        title=f"{write_share(claim.work_share)} is dropout that is not fused: random numbers, and masks made of them",
        summary=(
            f"{float(kernels['kernels'].sum()):.0f} kernels {write_per(seen)} draw random numbers and make masks of "
            f"them, most of it {name_operations(kernels)}: {format_ms(claim.taken_ns)} "
            f"({format_percent(seen.share(claim.taken_ns))} of the time; {drawn} of it random numbers), "
            "which is the most that could be saved, if kernels that compute anyway drew the numbers."
        ),
        advice=advise(seen.trace, FUSE, **FUSE_IN),
    )
    yield claim.conclude(texts, {"random_ns_per_iteration": round(drawn_ns)})
