"""The loss is computed in several kernels, each of which moves the logits of all tokens."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.frameworks import advise
from deepprof.diagnosis.judgement import FindingTexts, format_ms, format_percent
from deepprof.diagnosis.rule import rule
from deepprof.diagnosis.work_claims import WorkClaim
from deepprof.diagnosis.work_evidence import is_at_work, weigh_names, write_per, write_share
from deepprof.diagnosis.work_marks import mark_loss, mark_written_loss
from deepprof.metrics.kernels.loop_work import LoopWork
from deepprof.metrics.kernels.operator_runs import sum_typed

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
CALL = "Call the framework's cross entropy on the logits."
CALL_IN = {
    "pytorch": (
        "torch.nn.functional.cross_entropy takes logits and classes, or probabilities of classes, and has "
        "label_smoothing; it is also exact where a softmax is 0. Compare the loss once."
    ),
    "jax": "optax.softmax_cross_entropy_with_integer_labels takes logits; call it within the jax.jit of the step.",
}
OF_LIBRARY = "log-softmax and loss over the vocabulary"
SOFTMAX = pl.col("category") == "softmax"


@rule("unfused-loss", subject="work")
def unfused_loss(seen: LoopWork) -> Iterator[Finding]:
    """Yield `unfused-loss` when log-softmax and loss are much of the computing time."""
    if not is_at_work(seen):
        return
    typed = seen.typed
    marked = mark_loss(seen, typed)
    if not marked.any():
        return
    kernels = sum_typed(seen, typed.filter(marked))
    by_hand = bool(mark_written_loss(typed).any())
    kept_ns = FUSED_PASSES / PASSES * float((kernels.filter(SOFTMAX) if by_hand else kernels)["time_ns"].sum())
    saved_ns = float(kernels["time_ns"].sum()) - kept_ns
    claim = WorkClaim(
        rule="unfused-loss", seen=seen, kernels=kernels, saved_ns=saved_ns, certainty=weigh_names(kernels, CERTAINTY)
    )
    yield claim.conclude(_write(claim, by_hand=by_hand), {"written_by_hand": int(by_hand)})


def _write(claim: WorkClaim, *, by_hand: bool) -> FindingTexts:
    seen, saved_ns = claim.seen, claim.saved_ns
    count = float(claim.kernels["kernels"].sum())
    moved = f"{FUSED_PASSES} tensors of the size of the logits, where softmax and its gradient move {PASSES}"
    return FindingTexts(
        title=f"{write_share(claim.work_share)} is {'a loss in single operators' if by_hand else OF_LIBRARY}",
        summary=(
            f"{count:.0f} kernels {write_per(seen)} compute the loss: {format_ms(claim.taken_ns)}. One kernel for loss "
            f"and gradient would need {format_ms(saved_ns)} less ({format_percent(seen.share(saved_ns))} of the time) "
            f"at most: it moves {moved}."
        ),
        advice=advise(seen.trace, CALL, **CALL_IN) if by_hand else advise(seen.trace, FUSE, **FUSE_IN),
    )
