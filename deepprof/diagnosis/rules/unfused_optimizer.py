"""The optimizer updates parameters by many operators, each of which reads and writes all of them again."""

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
from deepprof.diagnosis.work_evidence import is_at_work, weigh_names, write_per, write_share
from deepprof.diagnosis.work_marks import FOREACH, mark_optimizer
from deepprof.metrics.kernels.loop_work import LoopWork
from deepprof.metrics.kernels.operator_runs import sum_typed
from deepprof.metrics.operators import is_stand_in

Bools = npt.NDArray[np.bool_]

# Adam operator by operator moves about 18 times the size of the parameters (lerp 3, product 2, addcmul 3, square root,
# division and addition 2 each, addcdiv 4), in one kernel 7: it reads gradient, parameter and two moments, and writes
# all but the gradient. Other optimizers save a smaller part.
PASSES, FUSED_PASSES = 18, 7
CERTAINTY = 0.85
FUSE = "Use an optimizer that updates all parameters in one kernel."
FUSE_IN = {
    "pytorch": (
        "fused=True of torch.optim's Adam, AdamW, SGD and Adagrad does it (foreach is the default); for others, "
        "torch.compile of optimizer.step or apex's fused optimizers. It computes the same up to rounding."
    ),
    "jax": "Put the update of the optimizer (optax) into the jax.jit of the step.",
    "tensorflow": "Keras' jit_compile=True of the optimizer does it.",
}


@rule("unfused-optimizer", subject="work", explains={"small-kernels"})
def unfused_optimizer(seen: LoopWork) -> Iterator[Finding]:
    """Yield `unfused-optimizer` when an optimizer in single operators is much of the computing time."""
    if not is_at_work(seen):
        return
    typed = seen.typed
    marked = mark_optimizer(seen, typed)
    if not marked.any():
        return
    kernels = sum_typed(seen, typed.filter(marked))
    saved_ns = float(kernels["time_ns"].sum()) * (1 - FUSED_PASSES / PASSES) + _measure_pauses(seen, typed, marked)
    claim = WorkClaim(
        rule="unfused-optimizer",
        seen=seen,
        kernels=kernels,
        saved_ns=saved_ns,
        certainty=weigh_names(kernels, CERTAINTY),
    )
    listed = kernels.filter(pl.col("algorithm") == FOREACH)
    count, lists = float(kernels["kernels"].sum()), float(listed["time_ns"].sum()) > claim.taken_ns / 2
    how = "list by list (foreach)" if lists else "parameter by parameter"
    texts = FindingTexts(
        title=f"{write_share(claim.work_share)} is an optimizer that is not fused",
        summary=(
            f"{count:.0f} kernels {write_per(seen)} update the parameters {how}: {format_ms(claim.taken_ns)}. In one "
            f"kernel the update would need {format_ms(claim.saved_ns)} less "
            f"({format_percent(seen.share(claim.saved_ns))} of the time) at most: Adam in single operators moves about "
            f"{PASSES} times the size of the parameters, fused {FUSED_PASSES} times."
        ),
        advice=advise(seen.trace, FUSE, **FUSE_IN),
    )
    yield claim.conclude(texts, {"foreach_ratio": round(float(listed["time_ns"].sum()) / max(1.0, claim.taken_ns), 4)})


def _measure_pauses(seen: LoopWork, typed: pl.DataFrame, marked: Bools) -> float:
    """Return the time between the operators of an optimizer per iteration on a processor, where nothing hides it."""
    if not is_stand_in(seen.trace):
        return 0.0
    end = pl.col("start_ns") + pl.col("ns")
    rows = typed.select("window", "start_ns", marked=pl.Series(marked), pause_ns=pl.col("start_ns").shift(-1) - end)
    both = pl.col("marked") & pl.col("marked").shift(-1) & (pl.col("window") == pl.col("window").shift(-1))
    pauses = rows.filter(both, pl.col("pause_ns") > 0)
    return float(pauses["pause_ns"].sum()) / max(1, seen.iterations)
