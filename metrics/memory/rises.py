"""Memory that iterations leave in use, and that rises: steadily, or on the whole, where it varies as well.

What is in use between iterations varies where an allocator counts whole blocks, and where batches differ. So a leak may
be smaller than the difference of two iterations, and is found by where many of them lead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from deepprof.collectors.trace import Trace
from deepprof.metrics.loop import Loop
from deepprof.metrics.memory.floors import find_floors
from deepprof.metrics.series.growth import CHANCE, MIN_GROWTH_ITERATIONS
from deepprof.metrics.series.trend import Trend, chance_of, chance_of_drift, find_trend, rises_throughout

MEMORY_GROWTH = 0.05  # of what is in use, over the capture
LEAK_NBYTES = 64 << 20  # per iteration: a GPU of 80 GB is full after 1200
RISING = 0.9  # least share of the iterations that leave at least as much as the one before
RISING_MORE = 0.5  # least share of those that leave more
KEPT = 0.5  # of all rises together, more is still there at the end
LASTING = 0.2  # least share of the growth in the second half: caches and workspaces fill in the first
UNDIMINISHED = 1 / 3  # the same where memory varies as well: half as much as in the first half
FEWEST_OF_LITTLE = 20  # iterations: a small rise in fewer may be a cache that is not full yet

Int64s = npt.NDArray[np.int64]


class _MemoryRise(Struct, frozen=True):
    """Memory that iterations do not free: this many bytes per iteration, and over all that were examined.

    `certainty` is that of a `LevelRise`.
    """

    per_iteration: float
    grown: int
    certainty: float
    bounds: tuple[int, int]


class LevelRise(NamedTuple):
    """By how much a level rises, per value (Theil and Sen) and over all, and how certain that is, in 0.5 … 1.

    That is the share of values that are no less than the one before; where the level varies as well, the share of pairs
    of which the later is more.
    """

    per_value: float
    grown: int
    certainty: float


def find_memory_growth(
    loop: Loop, trace: Trace, is_much: Callable[[float], bool] = lambda _: False
) -> _MemoryRise | None:
    """Return the growth of what iterations leave in use, unless it stops, or comes and goes.

    It must be a good part of what is in use, or in many iterations this many bytes for each that `is_much`.
    """
    floors = find_floors(loop, trace)
    rise = None if floors is None else find_rise(floors.nbytes)
    if floors is None or rise is None:
        return None
    count, first = len(floors.nbytes), int(floors.nbytes[0]) if floors.absolute else None
    is_large = _is_large(rise.grown, count - 1, first)
    if not is_large and not (count >= FEWEST_OF_LITTLE and is_much(rise.per_value)):
        return None
    return _MemoryRise(*rise[:2], rise.certainty, (int(floors.index[0]), int(floors.index[-1])))


def find_rise(nbytes: Int64s) -> LevelRise | None:
    """Return by how much a level rises from iteration to iteration, None where it does not, or not to the end."""
    trend = find_trend(nbytes)
    if len(nbytes) < MIN_GROWTH_ITERATIONS or trend is None or trend.slope <= 0 or not _lasts(nbytes, LASTING):
        return None
    return _rise_steadily(nbytes, trend) or _rise_on_the_whole(nbytes, trend)


def _rise_steadily(nbytes: Int64s, trend: Trend) -> LevelRise | None:
    """Return the rise where nearly all iterations leave no less in use than the one before, and the others little less.

    A cache that is emptied now and then rises in nearly all iterations, too, and gives back what it needed.
    """
    steps = np.diff(nbytes)
    rising, grown = float((steps >= 0).mean()), int(nbytes[-1] - nbytes[0])
    is_kept = grown > KEPT * int(steps.clip(min=0).sum())
    if not is_kept or rising < RISING or float((steps > 0).mean()) < RISING_MORE:
        return None
    return LevelRise(trend.slope, grown, rising)


def _rise_on_the_whole(nbytes: Int64s, trend: Trend) -> LevelRise | None:
    """Return the rise where memory varies as well, and neither chance nor a walk without aim leads as far up.

    A cache that has something for every shape of a batch rises now and then, less and less often.
    """
    if not _lasts(nbytes, UNDIMINISHED) or not _is_certain(nbytes, trend):
        return None
    return LevelRise(trend.slope, round(trend.slope * (len(nbytes) - 1)), (1 + trend.tau) / 2)


def _is_certain(nbytes: Int64s, trend: Trend) -> bool:
    """Return whether a trend is neither of neighbours that are alike, nor of a walk, nor of a part alone."""
    chance = max(chance_of_drift(nbytes), chance_of(nbytes, trend))
    return chance < CHANCE and rises_throughout(nbytes, trend)


def _lasts(nbytes: Int64s, share: float) -> bool:
    """Return whether at least such a share of the growth is in the second half."""
    return int(nbytes[-1] - nbytes[len(nbytes) // 2]) >= share * int(nbytes[-1] - nbytes[0])


def _is_large(grown: int, steps: int, first: int | None) -> bool:
    """Return whether memory has grown by a good part of what was in use at `first` (None: unknown), or by much."""
    return grown >= LEAK_NBYTES * steps or (first is not None and grown >= MEMORY_GROWTH * first)
