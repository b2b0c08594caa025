"""Choose the candidate that is the iteration: by host ranges or optimizer kernels, else by climbing the levels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from deepprof.mining.candidates import Candidate
from deepprof.mining.evidence import Evidence, Family
from deepprof.mining.nesting import (
    LAYER,
    NESTED,
    are_as_many,
    find_cyclic,
    has_inner_loops,
    nested_share,
    size_of,
)
from deepprof.mining.ranges import by_trust, comes_once
from deepprof.mining.symbols import SymbolArray

MOST_PASSES = 0.8  # of the passes that must contain an optimizer's kernel
NEW_SYMBOLS = 0.15  # share of its own symbols from which on a larger level is more than a repetition
SIZEABLE = 0.25  # of the smaller period: less beside its passes means a cycle over iterations (statistics, checkpoints)
SECOND_HALF = 0.5  # the same limit where the smaller period has the structure of an iteration
ONE_RUN = 0.8  # share of a period that is in one run of a smaller one
FEWEST_KERNELS = 6  # different kernels: forward, backward and update have no fewer
LAYER_SIZES = (64, 400)  # a shorter period may always be a layer, a longer one hardly ever is
FLAT = 200  # kernels: a longer period without inner loops is no layer, as layers of this many kernels have inner loops
AS_LARGE = 2.0  # times the kernels of a layer, or that part of them: another kind of layer of the same model
VARIANT = 0.5  # of such a layer's kernels that the others have too, as those of norms and products
MIN_COVERAGE = 0.3
MAX_EDITS = 0.1  # per matched symbol: quasi-periodic sequences need more, noisy jobs far less
WHOLE, PART = 0.97, 0.85  # coverage of a period that explains everything, and of one that is only a part of it
NEARLY = 0.97  # of the best coverage: candidates that cover less are parts of the true template
NEARLY_PART = 0.8  # the same limit for a candidate of which the best one is a multiple


def select(symbols: SymbolArray, candidates: list[Candidate], evidence: Evidence) -> Candidate | None:
    """Return the candidate that is the iteration: by host ranges, by optimizer kernels, else by structure.

    Candidates that fit only roughly are left out, unless there are no others; one of those is refused later. Of host
    ranges the user's step markers count first, then the framework's loop ranges in the order of `by_trust`.
    """
    usable = [c for c in candidates if c.coverage >= MIN_COVERAGE and c.passes >= 2]
    usable = [c for c in usable if c.edit_share <= MAX_EDITS] or usable
    for family in by_trust(evidence, "step", "loop"):
        agreeing = [c for c in usable if len(family.positions) >= 3 and holds_once(c, family)]
        if agreeing:
            return _smallest_of_best(agreeing)
    if evidence.optimizer is not None:
        optimizing = [c for c in usable if _optimizes(symbols, c, evidence.optimizer)]
        if optimizing:
            return _smallest_of_best(optimizing)
    return _climb(symbols, usable, evidence)


def holds_once(candidate: Candidate, family: Family) -> bool:
    """Return whether the section of the candidate's passes has one range of the family per pass."""
    good = candidate.good
    if not good.any():
        return False
    first, end = int(candidate.matches.first[good][0]), int(candidate.matches.end[good][-1])
    return comes_once(family, first, end, candidate.period, candidate.passes)


def in_most_passes(candidate: Candidate, marks: npt.NDArray[np.bool_] | None) -> bool:
    """Return whether about 80 % of the passes contain a mark; one may lack it because passes begin in another phase."""
    if marks is None or not marks.any():
        return False
    per_pass = candidate.count(np.flatnonzero(marks))
    return int((per_pass > 0).sum()) >= max(2.0, 0.8 * len(per_pass) - 1)


def _smallest_of_best(candidates: list[Candidate]) -> Candidate:
    """Return the shortest of the candidates that explain about as much as the best one."""
    best = max(candidates, key=lambda c: (c.coverage, -c.period))

    def explains_enough(c: Candidate) -> bool:
        times = best.period / c.period
        part = round(times) >= 2 and abs(times - round(times)) <= 0.05 * times
        return c.coverage >= (NEARLY_PART if part else NEARLY) * best.coverage

    return next(c for c in candidates if explains_enough(c))


def _optimizes(symbols: SymbolArray, candidate: Candidate, optimizer: npt.NDArray[np.bool_]) -> bool:
    """Return whether nearly every pass contains an optimizer's kernel."""
    per_pass = candidate.count(np.flatnonzero(optimizer[symbols]))
    return bool(len(per_pass) and (per_pass > 0).mean() >= MOST_PASSES)


