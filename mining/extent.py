"""How a repetition is in the capture: what it covers, how steady it is in time, what runs before and after it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepprof.mining.candidates import Candidate
from deepprof.mining.evidence import Evidence
from deepprof.mining.nesting import LAYER
from deepprof.mining.symbols import SymbolArray

PAUSE = 10.0  # times the usual distance of passes that separates bursts of them
ENDS = 2  # of a capture
PARTED = 0.25  # of a period, in other kernels: what is between layers of two passes
LAYER_EDITS = 0.0005  # edits per symbol: layers are equal except for a few kernels
NEAR = 2.0  # times the median pass's time, or that part of it: clocks rise, and first passes load code


@dataclass(frozen=True, slots=True)
class Extent:
    """The share of a window that the passes of a candidate take, and what frames them.

    `covered` is of the kernels or of their time, whichever is less, `within` the same between the first and the last
    pass. `steady` is the share of the passes in which the device works about as long as in the median one, 0 where
    times are unknown. `sides` counts the ends of the capture (0 to 2) at which kernels run that no pass has, as an
    embedding and a head frame the layers of a model. Both are there where other kernels part the passes: the capture
    then begins and ends within passes of a model.
    """

    covered: float
    within: float
    steady: float
    sides: int


def measure_extent(candidate: Candidate, evidence: Evidence) -> Extent:
    """Return the extent of a candidate in the window that `evidence` is on."""
    good = candidate.good
    sides = ENDS if _is_parted(candidate) else sum(_find_sides(candidate, evidence.length))
    if not good.any():
        return Extent(0.0, 0.0, 0.0, sides)
    first, end = int(candidate.matches.first[good][0]), int(candidate.matches.end[good][-1])
    within = float(candidate.matches.matched[good].sum()) / max(1, end - first)
    if evidence.durations is None:
        return Extent(candidate.coverage, within, 0.0, sides)
    worked, durations = _work_of_passes(candidate, evidence.durations), evidence.durations
    usual, total = float(np.median(worked)), float(worked.sum())
    return Extent(
        min(candidate.coverage, total / max(1.0, float(durations.sum()))),
        min(within, total / max(1.0, float(durations[first:end].sum()))),
        float(((worked * NEAR >= usual) & (worked <= NEAR * usual)).mean()),
        sides,
    )


def burst_size(candidate: Candidate, evidence: Evidence, fewest: int) -> int:
    """Return how many passes each burst has, 0 where they come in fewer bursts or in bursts of different sizes.

    Between bursts is more time than in them: they are parts of something longer. A stall or two leave different
    numbers of passes between them.
    """
    starts = _starts_of_passes(candidate, evidence)
    apart = np.diff(starts)
    if not len(apart):
        return 0
    pauses = apart > PAUSE * float(np.median(apart))
    bounds = np.concatenate([[0], np.flatnonzero(pauses) + 1, [len(starts)]])
    sizes = np.diff(bounds)
    longer = float(apart[pauses].sum()) > float(apart[~pauses].sum())
    equal = len(sizes) >= fewest and sizes.min() == sizes.max() > 1
    return int(sizes[0]) if longer and equal else 0


def _starts_of_passes(candidate: Candidate, evidence: Evidence) -> npt.NDArray[np.float64]:
    """Return when the good passes begin; none where times are unknown."""
    if evidence.durations is None or evidence.gaps is None:
        return np.zeros(0)
    ends = np.cumsum(evidence.gaps + evidence.durations)
    first = candidate.matches.first[candidate.good]
    return np.asarray((ends - evidence.durations)[first])


def _work_of_passes(candidate: Candidate, durations: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return how long the device works in every good pass."""
    done = np.append(0.0, np.cumsum(durations))
    m, good = candidate.matches, candidate.good
    return np.asarray(done[m.end[good]] - done[m.first[good]])


def _is_parted(candidate: Candidate) -> bool:
    """Return whether somewhere this many other kernels part the passes as a head and an embedding have."""
    first, end = candidate.matches.first[candidate.good], candidate.matches.end[candidate.good]
    added = np.append(first[1:] - end[:-1], (end - first - candidate.period)[1:-1])
    return bool(added.max(initial=0) >= max(LAYER, PARTED * candidate.period))


def _find_sides(candidate: Candidate, length: int) -> tuple[bool, bool]:
    """Return at which ends of a sequence kernels run that no pass has, or in an order that no pass has.

    Where passes differ from each other, a few kernels at an end may belong to one.
    """
    template, good = candidate.template.symbols, candidate.good
    first = int(candidate.matches.first[good][0]) if good.any() else length
    end = int(candidate.matches.end[good][-1]) if good.any() else 0
    if len(candidate.exact):
        first, end = min(first, candidate.left), max(end, candidate.right)
    least = LAYER if candidate.edit_share > LAYER_EDITS else 1
    before, after = candidate.before, candidate.after
    return first >= least or _is_foreign(before, template), length - end >= least or _is_foreign(after, template)


def _is_foreign(outside: SymbolArray | None, template: SymbolArray) -> bool:
    """Return whether any kernel outside the passes runs in none of them."""
    return outside is not None and not bool(np.isin(outside, template).all())
