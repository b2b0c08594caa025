"""Activation checkpointing runs a part of the forward pass again: memory is bought with time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import FindingTexts, SeverityLimits, format_ms, format_percent
from deepprof.diagnosis.rule import rule
from deepprof.diagnosis.work_claims import WorkClaim
from deepprof.diagnosis.work_evidence import is_enough, name_whole
from deepprof.metrics.annotation.device_segments import find_window
from deepprof.metrics.contexts.backward import ENGINE
from deepprof.metrics.contexts.tree import ContextTree
from deepprof.metrics.cost.recomputation import find_recomputed, mark_recomputed
from deepprof.metrics.kernels.loop_work import LoopWork
from deepprof.metrics.operators import is_stand_in

LEAST = 0.1  # of the computing time
LIMITS = SeverityLimits(warning=2.0, critical=2.0)  # of an iteration: never, as it was chosen
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
    tree = seen.contexts.tree
    if is_stand_in(seen.trace):
        kernels, taken_ns = _measure_operators(seen, tree)
    else:
        kernels, taken_ns = _measure_kernels(seen, tree)
    if seen.work_share(taken_ns) >= LEAST:
        yield _conclude(seen, kernels, taken_ns)


def _measure_kernels(seen: LoopWork, tree: ContextTree) -> tuple[pl.DataFrame, float]:
    """Return the kernels that run a part of the forward pass again, and their time per iteration."""
    again, why_unknown = mark_recomputed(seen.trace, tree)
    if why_unknown is not None or not again.any():
        return seen.work.kernels.clear(), 0.0
    rows = seen.kernels.filter(pl.Series(again[seen.kernels["event"].to_numpy()], dtype=pl.Boolean))
    own = rows.group_by("kind").agg(
        kernels=pl.len() / seen.iterations, time_ns=pl.col("part_ns").sum() / seen.iterations
    )
    kernels = seen.work.kernels.drop("kernels", "time_ns").join(own, on="kind", maintain_order="left")
    computing = kernels.filter(pl.col("category") != "communication")
    return computing, float(computing["time_ns"].sum())


def _measure_operators(seen: LoopWork, tree: ContextTree) -> tuple[pl.DataFrame, float]:
    """Return the backward operators of a processor in which operators run again, and the time of these per iteration.

    There the outermost operators take the place of kernels: what runs again is inside of those of the backward pass.
    """
    again, why_unknown = find_recomputed(tree.slices, seen.trace.names)
    if why_unknown is not None or not again.any():
        return seen.work.kernels.clear(), 0.0
    slices = tree.slices
    begin = seen.loop.usual["start_ns"].to_numpy()
    end = begin + seen.loop.usual["iteration_ns"].to_numpy()
    outermost = again & ~np.append(again, False)[slices.parent] & (find_window(begin, end, slices.start) >= 0)
    # A backward node first runs again what it needs, up to the operator that it stops in, and then computes gradients.
    last = np.zeros(len(slices.end), np.int64)
    np.maximum.at(last, slices.parent[outermost], slices.end[outermost])
    after = ~again & (slices.parent >= 0) & (last[slices.parent] > 0) & (slices.start >= last[slices.parent])
    first = slices.end.copy()
    np.minimum.at(first, slices.parent[after], slices.start[after])
    taken_ns = float((first - slices.start)[last > 0].sum()) / seen.iterations
    around = seen.work.kernels.filter(pl.col("name").str.starts_with(ENGINE))
    return around, taken_ns


def _conclude(seen: LoopWork, kernels: pl.DataFrame, taken_ns: float) -> Finding:
    claim = WorkClaim(
        rule="recomputed-forward", seen=seen, kernels=kernels, saved_ns=taken_ns, limits=LIMITS, certainty=CERTAINTY
    )
    texts = FindingTexts(
        title=(
            f"{format_percent(seen.work_share(taken_ns))} of the computing time runs a part of the forward pass again"
        ),
        summary=(
            f"Activation checkpointing: inside the backward pass {format_ms(taken_ns)} of {name_whole(seen)} "
            f"({format_percent(seen.share(taken_ns))}) compute what was computed before. At most that could be saved, "
            "and activations would stay in memory instead. Results are the same; compare the peak of memory."
        ),
        advice=TRADE,
    )
    return claim.conclude(texts, {"recomputed_ns_per_iteration": round(taken_ns)})
