"""The loss is computed in several kernels, each of which moves the logits of all tokens."""

from __future__ import annotations

from collections.abc import Iterator

from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.frameworks import advise
from deepprof.diagnosis.judgement import FindingTexts, format_ms, format_percent
from deepprof.diagnosis.rule import rule
from deepprof.diagnosis.work_claims import WorkClaim
from deepprof.diagnosis.work_evidence import is_at_work, weigh_names, write_per, write_share
from deepprof.diagnosis.work_marks import mark_loss
from deepprof.metrics.kernels.loop_work import LoopWork
from deepprof.metrics.kernels.operator_runs import list_typed, sum_typed

# Log-softmax reads the logits and writes as many numbers, its backward pass reads two such tensors and writes one;
# what computes the gradient with the loss reads them once and writes the gradient.
PASSES, FUSED_PASSES = 5, 2
CERTAINTY = 0.8
FUSE = "Compute the loss and its gradient in one kernel, or in chunks of the tokens."
FUSE_IN = {
    "pytorch": (
        "A fused linear cross entropy (Liger, cut cross entropy) never writes all logits; torch.compile of "
        "log_softmax and the loss fuses them, and in inference only the last token needs logits. It saves memory, too; "
        "compare the loss once."
    ),
    "jax": "Compute the loss within the jax.jit of the step, in chunks (jax.lax.map) with jax.checkpoint.",
}


@rule("unfused-loss", subject="work")
def unfused_loss(seen: LoopWork) -> Iterator[Finding]:
    """Yield `unfused-loss` when log-softmax and loss are much of the computing time."""
    if not is_at_work(seen):
        return
    typed = list_typed(seen)
    marked = mark_loss(seen, typed)
    if not marked.any():
        return
    kernels = sum_typed(seen, typed.filter(marked))
    saved_ns = float(kernels["time_ns"].sum()) * (1 - FUSED_PASSES / PASSES)
    claim = WorkClaim(
        rule="unfused-loss", seen=seen, kernels=kernels, saved_ns=saved_ns, certainty=weigh_names(kernels, CERTAINTY)
    )
    count = float(kernels["kernels"].sum())
    texts = FindingTexts(
        title=f"{write_share(claim.work_share)} is log-softmax and loss over the vocabulary",
        summary=(
            f"{count:.0f} kernels {write_per(seen)} compute the loss: {format_ms(claim.taken_ns)}. One kernel for loss "
            f"and gradient would need {format_ms(saved_ns)} less ({format_percent(seen.share(saved_ns))} of the time) "
            f"at most: it moves {FUSED_PASSES} tensors of the size of the logits instead of {PASSES}."
        ),
        advice=advise(seen.trace, FUSE, **FUSE_IN),
    )
    yield claim.conclude(texts, {})
