"""What made-up jobs consist of: kernels with their times, and the names that they are called by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

KERNEL = np.dtype([("symbol", np.int64), ("duration_us", np.float64), ("gap_us", np.float64)])
"""One kernel; `gap_us` is how long the stream usually idles before it."""

Kernels: TypeAlias = npt.NDArray[np.void]
Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]

NONE: Kernels = np.zeros(0, KERNEL)
DURATION_US = (2.0, 1.0)  # median's logarithm and spread of a kernel's time …
GAP_US = (0.3, 0.5)  # … and of the idle time before it, as on a device that the host keeps busy
NAMES_PER_KERNEL = 0.6  # a block's own kernels repeat some of its own names


class Names:
    """The kernel names of one job as symbols 0, 1, …, each with its coarse symbol: the one it is a variant of.

    `coarse[s]` represents what is left of name `s` without its template arguments.
    """

    def __init__(self, coarse: Iterable[int] = ()) -> None:
        self.coarse = list(coarse)
        self.optimizer: set[int] = set()
        self._variants: dict[tuple[int, int], int] = {}

    def new(self, count: int) -> Ints:
        """Return names that nothing has had so far."""
        first = len(self.coarse)
        self.coarse += range(first, first + count)
        return np.arange(first, first + count)

    def variant(self, symbol: int, which: int) -> int:
        """Return the `which`-th variant of a kernel; the same one each time, and the kernel itself for 0."""
        if which == 0:
            return symbol
        if (symbol, which) not in self._variants:
            self._variants[symbol, which] = len(self.coarse)
            self.coarse.append(self.coarse[symbol])
        return self._variants[symbol, which]

    def variants(self, symbols: Ints, which: int) -> Ints:
        """Return that variant of every symbol."""
        different, index = np.unique(symbols, return_inverse=True)
        return np.array([self.variant(s, which) for s in different.tolist()], np.int64)[index]


def kernels_of(symbols: Ints, rng: np.random.Generator) -> Kernels:
    """Return kernels with times drawn for each of them."""
    made = np.zeros(len(symbols), KERNEL)
    made["symbol"] = symbols
    made["duration_us"] = rng.lognormal(*DURATION_US, len(symbols))
    made["gap_us"] = rng.lognormal(*GAP_US, len(symbols))
    return made


def draw_block(size: int, shared: Ints, own: float, names: Names, rng: np.random.Generator) -> Kernels:
    """Return a block of `size` kernels: a share of its own names, the others shared, the first of them mostly.

    Element-wise additions and copies are everywhere; the matrix products of a layer are its own.
    """
    if size == 0:
        return NONE
    is_own = rng.random(size) < own
    pool = names.new(max(1, round(size * own * NAMES_PER_KERNEL)))
    likely = 1.0 / np.arange(1, len(shared) + 1)
    common = rng.choice(shared, size, p=likely / likely.sum())
    return kernels_of(np.where(is_own, rng.choice(pool, size), common), rng)


def join(parts: Iterable[Kernels]) -> Kernels:
    """Return the parts one after the other."""
    return np.concatenate([NONE, *parts])


def with_gap(kernels: Kernels, place: int, gap_us: float) -> Kernels:
    """Return the kernels with a longer pause before the one at `place`."""
    paused = kernels.copy()
    if len(paused):
        paused["gap_us"][place] += gap_us
    return paused
