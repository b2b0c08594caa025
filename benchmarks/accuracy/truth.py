"""A made-up job as the miner gets it, and the truth that it does not get."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.accuracy.kernels import Floats, Ints


@dataclass(frozen=True)
class Truth:
    """One loop: its iteration `j` is the symbols [starts[j], ends[j]).

    The capture may have begun or ended within an iteration: that one is not `whole`, and its start is negative or its
    end beyond the sequence. `period` is the typical length without random noise; an iteration that grows goes from
    `shortest` to `longest`, for all others these equal the period.
    """

    starts: Ints
    ends: Ints
    whole: npt.NDArray[np.bool_]
    period: int
    shortest: int
    longest: int


@dataclass(frozen=True)
class Cycle:
    """What comes back every this many iterations, and how many kernels that adds."""

    every: int
    extra: int
    kind: str


@dataclass(frozen=True)
class Made:
    """A sequence of symbols with its truth: a row per loop, none for a sequence that has no loop.

    `asides` are loops that are there as well, but that no one has to find: the passes of an evaluation. `coarse` gives
    for every symbol the one that it is a variant of, `optimizer` whether it is a kernel of the optimizer; `gaps` is
    idle time before each kernel, `copies` and `syncs` mark kernels that follow a copy from the host or a wait. `micro`
    is the length of a micro-batch, where there are several each."""

    symbols: Ints
    truths: tuple[Truth, ...]
    coarse: Ints
    asides: tuple[Truth, ...] = ()
    gaps: Floats | None = None
    durations: Floats | None = None
    copies: npt.NDArray[np.bool_] | None = None
    syncs: npt.NDArray[np.bool_] | None = None
    optimizer: npt.NDArray[np.bool_] | None = None
    cycles: tuple[Cycle, ...] = ()
    micro: int | None = None


def without_loop(symbols: Ints) -> Made:
    """Return a sequence in which there is nothing to find."""
    return Made(symbols, (), np.arange(int(symbols.max(initial=0)) + 1))
