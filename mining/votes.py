"""What votes for where an iteration begins: one function per kind of evidence, each an array along the period."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from deepprof.mining.bounds import Bound, breaks_off, sets_in
from deepprof.mining.candidates import Candidate
from deepprof.mining.evidence import Evidence
from deepprof.mining.nesting import find_cyclic, find_nested, nested_share, parameter_loops
from deepprof.mining.symbols import SymbolArray

__all__ = [
    "capture_votes",
    "gap_votes",
    "loop_end_votes",
    "mark_votes",
    "optimizer_votes",
    "part_votes",
    "relock_votes",
]

Floats = npt.NDArray[np.float64]

ONE_GAP = 3.0  # a pause this much longer than any other in the period counts twice …
DOMINANT = 0.1  # … when it also is this much of all pauses together
HEAD = {(True, False): 1.5, (False, True): 0.4, (False, False): 0.8}  # whether the capture cuts the head and the tail
HEAD_BETWEEN_CUTS = {True: 3.0, False: 0.2}  # … both of them: whether whole iterations lie in between
PART = 64  # kernels: a shorter part may be a layer with loops inside
NESTED = 0.3  # of a part lies in loops
MATERIAL = 0.02  # of all pauses together: below, a pause says little


def gap_votes(candidate: Candidate, gaps: Floats | None, weight: float) -> Floats:
    """Vote for the eight places with the longest typical gap, by its square root, if one stands out.

    A gap that is hardly longer than what all places lose anyway votes less, one that dwarfs all others twice.
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
    """Vote for places that are marked in most passes, shared among them."""
    votes = np.zeros(candidate.period)
    if marks is not None:
        places = np.flatnonzero(candidate.typical(marks.astype(np.float64)) > 0.5)
        if 0 < len(places) <= max(8, 0.01 * candidate.period):
            votes[places] = weight / np.sqrt(len(places))
    return votes


def loop_end_votes(candidate: Candidate) -> Floats:
    """Vote for the ends of inner loops of few kernels, mostly such as run nowhere else: the optimizer's loop is one."""
    votes = np.zeros(candidate.period)
    for block, own in parameter_loops(candidate.template.symbols):
        size = block.events * block.repeats
        end = (block.first + size) % candidate.period
        votes[end] = max(votes[end], 1.2 * own * min(1.0, size / (0.03 * candidate.period)) ** 0.5)
    return votes


def part_votes(candidate: Candidate) -> Floats:
    """Vote for the beginning of a stretch of large parts with loops of their own: micro-batches, passes of a critic."""
    votes = np.zeros(candidate.period)
    template = candidate.template.symbols
    for block in find_cyclic(template)[:1]:
        body = template[(block.first + np.arange(block.events)) % candidate.period]
        large = block.events * block.repeats >= 0.5 * candidate.period
        if large and block.events >= PART and len(find_nested(body)) >= 2 and nested_share(body) >= NESTED:
            votes[block.first] = 1.0
    return votes


def optimizer_votes(candidate: Candidate, optimizer: npt.NDArray[np.bool_] | None) -> Floats:
    """Vote for the places right after the optimizer's last kernel (the one followed by the longest stretch without)."""
    votes = np.zeros(candidate.period)
    if optimizer is None:
        return votes
    places = np.flatnonzero(optimizer[candidate.template.symbols])
    if not 0 < len(places) < candidate.period:
        return votes
    stretch = np.diff(np.append(places, places[0] + candidate.period))
    end = int(places[np.argmax(stretch)]) + 1
    near = (end + np.arange(max(2, int(0.015 * candidate.period)))) % candidate.period
    votes[near] = 1.5
    votes[end % candidate.period] += 0.3
    return votes


def capture_votes(symbols: SymbolArray, candidate: Candidate, evidence: Evidence) -> Floats:
    """Vote for where the repetition sets in and breaks off: at the capture's bounds, or between other kernels.

    Profilers are switched on and off between iterations. When the capture cuts the repetition at both ends it did so
    between iterations only if whole ones lie in between. A repetition that sets in later says less: what comes before
    may share symbols with it, unless the place at which it ends is the same.
    """
    votes, period = np.zeros(candidate.period), candidate.period
    head, tail = sets_in(symbols, candidate), breaks_off(symbols, candidate)
    cut_head = head is not None and head.at <= evidence.start
    cut_tail = tail is not None and tail.at == evidence.length
    if head is not None and cut_head:
        head = Bound(evidence.start, head.place + evidence.start - head.at) if evidence.opens else None
    if tail is not None and cut_tail and not evidence.closes:
        tail, cut_tail = None, False
    whole = head is not None and tail is not None and is_near(head.place, tail.place, period)
    if head is not None:
        votes[head.place % period] += HEAD_BETWEEN_CUTS[whole] if cut_head and cut_tail else HEAD[cut_head, cut_tail]
    if tail is not None and not cut_head:
        votes[tail.place % period] += 1.0 if cut_tail else 0.8
    return votes


def is_near(one: int, other: int, period: int) -> bool:
    """Return whether two places of the period are the same but for a few symbols."""
    apart = (one - other) % period
    return min(apart, period - apart) <= max(2, 0.01 * period)


def relock_votes(candidate: Candidate) -> Floats:
    """Vote for the places at which the sequence comes back after foreign symbols (evaluation, checkpoint)."""
    relocks = candidate.relocks.astype(np.float64)
    return 1.5 * relocks / max(3.0, float(relocks.sum()))
