"""Which context takes more and more from iteration to iteration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deepprof.metrics.contexts.per_loop import LoopContexts

CARRIED = 0.5  # of the growth around it: the part that a named context has at least
LEAST_GROWTH = 0.2  # of its first value


@dataclass(frozen=True, slots=True)
class _GrowingContext:
    """A context that takes more of `column` in each stage of a loop than in the one before; means per iteration."""

    context: int
    column: str
    first: float
    last: float

    @property
    def growth(self) -> float:
        """How much more an iteration of the last stage has than one of the first."""
        return self.last - self.first


def find_growing(seen: LoopContexts, column: str, least: float) -> _GrowingContext | None:
    """Return the innermost context that carries the largest growth of one of `COLUMNS`, if that is at least `least`.

    It grows in every stage of the loop (`STAGES`), and by a fifth in all.
    """
    stages = seen.stages_of(column)
    if not len(stages):
        return None
    growth = stages[-1] - stages[0]
    steady = (np.diff(stages, axis=0) > 0).all(axis=0) & (growth >= LEAST_GROWTH * stages[0])
    grown = np.where(steady & (growth >= least), growth, 0.0)
    if not grown.any():
        return None
    carrying = np.flatnonzero(grown >= CARRIED * grown.max())
    found = int(carrying[np.argmax(seen.table["depth"].to_numpy()[carrying])])
    return _GrowingContext(found, column, float(stages[0, found]), float(stages[-1, found]))
