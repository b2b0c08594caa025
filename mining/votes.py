"""Votes for where an iteration begins: one function per kind of evidence, each returns an array along the period."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepprof.mining.candidates import Candidate, follow
from deepprof.mining.evidence import Evidence
from deepprof.mining.iterations import to_iterations
from deepprof.mining.nesting import (
    LAYER,
    NESTED,
    find_cyclic,
    find_nested,
    layer_pairs,
    nested_share,
    parameter_loops,
    size_of,
)
from deepprof.mining.symbols import SymbolArray, as_symbols

LOOK = 16  # symbols compared to find the place in the period

ALIKE = 0.8  # share of these symbols that must be equal


@dataclass(frozen=True, slots=True)
class RepetitionBound:
    """Where a repetition begins or ends.

    `at` is the stream position of its first symbol (or past its last), `place` that in the period.
    """

    at: int
    place: int


Floats = npt.NDArray[np.float64]

ONE_GAP = 3.0  # a pause this many times longer than any other in the period counts twice, if its share is `DOMINANT`
DOMINANT = 0.1  # of all pauses together
WHOLE, NATURAL, TAIL_CUT, HEAD_CUT = 3.0, 0.8, 0.6, 0.3  # votes for bounds of the repetition, see `capture_votes`
RUN, WITHIN = 0.05, 0.4  # share of the period from which on a run of layers counts, and the factor for votes within it
BETWEEN = 0.3  # of the period: more between the last layer's backward and the first one's forward is weak evidence
LONGER = 1.1  # times the body of the forward pass: the least length of the body of the backward pass
PART = 64  # kernels: a shorter part may be a layer with loops inside
CUT, SPARED = 2, 0.05  # fewest re-locks; number, and share, of iterations that must be whole only from a better place
UNCUT = 2.0  # votes for that place: more than for the end of a loop and for resumption
MATERIAL = 0.02  # of all pauses together: a shorter pause is weak evidence


def gap_votes(candidate: Candidate, gaps: Floats | None, weight: float) -> Floats:
    """Vote for the eight places with the longest typical gap, by its square root, if one is distinct.

    A gap that is only a small share of all gaps votes less, one that is much longer than all others votes twice.
    """
    votes = np.zeros(candidate.period)
    if gaps is None:
        return votes
    typical = candidate.typical(gaps)
    usual = np.maximum(typical - np.median(typical), 0)
    if usual.max(initial=0.0) > 3 * max(1e-9, float(np.median(gaps))):
        top = np.argsort(usual)[::-1][:8]
        share = usual[top[0]] / typical.sum()
        alone = share >= DOMINANT and (len(top) < 2 or usual[top[0]] >= ONE_GAP * usual[top[1]])
        votes[top] = weight * (2 if alone else min(1.0, share / MATERIAL)) * np.sqrt(usual[top] / usual[top[0]])
    return votes


def mark_votes(candidate: Candidate, marks: npt.NDArray[np.bool_] | None, weight: float) -> Floats:
    """Vote for places that are marked in most passes; the votes are shared among them."""
    votes = np.zeros(candidate.period)
    if marks is not None:
        places = np.flatnonzero(candidate.typical(marks.astype(np.float64)) > 0.5)
        if 0 < len(places) <= max(8, 0.01 * candidate.period):
            votes[places] = weight / np.sqrt(len(places))
    return votes


def loop_end_votes(candidate: Candidate) -> Floats:
    """Vote for the ends of inner loops of few kernels that mostly run nowhere else, as the optimizer's loop is one."""
    votes = np.zeros(candidate.period)
    for block, own in parameter_loops(candidate.template.symbols):
        size = size_of(block)
        end = (block.first + size) % candidate.period
        votes[end] = max(votes[end], 1.2 * own * min(1.0, size / (0.03 * candidate.period)) ** 0.5)
    return votes


def part_votes(candidate: Candidate) -> Floats:
    """Vote for the beginning of a section of large parts with their own loops: micro-batches, passes of a critic."""
    votes = np.zeros(candidate.period)
    template = candidate.template.symbols
    for block in find_cyclic(template)[:1]:
        body = template[(block.first + np.arange(block.events)) % candidate.period]
        large = size_of(block) >= 0.5 * candidate.period
        if large and block.events >= PART and len(find_nested(body)) >= 2 and nested_share(body) >= NESTED:
            votes[block.first] = 1.0
    return votes


def optimizer_votes(candidate: Candidate, optimizer: npt.NDArray[np.bool_] | None) -> Floats:
    """Vote for the place right after the optimizer's last kernel (before the longest section without one)."""
    votes = np.zeros(candidate.period)
    if optimizer is None:
        return votes
    places = np.flatnonzero(optimizer[candidate.template.symbols])
    if not 0 < len(places) < candidate.period:
        return votes
    stretch = np.diff(np.append(places, places[0] + candidate.period))
    end = int(places[np.argmax(stretch)]) + 1
    votes[end % candidate.period] = 1.8
    return votes


def layer_votes(candidate: Candidate) -> Floats:
    """Vote for all places between the layers' backward pass, whose body is longer, and their next forward pass.

    The later places get slightly more: the update uses more kernels than an embedding.
    """
    votes, template = np.zeros(candidate.period), candidate.template.symbols
    for backward, forward in layer_pairs(template):
        if backward.events >= LONGER * forward.events:
            begin = backward.first + size_of(backward)
            between = (forward.first - begin) % candidate.period
            if between <= BETWEEN * candidate.period:
                votes[(begin + np.arange(between + 1)) % candidate.period] = np.linspace(0.6, 0.65, between + 1)
            break
    return votes


