"""What may be known beside the symbols: times, copies and host ranges, all as arrays along the sequence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

__all__ = ["Evidence", "Family", "Trust", "short"]

Trust = Literal["step", "range", "framework"]


@dataclass(frozen=True, slots=True)
class Family:
    """Host ranges of one name: `positions[j]` is the first symbol launched after the j-th of them began (or ended).

    `trust` says who wrote them: `step` a user's step marker, `range` any other range of the user, `framework` the
    framework itself. `coverage` is the share of the time from the first to the last that they fill.
    """

    name: str
    trust: Trust
    positions: npt.NDArray[np.int64]
    coverage: float = 0.0


def short(name: str) -> str:
    """Return a range's name cut to what fits into a sentence."""
    return name if len(name) <= 40 else name[:39].rstrip() + "…"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Optional arrays of length n along the symbols, and host ranges; all of it may be missing.

    `gaps` is idle device time before each symbol, `launch_gaps` host time before its launch (any unit, both ≥ 0),
    `copies` marks symbols that follow a copy from or to the host, `syncs` those launched after the host had waited
    for the device, `graphs` those that are a whole graph launch. `optimizer` marks symbol values (not positions)
    whose names look like an optimizer's. `start` is the first symbol that was launched while the capture ran:
    profilers are switched on between iterations, but the device may still be busy with the one before.
    """

    gaps: npt.NDArray[np.float64] | None = None
    launch_gaps: npt.NDArray[np.float64] | None = None
    copies: npt.NDArray[np.bool_] | None = None
    syncs: npt.NDArray[np.bool_] | None = None
    graphs: npt.NDArray[np.bool_] | None = None
    optimizer: npt.NDArray[np.bool_] | None = None
    families: tuple[Family, ...] = field(default=())
    start: int = 0

    def window(self, n: int) -> Evidence:
        """Return the same evidence on the first `n` symbols only."""

        def cut(a: npt.NDArray[np.float64] | None) -> npt.NDArray[np.float64] | None:
            return None if a is None else a[:n]

        def cut_mark(a: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.bool_] | None:
            return None if a is None else a[:n]

        families = tuple(Family(f.name, f.trust, f.positions[f.positions < n], f.coverage) for f in self.families)
        return Evidence(
            cut(self.gaps),
            cut(self.launch_gaps),
            cut_mark(self.copies),
            cut_mark(self.syncs),
            cut_mark(self.graphs),
            self.optimizer,
            families,
            self.start,
        )