def _climb(symbols: SymbolArray, candidates: list[Candidate], evidence: Evidence) -> Candidate | None:
    """Return the candidate reached by climbing from the smallest one while the next is more than its repetition."""
    if not candidates:
        return None
    best = max(c.coverage for c in candidates)
    ladder = [c for c in candidates if c.coverage >= 0.6 * best]
    pick = ladder[0]
    for larger in ladder[1:]:
        if larger.passes >= 2.9 and _is_above(symbols, larger, pick, _could_be_layer(pick, evidence)):
            pick = larger
    whole = max(ladder, key=lambda c: c.coverage)
    # The true period may be there, but too few times: it is better to refuse it for that than to accept a part of it.
    return whole if whole.coverage >= WHOLE and pick.coverage < PART else pick


def _could_be_layer(pick: Candidate, evidence: Evidence) -> bool:
    """Return whether a period is flat, unless it is nearly all that runs, with a copy and a host wait per pass."""
    alone = pick.period >= LAYER_SIZES[0] and pick.coverage >= WHOLE
    fed = alone and all(in_most_passes(pick, marks) for marks in (evidence.copies, evidence.syncs))
    return is_flat(pick.template.symbols) and not fed


def _is_above(symbols: SymbolArray, larger: Candidate, pick: Candidate, flat: bool) -> bool:
    """Return whether `larger` is an iteration made of several `pick`, not a longer cycle of iterations.

    It is one when it explains clearly more, when it brings its own symbols, or when the smaller period is `flat`. A
    flat `pick` would be refused in the end, so `larger` may explain somewhat less: one bad iteration costs a larger
    period more.
    """
    if larger.coverage < (0.7 * pick.coverage if flat else pick.coverage - 0.05):
        return False
    if larger.period < 1.5 * pick.period:
        return larger.coverage > pick.coverage + 0.02
    explains_more = larger.coverage >= pick.coverage + 0.2
    if explains_more or flat:
        return explains_more or not is_run_of(larger.template.symbols, pick.template.symbols)
    beside = abs(larger.period - round(larger.period / pick.period) * pick.period)
    unexplained = (larger.coverage - pick.coverage) * larger.period
    sizeable = SECOND_HALF if _is_structured(pick.template.symbols) else SIZEABLE
    return max(beside, unexplained) >= sizeable * pick.period and _new_share(symbols, larger, pick) >= NEW_SYMBOLS


def is_run_of(larger: SymbolArray, smaller: SymbolArray) -> bool:
    """Return whether a period is mostly one run of a smaller one that has several its own loops.

    Layers instead make two runs of equal counts, forward and backward, or have no loops of different kinds.
    """
    blocks = find_cyclic(larger)
    run = next((b for b in blocks if abs(b.events - len(smaller)) <= 0.02 * len(smaller)), None)
    if run is None or size_of(run) < ONE_RUN * len(larger) or not _is_structured(smaller):
        return False
    return not any(are_as_many(b, run) and b.events >= LAYER for b in blocks if b is not run)


def _is_structured(template: SymbolArray) -> bool:
    """Return whether a period contains two loops or more that fill a good part of it."""
    return len(find_cyclic(template)) >= 2 and nested_share(template) >= NESTED


def is_flat(template: SymbolArray) -> bool:
    """Return whether a period could be a layer: short, or without the inner loops that an iteration has.

    A loop over parameters suffices as an inner loop: a model of two layers has no other. A period of few different
    kernels may belong to a solver, however often its inner loop runs.
    """
    shortest = LAYER_SIZES[0]
    if len(template) < shortest or len(np.unique(template)) < FEWEST_KERNELS:
        return True
    return len(template) < FLAT and not has_inner_loops(template)


def could_be_layers(template: SymbolArray) -> bool:
    """Return whether a period could be a layer, or a group of layers: that has an inner loop, but no head."""
    return is_flat(template) or _is_layer_group(template)


def _is_layer_group(template: SymbolArray) -> bool:
    """Return whether a period is a run of layers and one more of about their size, most of whose kernels they have too.

    Models alternate several layers of one kind with one of another. What an iteration has next to its layers is
    smaller, or has its own kernels, an embedding, a head, a loss, an update, or is a run of layers too, forward or
    backward."""
    run = max((b for b in find_cyclic(template) if b.events >= LAYER), key=size_of, default=None)
    if run is None or not run.events / AS_LARGE <= len(template) - size_of(run) <= run.events * AS_LARGE:
        return False
    turned = np.roll(template, -run.first)
    layer, other = turned[: run.events], turned[size_of(run) :]
    return is_flat(layer) and nested_share(other) < NESTED and bool(np.isin(other, layer).mean() >= VARIANT)


def _new_share(symbols: SymbolArray, larger: Candidate, pick: Candidate) -> float:
    """Return the share of the larger period's symbols, without rare noise, that the smaller one does not have."""
    total = np.bincount(symbols)
    inside = np.unique(larger.template.symbols)
    steady = inside[total[inside] >= 0.5 * larger.passes]
    return float((~np.isin(steady, pick.template.symbols)).mean()) if len(steady) else 0.0
