"""The confidence of a loop: that its period is an iteration's, and that iterations begin where it states.

Where names or host ranges are evidence of an iteration, passes that agree suffice. From structure alone the odds come
from a logistic regression on synthetic training jobs (500 seeds that no published figure uses), lowered so that of the
loops with a confidence of 0.9 or more hardly any is wrong on other jobs (results: docs/generated/accuracy.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from deepprof.mining.acceptance import AcceptanceVerdict
from deepprof.mining.candidates import Candidate
from deepprof.mining.cycles import MANY_MICRO_BATCHES, LoopCycle
from deepprof.mining.nesting import LAYER, are_as_many, find_cyclic, has_parameter_loop, size_of
from deepprof.mining.phase import Phase
from deepprof.mining.symbols import SymbolArray

__all__ = ["sure_of_period", "sure_of_start"]

BASE, PER_DOUBLING, PER_EDIT, LOOP, PER_VOTE, COVERED, PER_SIGN = -2.8, 0.27, -41.0, 0.92, 0.66, 1.46, 0.5
MOST_DOUBLINGS, MOST_EDITS, MOST_VOTES = 6.0, 0.1, 4.0  # larger values count as these
ONE_RUN, PARTNER = 0.8, 0.1  # share of a period in one run of layers; least size of a second run, relative to the first
ONE_RUN_LIMIT = 0.85  # highest confidence: the period may be some small iterations and what follows them
CYCLE_LIMIT = 0.88  # highest confidence: what comes every few passes may be their optimizer
PART_LIMIT = 0.6  # highest confidence: it looks like an optimizer's, but no whole iteration could be made with it
LEADS = (0.0, 0.1, 0.3, 0.45, 0.8, 1.5, 2.5, 3.0)  # votes for the start beyond those for any other place
STARTS = (0.3, 0.32, 0.5, 0.75, 0.9, 0.955, 0.99, 0.995)  # share of the starts with such a lead that were right


def sure_of_start(phase: Phase) -> float:
    """Return the confidence that iterations begin there, from the agreement of ranges or from the lead in votes."""
    if phase.source == "annotation":
        return 0.9 + 0.1 * phase.certainty
    return float(np.interp(phase.lead, LEADS, STARTS))


def sure_of_period(
    candidate: Candidate, verdict: AcceptanceVerdict, phase: Phase, cycles: Sequence[LoopCycle]
) -> float:
    """Return the confidence that the passes are iterations, neither parts nor multiples of them."""
    if verdict.strong:
        return verdict.certainty
    logit = BASE + PER_DOUBLING * min(math.log2(max(1.0, candidate.passes)), MOST_DOUBLINGS)
    logit += PER_EDIT * min(candidate.edit_share, MOST_EDITS) + COVERED * candidate.coverage
    logit += LOOP * has_parameter_loop(candidate.template.symbols) + PER_VOTE * min(phase.votes, MOST_VOTES)
    logit += PER_SIGN * verdict.weak
    return min(1 / (1 + math.exp(-logit)), limit(candidate.template.symbols, cycles))


def limit(template: SymbolArray, cycles: Sequence[LoopCycle]) -> float:
    """Return the highest confidence for a period that may be a multiple or a part of the iteration."""
    if is_one_run(template):
        return ONE_RUN_LIMIT
    near = {c.kind for c in cycles if c.every <= MANY_MICRO_BATCHES}
    if "accumulation" in near:
        return PART_LIMIT
    return CYCLE_LIMIT if near & {"statistics", "checkpoint"} else 1.0


def is_one_run(template: SymbolArray) -> bool:
    """Return whether nearly all of a period is one run of equal parts, without a second run of as many parts."""
    runs = sorted((b for b in find_cyclic(template) if b.events >= LAYER), key=size_of, reverse=True)
    if not runs or size_of(runs[0]) < ONE_RUN * len(template):
        return False
    return not any(are_as_many(b, runs[0]) and size_of(b) >= PARTNER * size_of(runs[0]) for b in runs[1:])