def capture_votes(symbols: SymbolArray, candidate: Candidate, evidence: Evidence) -> Floats:
    """Vote for where the repetition begins and ends: between other kernels, or at the capture's bounds.

    Whole iterations between both are evidence for both. Otherwise one of them is within an iteration: a bound of the
    capture more likely than one made by other kernels, and the capture's start, when the device is still busy with what
    was launched before, more likely than its end.
    """
    votes, period = np.zeros(candidate.period), candidate.period
    head, tail = sets_in(symbols, candidate), breaks_off(symbols, candidate)
    cut_head = head is not None and head.at <= evidence.start
    cut_tail = tail is not None and tail.at == evidence.length
    if head is not None and cut_head:
        head = RepetitionBound(evidence.start, head.place + evidence.start - head.at) if evidence.opens else None
    if tail is not None and cut_tail and not evidence.closes:
        tail = None
    if head is not None and tail is not None and _is_near(head.place, tail.place, period):
        votes[head.place % period] = WHOLE
        return votes
    if head is not None:
        votes[head.place % period] += HEAD_CUT if cut_head else NATURAL
    if tail is not None:
        votes[tail.place % period] += TAIL_CUT if cut_tail else NATURAL
    return votes


def _is_near(one: int, other: int, period: int) -> bool:
    """Return whether two places of the period are the same but for a few symbols."""
    apart = (one - other) % period
    return min(apart, period - apart) <= max(2, 0.01 * period)


def doubts(candidate: Candidate) -> Floats:
    """Return a factor for the votes of every place: below 1 within a run of equal layers, where no iteration begins."""
    factor: Floats = np.ones(candidate.period)
    margin = max(2, int(0.01 * candidate.period))
    for block in find_cyclic(candidate.template.symbols):
        size = size_of(block) - 2 * margin
        if block.events >= LAYER and size >= RUN * candidate.period:
            factor[(block.first + margin + np.arange(size)) % candidate.period] = WITHIN
    return factor


def relock_votes(candidate: Candidate) -> Floats:
    """Vote for the places at which the sequence resumes after foreign symbols (evaluation, checkpoint)."""
    relocks = candidate.relocks.astype(np.float64)
    return 1.5 * relocks / max(3.0, float(relocks.sum()))


def whole_votes(symbols: SymbolArray, candidate: Candidate, places: Sequence[int]) -> Floats:
    """Vote for the one of `places` from which clearly more iterations are whole: no evaluation runs within one.

    What resumes after an evaluation may be its own next forward pass, so that `relock_votes` alone are misleading.
    """
    votes = np.zeros(candidate.period)
    if len(places) < 2 or candidate.relocks.sum() < CUT:
        return votes
    whole = [_count_whole(symbols, np.roll(candidate.template.symbols, -place)) for place in places]
    best, second = sorted(whole, reverse=True)[:2]
    if best - second >= max(CUT, SPARED * best):
        votes[places[whole.index(best)]] = UNCUT
    return votes


def _count_whole(symbols: SymbolArray, template: SymbolArray) -> int:
    return int(to_iterations(follow(symbols, as_symbols(template))[1], len(template)).complete.sum())


def sets_in(symbols: SymbolArray, candidate: Candidate) -> RepetitionBound | None:
    """Return where the repetition begins; None when its first pass is not clearly part of it."""
    rows = candidate.matches
    for row in range(min(2, len(rows))):
        at = int(rows.first[row])
        missing = candidate.period - int(rows.matched[row])
        span = int(rows.end[row]) - at
        found = locate(symbols[at : at + LOOK], candidate.template.symbols, candidate.period - span, missing)
        if found is not None and 2 * int(rows.matched[row]) >= span:
            return RepetitionBound(at, found)
    return None


def breaks_off(symbols: SymbolArray, candidate: Candidate) -> RepetitionBound | None:
    """Return where the repetition ends; None when its last pass is not clearly part of it."""
    rows = candidate.matches
    for row in range(len(rows) - 1, max(-1, len(rows) - 3), -1):
        end, span = int(rows.end[row]), int(rows.end[row] - rows.first[row])
        missing = candidate.period - int(rows.matched[row])
        reverse = candidate.template.symbols[::-1]
        found = locate(symbols[max(0, end - LOOK) : end][::-1], reverse, candidate.period - span, missing)
        if found is not None and 2 * int(rows.matched[row]) >= span:
            return RepetitionBound(end, (candidate.period - found) % candidate.period)
    return None


def locate(piece: SymbolArray, template: SymbolArray, least: int, most: int) -> int | None:
    """Return the place of the cyclic template near [least, most] that `piece` fits best, else None.

    Of equally good places the last within is taken.
    """
    size = len(piece)
    if size < LOOK // 2:
        return None
    places = np.unique(np.arange(max(least - 2, 0), min(most + 2, len(template) - 1) + 1))
    if not len(places):
        return None
    equal = (template[(places[:, None] + np.arange(size)) % len(template)] == piece).sum(axis=1)
    inside = (least <= places) & (places <= most)
    best = int(max(zip(equal.tolist(), inside.tolist(), places.tolist(), strict=True))[2])
    return best if equal.max() >= ALIKE * size else None
