"""Detect that a loop becomes another one: from some iteration on all differ in the same way (other model, more layers).

Growth is not such a change: it comes a kernel at a time, however far it goes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from deepprof.mining.iterations import Iterations

__all__ = ["find_strangers"]

STRANGE = 0.1  # of the period that is edited, or added or missing up to the next iteration; variants have less
JUMP = 0.05  # of the period: growth adds less at a time
IN_A_ROW = 3


def find_strangers(rows: Iterations, period: int) -> npt.NDArray[np.bool_]:
    """Return which iterations belong to stretches of three or more that differ strongly, beginning with a jump."""
    longer = np.append(np.diff(rows.first) - period, 0)[: len(rows.first)]
    odds = np.where(rows.complete, np.maximum(rows.edits, np.abs(longer)), period)
    strange = odds > STRANGE * period
    before = np.append(0, odds[:-1])
    begins = np.flatnonzero(strange & ~np.append(False, strange[:-1]))
    found: npt.NDArray[np.bool_] = np.zeros(len(strange), bool)
    for begin in begins.tolist():
        ordinary = np.flatnonzero(~strange[begin:])
        end = begin + (int(ordinary[0]) if len(ordinary) else len(strange) - begin)
        jumped = odds[begin] - before[begin] > JUMP * period
        found[begin:end] = end - begin >= IN_A_ROW and jumped
    return found
