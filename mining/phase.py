"""Where in its period an iteration begins: a host range says it, else weighted evidence votes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from deepprof.mining.candidates import Candidate
from deepprof.mining.choice import holds_once
from deepprof.mining.evidence import Evidence, Family, short
from deepprof.mining.nesting import find_nested
from deepprof.mining.ranges import by_trust
from deepprof.mining.symbols import SymbolArray, as_symbols

__all__ = ["Phase", "Source", "find_phase"]

Floats = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]
Source = Literal["annotation", "framework", "mined"]

RANGE_WEIGHTS = (2.0, 1.0, 0.5)  # of the framework's ranges, by rank: two optimizers mislead the later ones
SAID = 0.1  # of the winning votes: evidence with less is not mentioned
ONE_GAP = 3.0  # a pause this much longer than any other in the period counts twice …
DOMINANT = 0.1  # … when it also is this much of all pauses together
MATERIAL = 0.02  # of all pauses together: below, a pause says little
REACH = 64  # symbols after a range that are compared with the template …
ALIKE = 0.6  # … and how many of them must be equal
AGREEMENT = 0.6  # share of a family's ranges that must point at one place of the period


@dataclass(frozen=True, slots=True)
class Phase:
    """`offset` into the candidate's template; `certainty` in 0..1; `family` when a host range decided."""

    offset: int
    source: Source
    certainty: float
    reason: str
    family: str | None = None


def find_phase(symbols: SymbolArray, candidate: Candidate, evidence: Evidence) -> Phase:
    """Return where the iteration begins: at the user's own ranges where there are some, else by vote.

    `symbols` is the window that the candidate was found in.
    """
    for family in by_trust(evidence, "step", "range"):
        pointed = pointed_at(candidate, family) or (
            located_at(symbols, candidate, family) if family.trust == "step" else None
        )
        if pointed is not None and (family.trust == "step" or holds_once(candidate, family)):
            offset, agreement = pointed
            return Phase(offset, "annotation", agreement, f"host range {short(family.name)}", family.name)
    return vote_phase(candidate, evidence)


def pointed_at(candidate: Candidate, family: Family) -> tuple[int, float] | None:
    """Return the place of the period that most ranges of the family point at, and what share of them does."""
    offsets = offsets_of(candidate, family.positions)
    if len(offsets) < 2 or not are_enough(len(offsets), candidate):
        return None
    places, votes = np.unique(offsets, return_counts=True)
    agreement = float(votes.max() / len(offsets))
    return (int(places[np.argmax(votes)]), agreement) if agreement >= AGREEMENT else None


def are_enough(count: int, candidate: Candidate) -> bool:
    """Return whether so many ranges can be one per pass, a few of them lost."""
    return abs(count - candidate.passes) <= 0.3 * candidate.passes + 1


def located_at(symbols: SymbolArray, candidate: Candidate, family: Family) -> tuple[int, float] | None:
    """Return the same by comparing what follows each range with the whole template: for passes full of edits.

    O(positions · period · REACH / 8), for at most 50 positions.
    """
    cyclic = np.resize(candidate.template.symbols, candidate.period + REACH)
    windows = np.lib.stride_tricks.sliding_window_view(cyclic, REACH)[: candidate.period]
    inside = family.positions[(family.positions >= 0) & (family.positions <= len(symbols) - REACH)][:50]
    places = []
    for position in inside.tolist():
        equal = (windows == symbols[position : position + REACH]).sum(axis=1)
        if equal.max() >= ALIKE * REACH:
            places.append(int(np.argmax(equal)))
    if len(places) < 2 or not are_enough(len(family.positions), candidate):
        return None
    place = round(float(np.median(places)))
    agreement = float((np.abs(np.array(places) - place) <= max(2, 0.01 * candidate.period)).mean())
    return (place, agreement) if agreement >= AGREEMENT else None


def offsets_of(candidate: Candidate, positions: Int64s) -> Int64s:
    """Return the template offset at each position that lies inside a pass without edits.

    A pass cut by the stream's start is aligned at its end, all others at their first symbol.
    """
    m = candidate.matches
    if not len(m.first):
        return np.empty(0, np.int64)
    index = np.searchsorted(m.first, positions, side="right") - 1
    inside = (index >= 0) & (positions < m.end[np.maximum(index, 0)])
    index, positions = index[inside], positions[inside]
    begin = m.first.copy()
    begin[0] = m.end[0] - candidate.period if m.end[0] - m.first[0] < candidate.period else begin[0]
    return np.asarray((positions - begin[index])[m.edits[index] == 0])


