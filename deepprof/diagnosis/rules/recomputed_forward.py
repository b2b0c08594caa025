"""Activation checkpointing runs a part of the forward pass again: memory is bought with time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import FindingTexts, SeverityLimits, format_ms, format_percent
from deepprof.diagnosis.rule import rule
from deepprof.diagnosis.work_claims import WorkClaim
from deepprof.diagnosis.work_evidence import describe_kernels, is_enough, name_whole
from deepprof.metrics.cost.recomputation import mark_recomputed
from deepprof.metrics.kernels.loop_work import LoopWork

LEAST = 0.1  # of the computing time
LIMITS = SeverityLimits(warning=0.25, critical=2.0)  # of an iteration: the whole forward pass; it is chosen, so no more
CERTAINTY = 0.7  # the memory may be needed
TRADE = (
    "Checkpoint fewer layers if memory allows: those with the largest activations for their time, or only every second "
    "one. Selective checkpointing (torch.utils.checkpoint.create_selective_checkpoint_contexts) keeps the results of "
    "products and runs only cheap operators again. `deepprof memory` shows how much is free at the peak."
)


@rule("recomputed-forward", subject="work")
def recomputed_forward(seen: LoopWork) -> Iterator[Finding]:
    """Yield `recomputed-forward` where the forward pass runs again for a tenth of the computing time."""
    if seen.contexts is None or not is_enough(seen):
        return
    again, why_unknown = mark_recomputed(seen.trace, seen.contexts.tree)
    if why_unknown is None and again.any():
        yield from _judge(seen, again)


def _judge(seen: LoopWork, again: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Iterator[Finding]:
    """Yield the finding; `again` are the device events that run a part of the forward pass again."""
    rows = seen.kernels.filter(pl.Series(again[seen.kernels["event"].to_numpy()], dtype=pl.Boolean))
    own = rows.group_by("kind").agg(
        kernels=pl.len() / seen.iterations, time_ns=pl.col("part_ns").sum() / seen.iterations
    )
    kernels = seen.work.kernels.drop("kernels", "time_ns").join(own, on="kind", maintain_order="left")
    kernels = kernels.filter(pl.col("category") != "communication")
    taken_ns = float(kernels["time_ns"].sum())
    if seen.work_share(taken_ns) < LEAST:
        return
    claim = WorkClaim(
        rule="recomputed-forward", seen=seen, kernels=kernels, saved_ns=taken_ns, limits=LIMITS, certainty=CERTAINTY
    )
    texts = FindingTexts(
        title=f"{format_percent(claim.work_share)} of the computing time runs a part of the forward pass again",
        summary=(
            f"Activation checkpointing: inside the backward pass {describe_kernels(seen, kernels)}. Without it "
            f"{name_whole(seen)} would take at most {format_ms(taken_ns)} less "
            f"({format_percent(seen.share(taken_ns))}), and activations would stay in memory. Results are the same; "
            "compare the peak of memory."
        ),
        advice=TRADE,
    )
    yield claim.conclude(texts, {})
