"""Whether a series of measurements grows: Theil-Sen slope and Kendall's tau, both robust to outliers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Trend", "find_trend"]

MAX_POINTS = 400  # pairs are compared, so longer series are thinned evenly


@dataclass(frozen=True, slots=True)
class Trend:
    """`slope` per step, `tau` in -1..1, `p_value` of tau under no trend (normal approximation), `growth` from the
    line's first to its last value relative to the median.
    """

    slope: float
    tau: float
    p_value: float
    growth: float


def find_trend(values: npt.ArrayLike) -> Trend | None:
    """Return the trend of at least five values, None for fewer: they prove nothing."""
    series = np.asarray(values, np.float64)
    n = len(series)
    if n < 5:
        return None
    at = np.unique(np.linspace(0, n - 1, min(n, MAX_POINTS)).astype(int))
    points, m = series[at], len(at)
    i, j = np.triu_indices(m, 1)
    rise = points[j] - points[i]
    slope = float(np.median(rise / (at[j] - at[i])))
    score = float(np.sign(rise).sum())
    deviation = math.sqrt(m * (m - 1) * (2 * m + 5) / 18)
    p_value = math.erfc(abs(score) / deviation / math.sqrt(2))
    middle = float(np.median(series))
    growth = slope * (n - 1) / middle if middle > 0 else 0.0
    return Trend(slope, score / (m * (m - 1) / 2), p_value, growth)