def vote_phase(candidate: Candidate, evidence: Evidence) -> Phase:
    """Return the place with most votes: launch gaps, device gaps, copies, ends of inner loops, the stream's start."""
    votes: dict[str, Floats] = {
        "host launch gap": gap_votes(candidate, evidence.launch_gaps, 2.0),
        "device gap": gap_votes(candidate, evidence.gaps, 1.0),
        "copy from the host": mark_votes(candidate, evidence.copies, 0.8),
        "end of the optimizer's loop": loop_end_votes(candidate),
        "optimizer kernels": optimizer_votes(candidate, evidence.optimizer),
        "bounds of the capture": capture_votes(candidate, evidence),
        "resumption after foreign kernels": relock_votes(candidate),
    }
    votes |= {f"host range {short(f.name)}": family_votes(candidate, f, rank) for rank, f in framework_ranges(evidence)}
    total = np.sum(list(votes.values()), axis=0)
    offset = int(np.argmax(total))
    reasons = [name for name, v in votes.items() if v[offset] >= SAID * total[offset] > 0]
    rest = np.delete(total, offset)
    lead = 1 - float(rest.max(initial=0.0)) / float(total[offset]) if total[offset] > 0 else 0.0
    said = ", ".join(reasons) or "no evidence on where it begins"
    return Phase(offset, "mined", 0.5 + 0.5 * lead, said)


def framework_ranges(evidence: Evidence) -> list[tuple[int, Family]]:
    """Return the framework's ranges with their rank as to where an iteration begins, loading a batch first."""
    ranked = sorted(by_trust(evidence, "loop", "framework"), key=lambda f: -f.telling)
    return list(enumerate(ranked))[: len(RANGE_WEIGHTS)]


def family_votes(candidate: Candidate, family: Family, rank: int) -> Floats:
    """Vote for the place that a framework's ranges point at, if they come once per pass."""
    votes = np.zeros(candidate.period)
    pointed = pointed_at(candidate, family)
    if pointed is not None:
        votes[pointed[0] % candidate.period] = RANGE_WEIGHTS[rank] * pointed[1]
    return votes


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
    """Vote for the ends of the longest inner loops of few kernels: the optimizer's loop over parameters is one."""
    votes = np.zeros(candidate.period)
    twice = as_symbols(np.tile(candidate.template.symbols, 2)[: 1 << 15])  # the loop may wrap around the cut
    small = [b for b in find_nested(twice) if b.events <= 8]
    longest = sorted({(b.events * b.repeats, (b.first + b.events * b.repeats) % candidate.period) for b in small})[-3:]
    for size, end in longest:
        if size >= max(8, 0.03 * candidate.period):
            votes[end] += 1.2 * size / longest[-1][0]
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


def capture_votes(candidate: Candidate, evidence: Evidence) -> Floats:
    """Vote for where the capture begins and ends, as profilers are switched on and off between iterations.

    When it cuts the repetition at both ends it did so between iterations only if whole ones lie in between. A
    repetition that sets in later says little: what comes before may share symbols with it.
    """
    votes, first = np.zeros(candidate.period), candidate.exact
    if not len(first):
        return votes
    begin = max(candidate.left, evidence.start)
    at_start, at_end = candidate.left <= evidence.start, candidate.right == evidence.length
    off = (evidence.length - begin) % candidate.period
    whole = min(off, candidate.period - off) <= max(2, 0.01 * candidate.period)
    head = {(True, True): 3.0 if whole else 0.2, (True, False): 1.5, (False, True): 0.4, (False, False): 0.4}
    votes[(begin - int(first[0])) % candidate.period] += head[at_start, at_end]
    if at_end and not at_start:
        votes[(evidence.length - int(first[0])) % candidate.period] += 1.0
    return votes


def relock_votes(candidate: Candidate) -> Floats:
    """Vote for the places at which the sequence comes back after foreign symbols (evaluation, checkpoint)."""
    relocks = candidate.relocks.astype(np.float64)
    return 1.5 * relocks / max(3.0, float(relocks.sum()))
