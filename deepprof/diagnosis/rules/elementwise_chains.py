"""Operators on every element run one after the other on the same data, which a compiler would make one kernel."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.frameworks import advise
from deepprof.diagnosis.judgement import FindingTexts, format_ms, format_percent
from deepprof.diagnosis.rule import rule
from deepprof.diagnosis.work_claims import WorkClaim
from deepprof.diagnosis.work_evidence import is_at_work, is_large, weigh_names, write_per, write_share
from deepprof.diagnosis.work_marks import mark_attention, mark_claimed
from deepprof.diagnosis.work_words import name_operations
from deepprof.metrics.kernels.chains import find_chains, mark_chains
from deepprof.metrics.kernels.loop_work import LoopWork
from deepprof.metrics.kernels.operator_runs import sum_typed

# Of the computing time, that would be saved: some single operators are in every program. Attention that is written out
# counts as it shows how the program is written, but a fused one saves its time: the rest must be worth a change, too.
LEAST, LEAST_REST = 0.15, 0.05
CERTAINTY = 0.8  # what follows on a stream need not be computed of what is before it
FUSE = "Let a compiler fuse these operators, or call a fused one."
FUSE_IN = {
    "pytorch": (
        "torch.compile of the module or function does it; torch.nn.functional.rms_norm, fused kernels for rotary "
        "embeddings and SwiGLU, and an optimizer with fused=True do it without a compiler. Compare the results once: "
        "fused kernels round less often."
    ),
    "jax": "Put the whole block under one jax.jit: what is called outside of it is compiled operator by operator.",
    "tensorflow": "tf.function(jit_compile=True) around them does it.",
}


@rule("elementwise-chains", subject="work", explains={"fusion-candidates"})
def elementwise_chains(seen: LoopWork) -> Iterator[Finding]:
    """Yield `elementwise-chains` where fusing operators that follow each other would save much computing time."""
    if not is_at_work(seen):
        return
    typed, many = seen.typed, max(1, seen.iterations)
    if not is_large(seen, _add_savings(find_chains(typed, np.zeros(typed.height, np.bool_)), many), LEAST):
        return  # what others claim makes it less
    others, attention = mark_claimed(seen, typed), mark_attention(seen, typed)
    claimed = others | attention
    chains = find_chains(typed, claimed)
    all_ns, saved_ns = (_add_savings(each, many) for each in (find_chains(typed, others), chains))
    if not (is_large(seen, all_ns, LEAST) and is_large(seen, saved_ns, LEAST_REST)):
        return
    kernels = sum_typed(seen, typed.filter(mark_chains(typed, chains, claimed)))
    claim = WorkClaim(
        rule="elementwise-chains",
        seen=seen,
        kernels=kernels,
        saved_ns=float(chains["most_ns"].sum()) / many,
        certainty=weigh_names(kernels, CERTAINTY),
    )
    yield claim.conclude(_write(claim, chains), _describe(chains, many))


def _add_savings(chains: pl.DataFrame, many: int) -> float:
    """Return what all chains could save in one of this many iterations."""
    return float(chains["saved_ns"].sum()) / many


def _write(claim: WorkClaim, chains: pl.DataFrame) -> FindingTexts:
    seen, count = claim.seen, float(claim.kernels["kernels"].sum())
    mean = float(chains["kernels"].sum()) / chains.height
    return FindingTexts(
        title=f"{write_share(claim.work_share)} is single operators in chains, which can be fused",
        summary=(
            f"{count:.0f} kernels {write_per(seen)} do a single operation, cast or copy, in chains of {mean:.1f} on "
            f"average: {format_ms(claim.taken_ns)}, most of it {name_operations(claim.kernels)}. One kernel in place "
            f"of each chain would need {format_ms(claim.saved_ns)} less "
            f"({format_percent(seen.share(claim.saved_ns))} of the time) at most, if it takes half of the longest "
            "of them: it reads one tensor and writes one."
        ),
        advice=advise(seen.trace, FUSE, **FUSE_IN),
    )


def _describe(chains: pl.DataFrame, many: int) -> dict[str, float]:
    return {
        "chains_per_iteration": round(chains.height / many, 2),
        "longest_chain": int(np.max(chains["kernels"].to_numpy(), initial=0)),
    }
