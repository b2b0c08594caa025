"""What a scenario gives to the machine: the steps of every iteration, and the truth about what was planted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from deepprof.simulation.steps import Step

if TYPE_CHECKING:
    from random import Random


class SimulationRequest(Struct, frozen=True, kw_only=True):
    """The requested simulation. Every rank draws the same from `random`, so that all of them run the same program."""

    random: Random
    iterations: int
    strength: float
    rank: int = 0
    ranks: int = 1


class RankPlan(Struct, frozen=True, kw_only=True):
    """One rank's program: `build` gives the steps of iteration 0, 1 …; -1 is the one before the capture.

    `warmup` counts the iterations that differ at the beginning; `pace` and `slowness` are the machine's. The rest is
    the truth: `slow_iterations` last much longer than others from start to start, kernels are slower from iteration
    `change_at` on, `slow_rank` makes the others wait.
    """

    build: Callable[[int], Iterable[Step]]
    warmup: int = 1
    pace: float = 1.0
    slowness: float = 1.0
    slow_iterations: tuple[int, ...] = ()
    change_at: int | None = None
    slow_rank: int | None = None
