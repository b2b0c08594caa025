"""From a main stream to its measured loops: the miner, or the paper's mode when the count is given."""

from __future__ import annotations

from collections.abc import Sequence as Counts

import numpy as np
import numpy.typing as npt

from deepprof.collectors.trace import Trace
from deepprof.metrics.iteration_table import measure_iterations, summarize
from deepprof.metrics.loop import Agreement, BoundarySource, Loop
from deepprof.metrics.names import coarse_ids
from deepprof.metrics.sequence import Sequence
from deepprof.mining import loops as mining
from deepprof.mining.evidence import Evidence, Family
from deepprof.mining.paper import PaperLoop, mine_with_counts

__all__ = ["agreement_with", "find_loops"]

NEAR = 0.01  # of the period: a range begins "at" an iteration when it is this close


def find_loops(
    trace: Trace, sequence: Sequence, evidence: Evidence, counts: Counts[int]
) -> tuple[list[Loop], str | None]:
    """Return the loops of one main stream, and why there is none."""
    if counts:
        found = mine_with_counts(sequence.symbols, counts)
        measured = [from_paper(trace, sequence, evidence, loop) for loop in found]
        return measured, None if measured else f"no pattern comes back {' or '.join(map(str, counts))} times"
    mined = mine(trace, sequence, evidence)
    if mined.loop is None:
        return [], mined.reason
    return [from_mined(trace, sequence, evidence, mined.loop)], None


def mine(trace: Trace, sequence: Sequence, evidence: Evidence) -> mining.Mined:
    """Return what the miner finds with exact names, or, failing that, with variants of a kernel under one name."""
    exact = mining.find_loop(sequence.symbols, evidence)
    if exact.loop is not None:
        return exact
    coarse = coarse_ids(trace.names).to_numpy()[sequence.symbols]
    rough = mining.find_loop(coarse, evidence)
    return exact if rough.loop is None else rough


def from_mined(trace: Trace, sequence: Sequence, evidence: Evidence, found: mining.Loop) -> Loop:
    """Return the measured loop."""
    iterations = measure_iterations(trace, sequence, found.iterations)
    return Loop(
        rank=trace.rank or 0,
        device=sequence.device,
        stream=sequence.stream,
        period=found.period,
        confidence=found.confidence,
        evidence=found.evidence,
        boundary_source=found.source,
        agreement=best_agreement(evidence, found.iterations, found.period),
        iterations=iterations,
        metrics=summarize(iterations),
        nested=tuple({"events": block.events, "repeats": block.repeats} for block in found.nested),
    )


def from_paper(trace: Trace, sequence: Sequence, evidence: Evidence, found: PaperLoop) -> Loop:
    """Return the measured loop of the paper's mode; every match of its Algorithm 1 counts as complete."""
    period = len(found.pattern.symbols)
    matches = found.matches
    every: npt.NDArray[np.bool_] = np.ones(len(matches.first), bool)
    rows = mining.Iterations(matches.first, matches.end, matches.matched, matches.edits, every)
    iterations = measure_iterations(trace, sequence, rows)
    source: BoundarySource = "mined"
    return Loop(
        rank=trace.rank or 0,
        device=sequence.device,
        stream=sequence.stream,
        period=period,
        confidence=round(min(1.0, len(every) / max(1, found.count)), 3),
        evidence=f"paper mode: {len(every)} matches of {found.count} iterations given, ε = {found.pattern.epsilon}",
        boundary_source=source,
        agreement=best_agreement(evidence, rows, period),
        iterations=iterations,
        metrics=summarize(iterations),
    )


def best_agreement(evidence: Evidence, found: mining.Iterations, period: int) -> Agreement | None:
    """Return the agreement with the user's step markers, or else with the user's ranges that fit best."""
    families = [f for f in evidence.families if f.trust != "framework" and len(f.positions) >= 2]
    steps = [f for f in families if f.trust == "step"]
    scored = [agreement_with(f, found, period) for f in steps or families]
    return max(scored, key=lambda a: a.ratio, default=None)


def agreement_with(family: Family, found: mining.Iterations, period: int) -> Agreement:
    """Return which share of the ranges and the iterations meet, an F1 score with a tolerance of 1 % of the period.

    A range without kernels, or beyond the last iteration, has nothing to meet and is left out.
    """
    limit = int(found.end[-1]) if len(found.end) else 0
    wanted = family.positions[family.positions < limit]
    given = found.first[found.complete]
    if not len(wanted) or not len(given):
        return Agreement(family.name, len(wanted), 0.0)
    near = max(2.0, NEAR * period)
    met = np.abs(given[:, None] - wanted[None, :]) <= near
    hits = int(min(met.any(axis=0).sum(), met.any(axis=1).sum()))
    return Agreement(family.name, len(wanted), round(2 * hits / (len(wanted) + len(given)), 4))
