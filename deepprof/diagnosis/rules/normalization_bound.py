"""Normalization, and functions of every element around it, are much of the computing time in their own kernels."""

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
from deepprof.diagnosis.work_evidence import is_at_work, weigh_names, write_share
from deepprof.diagnosis.work_marks import mark_batch_norm, mark_neighbours, mark_other_norm
from deepprof.metrics.kernels.loop_work import LoopWork
from deepprof.metrics.kernels.operator_runs import sum_typed
from deepprof.metrics.operators import is_stand_in

Bools = npt.NDArray[np.bool_]

CERTAINTY = 0.5  # the share is measured; how much of it another layout or kernel saves differs between devices
HALF = 0.5  # of the norm stays in training: even fused or channels-last it reads its tensor and writes it once
BATCH = "batch normalization"
NATIVE = r"at::native::.*batch_norm"  # PyTorch's own kernels, where a library would have others
BACKWARD = r"(?i)backward|\bbn_bw|_bwd|BnBwd|grad"
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
FOLD = "Fold the normalization into the convolutions, or let it run in one kernel with what surrounds it."
FOLD_IN = {
    "pytorch": (
        "torch.compile or torch.jit.optimize_for_inference of the model in eval() folds batch norm into convolutions, "
        "which changes results by rounding only."
    ),
    "jax": "Put the whole model under one jax.jit, with the running averages as constants.",
    "tensorflow": "Convert the model for inference (a frozen graph, TensorRT), which folds batch norm.",
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
    """Yield `normalization-bound` when normalization is much of the computing time in separate kernels."""
    if not is_at_work(seen):
        return
    typed, on_cpu = seen.typed, is_stand_in(seen.trace)
    batch, other = mark_batch_norm(seen, typed), mark_other_norm(seen, typed)
    if batch.any() and not (on_cpu and _trains(typed.filter(batch))):
        yield _conclude(seen, typed, batch, BATCH, JOIN_IN)
    elif other.any() and not on_cpu:
        yield _conclude(seen, typed, other, "normalization", OTHER_IN)


def _trains(norms: pl.DataFrame) -> bool:
    """Return whether one of these kernels computes gradients; on a CPU there is no better layout for these."""
    return bool(norms["name"].str.contains(BACKWARD).any())


def _conclude(seen: LoopWork, typed: pl.DataFrame, norms: Bools, what: str, special: dict[str, str]) -> Finding:
    """Return the finding on these kernels, which mentions those around them.

    The bound is of the norm's kernels alone. What fusion saves of others is not in it.
    """
    kernels = sum_typed(seen, typed.filter(norms))
    around_ns = float(sum_typed(seen, typed.filter(mark_neighbours(typed, norms)))["time_ns"].sum())
    trains = what != BATCH or _trains(kernels)
    norm_ns = float(kernels["time_ns"].sum())
    claim = WorkClaim(
        rule="normalization-bound",
        seen=seen,
        kernels=kernels,
        saved_ns=(HALF if trains else 1.0) * norm_ns,
        certainty=weigh_names(kernels, CERTAINTY),
        same_launches=trains,
    )
    native = float(kernels.filter(pl.col("name").str.contains(NATIVE))["time_ns"].sum()) > claim.taken_ns / 2
    texts = FindingTexts(
        title=f"{write_share(claim.work_share)} is {what} in separate kernels",
        summary=_summarize(claim, what, around_ns, native=native, trains=trains),
        advice=advise(seen.trace, JOIN if trains else FOLD, **(special if trains else FOLD_IN)),
    )
    evidence = {"neighbours_ns_per_iteration": round(around_ns), "native_kernels": int(native), "trains": int(trains)}
    return claim.conclude(texts, evidence)


def _summarize(claim: WorkClaim, what: str, around_ns: float, *, native: bool, trains: bool) -> str:
    """Return the summary: what was measured, and the bound with its assumption."""
    seen = claim.seen
    count = float(claim.kernels["kernels"].sum())
    kind = ", most of them PyTorch's own for the layout NCHW, not the library's," if native else ""
    around = f"elementwise kernels directly around it take {format_percent(seen.work_share(around_ns))} more"
    nearby = f"; {around}, and fusion saves part of that" if around_ns else ""
    how = "it moves half of the bytes" if trains else "all of it is fused into other kernels"
    return (
        f"{count:.0f} kernels of {what}{kind} take {format_ms(claim.taken_ns)}. At most "
        f"{format_ms(claim.saved_ns)} ({format_percent(seen.share(claim.saved_ns))} of the time) of it could be saved, "
        f"if {how}{nearby}. Measure how much another layout or kernel saves."
    )
