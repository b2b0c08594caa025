"""Normalization, and functions of each element around it, take much of the computing time in kernels of their own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.frameworks import advise
from deepprof.diagnosis.judgement import FindingTexts, format_ms, format_percent
from deepprof.diagnosis.rule import rule
from deepprof.diagnosis.work_claims import WorkClaim
from deepprof.diagnosis.work_evidence import is_at_work, write_share
from deepprof.diagnosis.work_marks import mark_batch_norm, mark_beside_norm, mark_other_norm
from deepprof.metrics.kernels.loop_work import LoopWork
from deepprof.metrics.kernels.runs import list_typed, sum_typed

Bools = npt.NDArray[np.bool_]

CERTAINTY = 0.5  # the share is measured; how much of it another layout or kernel saves differs between devices
HALF = 0.5  # of the time of kernels that move twice as many bytes, or read a tensor once more than others
NATIVE = r"at::native::.*batch_norm"  # PyTorch's own kernels, where a library would have others
IN_FLOAT32 = r"<float\b|float32|_f32|<\(?anonymous"
IN_HALF = r"(?i)bfloat16|half|_bf16|_f16|fp16"
JOIN = "Let normalization, activation and addition run as one kernel."
JOIN_IN = {
    "pytorch": (
        "model.to(memory_format=torch.channels_last), the same for each batch, and autocast to bfloat16 or float16 "
        "select kernels that move less; torch.compile fuses ReLU and additions into batch norm. Normalization itself "
        "stays in float32, so that accuracy hardly changes: compare the loss of a few hundred iterations."
    ),
    "jax": "Compute in bfloat16 and channels last (NHWC) within one jax.jit.",
    "tensorflow": "data_format='channels_last', fused=True of BatchNormalization and a mixed_bfloat16 policy do it.",
}
OTHER_IN = {
    "pytorch": (
        "torch.compile fuses layer and group norm with what is before and behind them; compute them in the autocast "
        "type where the model bears it."
    ),
    "jax": "Put the block under one jax.jit, so that XLA fuses the norm with what surrounds it.",
}


@rule("normalization-bound", subject="work")
def normalization_bound(seen: LoopWork) -> Iterator[Finding]:
    """Yield `normalization-bound` when normalization takes much of the computing time in kernels of its own."""
    if not is_at_work(seen):
        return
    typed = list_typed(seen)
    batch, other = mark_batch_norm(seen, typed), mark_other_norm(seen, typed)
    if batch.any():
        yield _conclude(seen, typed, batch, "batch normalization", JOIN_IN)
    elif other.any():
        yield _conclude(seen, typed, other, "normalization", OTHER_IN)


def _conclude(seen: LoopWork, typed: pl.DataFrame, norms: Bools, what: str, special: dict[str, str]) -> Finding:
    """Return the finding on these kernels and those beside them."""
    beside = mark_beside_norm(typed, norms)
    kernels, others = sum_typed(seen, typed.filter(norms)), sum_typed(seen, typed.filter(beside))
    slow = kernels.filter(_move_more())
    beside_ns, slow_ns = float(others["time_ns"].sum()), float(slow["time_ns"].sum())
    claim = WorkClaim(
        rule="normalization-bound",
        seen=seen,
        kernels=kernels,
        saved_ns=beside_ns + HALF * slow_ns,
        certainty=CERTAINTY,
    )
    native = float(kernels.filter(pl.col("name").str.contains(NATIVE))["time_ns"].sum()) > claim.taken_ns / 2
    texts = FindingTexts(
        title=f"{write_share(claim.work_share)} is {what} in kernels of its own",
        summary=_summarize(claim, what, beside_ns, native=native),
        advice=advise(seen.trace, JOIN, **special),
    )
    return claim.conclude(texts, {"beside_ns_per_iteration": round(beside_ns), "native_kernels": int(native)})


def _summarize(claim: WorkClaim, what: str, beside_ns: float, *, native: bool) -> str:
    """Return the summary: what was measured, and the bound with its assumption."""
    seen = claim.seen
    count = float(claim.kernels["kernels"].sum())
    kind = ", most of them PyTorch's own for the layout NCHW, not the library's" if native else ""
    beside = f", and functions of each element directly around it {format_percent(seen.work_share(beside_ns))}"
    return (
        f"{count:.0f} kernels of {what}{kind} take {format_ms(claim.taken_ns)}{beside if beside_ns else ''}. At most "
        f"{format_ms(claim.saved_ns)} ({format_percent(seen.share(claim.saved_ns))} of the time) could be saved, if "
        "these functions join it and it moves half of the bytes; how much of that another layout or kernel saves must "
        "be measured."
    )


def _move_more() -> pl.Expr:
    """Return whether kernels move more than they need to: they compute float32, or are PyTorch's own."""
    name = pl.col("name")
    return name.str.contains(NATIVE) | (name.str.contains(IN_FLOAT32) & ~name.str.contains(IN_HALF))
