"""Where a series of measurements jumps to another level and stays there.

Change points are found by PELT with a squared cost (`ruptures`, its C implementation) on values scaled by their noise.
Outliers are first clipped to three deviations, so that they form no levels, and a jump only counts if it is large
compared to the variation between jumps.
"""

from __future__ import annotations

import math
from importlib.util import find_spec
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from deepprof.metrics.series.statistics import deviation, local_median, noise

Float64s = npt.NDArray[np.float64]

INSTALL = "pip install 'deepprof[changes]'"
MIN_LEVEL_VALUES = 5  # values on either side: four slow ones in a row are outliers
MATERIAL = 0.08  # of the level: a series that varies by a few per cent has no levels
CLEAR = 4.0  # deviations within the levels that a jump must exceed
OUTLYING = 3.0
FINEST = 0.002  # of the level: coarse clocks show less noise than there is
PENALTY = 3.0  # times log(n) for every change: a new level and its place, stricter than BIC since noise is not white
MAX_SERIES_VALUES = 20_000  # values: longer series are thinned evenly, which PELT's worst case, n², makes necessary


class LevelChange(Struct, frozen=True):
    """A jump: the index of the first value on the new level, and the medians from the last jump to the next."""

    at: int
    before: float
    after: float


def can_find_changes() -> bool:
    """Return whether the library is installed; `INSTALL` is what installs it."""
    return find_spec("ruptures") is not None


def find_changes(values: npt.ArrayLike) -> tuple[LevelChange, ...]:
    """Return the jumps of a series of positive values in order; none where the library is not installed.

    At least five values are before, between and after jumps.
    """
    series = np.asarray(values, np.float64)
    if len(series) < 2 * MIN_LEVEL_VALUES or _steady(series) or not can_find_changes():
        return ()
    unit = max(noise(series), FINEST * float(np.median(np.abs(series))), np.finfo(np.float64).tiny)
    level = local_median(series, 2 * MIN_LEVEL_VALUES - 1)
    calm = np.clip(series, level - OUTLYING * unit, level + OUTLYING * unit)
    stride = -(-len(series) // MAX_SERIES_VALUES)
    found = _segment(calm[::stride] / unit)
    return _merged(calm, [0, *(stride * at for at in found), len(series)])


def _steady(series: Float64s) -> bool:
    """Return whether no jump can be large enough to count, so that the library need not be loaded."""
    levels = local_median(series, 2 * MIN_LEVEL_VALUES - 1)  # shows any level that holds for five values
    return float(np.ptp(levels)) < MATERIAL * float(np.median(series))


def _segment(signal: Float64s) -> list[int]:
    """Return the change points of a series with unit noise."""
    from ruptures.detection.kernelcpd import KernelCPD

    found = KernelCPD(kernel="linear", min_size=MIN_LEVEL_VALUES).fit(signal.reshape(-1, 1))
    return [int(at) for at in found.predict(pen=PENALTY * math.log(len(signal)))[:-1]]


def _merged(series: Float64s, bounds: list[int]) -> tuple[LevelChange, ...]:
    """Return the changes at the inner bounds that are clear; the levels around any other bound are merged."""
    while len(bounds) > 2:
        jumps = [_weigh(series, *bounds[i : i + 3]) for i in range(len(bounds) - 2)]
        least = int(np.argmin(jumps))
        if jumps[least] >= 1:
            break
        del bounds[least + 1]
    medians = [float(np.median(series[a:b])) for a, b in pairwise(bounds)]
    return tuple(LevelChange(bounds[i + 1], medians[i], medians[i + 1]) for i in range(len(medians) - 1))


def _weigh(series: Float64s, first: int, at: int, end: int) -> float:
    """Return the jump at `at` over the least jump that counts between the levels around it."""
    before, after = series[first:at], series[at:end]
    low = min(float(np.median(before)), float(np.median(after)))
    within = math.sqrt((deviation(before) ** 2 + deviation(after) ** 2) / 2)
    least = max(MATERIAL * low, CLEAR * within, np.finfo(np.float64).tiny)
    return abs(float(np.median(after) - np.median(before))) / least
