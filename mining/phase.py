"""Find where in its period an iteration begins: by a host range, else by a vote of weighted evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from deepprof.mining.candidates import Candidate
from deepprof.mining.choice import holds_once
from deepprof.mining.evidence import Evidence, Family, short
from deepprof.mining.ranges import by_trust
from deepprof.mining.symbols import SymbolArray
from deepprof.mining.votes import (
    capture_votes,
    doubts,
    gap_votes,
    layer_votes,
    loop_end_votes,
    mark_votes,
    optimizer_votes,
    part_votes,
    relock_votes,
    whole_votes,
)

Floats = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]
Source = Literal["annotation", "framework", "mined"]

RANGE_WEIGHTS = (2.0, 1.0, 0.5)  # of the framework's ranges, by rank: two optimizers mislead the later ones
SAID = 0.1  # of the winning votes: evidence with less is not mentioned
REACH = 64  # symbols after a range that are compared with the template
ALIKE = 0.6  # share of these symbols that must be equal
PEAKS = 3  # places with most votes whose iterations are counted
AGREEMENT = 0.6  # share of a family's ranges that must point at one place of the period


@dataclass(frozen=True, slots=True)
class Phase:
    """Where an iteration begins: `offset` into the candidate's template, and `family` when a host range decided.

    `certainty` is the share of the ranges that agree, 1 without any; `votes` is the number of votes for the place,
    `lead` how many more they are than any other place's.
    """

    offset: int
    source: Source
    certainty: float
    reason: str
    family: str | None = None
    votes: float = 0.0
    lead: float = 0.0


def find_phase(symbols: SymbolArray, candidate: Candidate, evidence: Evidence) -> Phase:
    """Return where the iteration begins: at the user's own ranges where there are some, else by vote.

    `symbols` is the window that the candidate was found in.
    """
    for family in by_trust(evidence, "step", "range"):
        pointed = _pointed_at(candidate, family) or (
            _located_at(symbols, candidate, family) if family.trust == "step" else None
        )
        if pointed is not None and (family.trust == "step" or holds_once(candidate, family)):
            offset, agreement = pointed
            return Phase(offset, "annotation", agreement, f"host range {short(family.name)}", family.name)
    return _vote_phase(symbols, candidate, evidence)


def _pointed_at(candidate: Candidate, family: Family) -> tuple[int, float] | None:
    """Return the place of the period that most ranges of the family point at, and what share of them does."""
    offsets = _offsets_of(candidate, family.positions)
    if len(offsets) < 2 or not _are_enough(len(offsets), candidate):
        return None
    places, votes = np.unique(offsets, return_counts=True)
    agreement = float(votes.max() / len(offsets))
    return (int(places[np.argmax(votes)]), agreement) if agreement >= AGREEMENT else None


def _are_enough(count: int, candidate: Candidate) -> bool:
    """Return whether `count` ranges can be one per pass, with a few of them lost."""
    return abs(count - candidate.passes) <= 0.3 * candidate.passes + 1


def _located_at(symbols: SymbolArray, candidate: Candidate, family: Family) -> tuple[int, float] | None:
    """Return the same as `_pointed_at`, comparing what follows each range with the template: for passes of many edits.

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
    if len(places) < 2 or not _are_enough(len(family.positions), candidate):
        return None
    place = round(float(np.median(places)))
    agreement = float((np.abs(np.array(places) - place) <= max(2, 0.01 * candidate.period)).mean())
    return (place, agreement) if agreement >= AGREEMENT else None


def _offsets_of(candidate: Candidate, positions: Int64s) -> Int64s:
    """Return the template offset at every position that is inside a pass without edits.

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


def _vote_phase(symbols: SymbolArray, candidate: Candidate, evidence: Evidence) -> Phase:
    """Return the place with most votes of launch gaps, device gaps, copies, ends of inner loops and other evidence."""
    seen: dict[str, Floats] = {
        "device gap": gap_votes(candidate, evidence.gaps, 1.0),
        "end of the optimizer's loop": loop_end_votes(candidate),
        "start of the parts": part_votes(candidate),
        "optimizer kernels": optimizer_votes(candidate, evidence.optimizer),
        "bounds of the capture": capture_votes(symbols, candidate, evidence),
        "resumption after foreign kernels": relock_votes(candidate),
    }
    factor = doubts(candidate)
    votes = {name: vote * factor for name, vote in seen.items()}
    votes["host launch gap"] = gap_votes(candidate, evidence.launch_gaps, 2.0)
    votes["copy from the host"] = mark_votes(candidate, evidence.copies, 0.8)
    votes |= {
        f"host range {short(f.name)}": _family_votes(candidate, f, rank) for rank, f in _framework_ranges(evidence)
    }
    regions = layer_votes(candidate)
    favoured = _peaks(np.sum(list(votes.values()), axis=0) + regions)
    votes["interruptions between whole iterations"] = whole_votes(symbols, candidate, favoured)
    offset, most, lead = elect(np.sum(list(votes.values()), axis=0), regions)
    near = around(offset, candidate.period)
    total = sum(float(v[near].max()) for v in votes.values())
    reasons = [name for name, v in votes.items() if v[near].max() >= SAID * total > 0]
    said = ", ".join(reasons) or "no evidence on where it begins"
    return Phase(offset, "mined", 1.0, said, None, most, lead)


def _peaks(total: Floats) -> list[int]:
    """Return up to `PEAKS` places with most votes, none near another."""
    left = total.copy()
    found: list[int] = []
    while len(found) < PEAKS and left.max(initial=0.0) > 0:
        found.append(int(np.argmax(left)))
        left[around(found[-1], len(left), 2)] = 0
    return found


def elect(points: Floats, regions: Floats) -> tuple[int, float, float]:
    """Return the place with most votes, their number, and its lead; votes within 1 % of the period are added up.

    `regions` are votes for whole sections: they count where they are and are not added up.
    """
    period = len(points)
    reach = reach_of(period)
    steps = range(-reach, reach + 1)
    total = np.sum([np.roll(points, step) for step in steps], axis=0) + regions
    near = around(int(np.argmax(total)), period)
    offset = int(near[np.argmax(points[near] + 1e-3 * regions[near])])
    rest = np.delete(total, around(offset, period, 2))
    most = float(total.max())
    return offset, most, most - float(rest.max(initial=0.0))


def reach_of(period: int) -> int:
    """Return how many symbols apart two places of the period may be and still mean the same."""
    return min(max(2, int(0.01 * period)), period // 8)


def around(place: int, period: int, times: int = 1) -> Int64s:
    """Return the places of the period that are near one, the nearest first."""
    reach = min(times * reach_of(period), (period - 1) // 2)
    steps = np.arange(-reach, reach + 1)
    return np.asarray((place + steps[np.argsort(np.abs(steps), kind="stable")]) % period)


def _framework_ranges(evidence: Evidence) -> list[tuple[int, Family]]:
    """Return the framework's ranges with their rank as evidence of where an iteration begins, loading a batch first."""
    ranked = sorted(by_trust(evidence, "loop", "framework"), key=lambda f: -f.telling)
    return list(enumerate(ranked))[: len(RANGE_WEIGHTS)]


def _family_votes(candidate: Candidate, family: Family, rank: int) -> Floats:
    """Vote for the place that a framework's ranges point at, if they come once per pass."""
    votes = np.zeros(candidate.period)
    pointed = _pointed_at(candidate, family)
    if pointed is not None:
        votes[pointed[0] % candidate.period] = RANGE_WEIGHTS[rank] * pointed[1]
    return votes
