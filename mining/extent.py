"""How a repetition lies in the capture: what it covers, how steady it is in time, what runs before and after it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepprof.mining.candidates import Candidate
from deepprof.mining.evidence import Evidence
from deepprof.mining.symbols import SymbolArray

NEAR = 0.5  # of the median pass's time: a pass within that takes as long as the others


@dataclass(frozen=True, slots=True)
class Extent:
    """The share of a window that the passes of a candidate take, and what frames them.

    `covered` is of the kernels or of their time, whichever is less. `steady` is the share of the passes in which the
    device works about as long as in the median one, 0 where times are not known. `sides` counts the ends of the
    capture (0 to 2) at which kernels run that no pass has, as an embedding and a head frame the layers of a model.
    """

    covered: float
    steady: float
    sides: int


def measure_extent(candidate: Candidate, evidence: Evidence) -> Extent:
    """Return the extent of a candidate in the window that `evidence` is on."""
    template = candidate.template.symbols
    sides = (_is_foreign(candidate.before, template), _is_foreign(candidate.after, template))
    if evidence.durations is None or not candidate.good.any():
        return Extent(candidate.coverage, 0.0, sum(sides))
    worked = work_of_passes(candidate, evidence.durations)
    covered = float(worked.sum()) / max(1.0, float(evidence.durations.sum()))
    usual = float(np.median(worked))
    steady = float((np.abs(worked - usual) <= NEAR * usual).mean())
    return Extent(min(candidate.coverage, covered), steady, sum(sides))


def work_of_passes(candidate: Candidate, durations: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return how long the device works in each good pass."""
    done = np.append(0.0, np.cumsum(durations))
    m, good = candidate.matches, candidate.good
    return np.asarray(done[m.end[good]] - done[m.first[good]])


def _is_foreign(outside: SymbolArray | None, template: SymbolArray) -> bool:
    """Return whether any kernel outside the passes runs in none of them."""
    return outside is not None and not bool(np.isin(outside, template).all())
