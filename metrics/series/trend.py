"""Whether a series of measurements grows: Theil-Sen slope and Kendall's tau, both robust to outliers, and its drift."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from msgspec import Struct

MIN_TREND_VALUES = 5  # values: fewer prove nothing
SURE = 1.96  # deviations: smaller autocorrelations also occur among independent values
PART = 0.2  # of the slope: a half that rises less is level, and the series jumps in the other
MAX_POINTS = 400  # pairs are compared, so longer series are thinned evenly


class Trend(Struct, frozen=True):
    """The trend of a series.

    `slope` per value, `tau` in -1..1, `p_value` of tau under no trend (normal approximation), `growth` from the line's
    first to its last value relative to the median.
    """

    slope: float
    tau: float
    p_value: float
    growth: float


def find_trend(values: npt.ArrayLike) -> Trend | None:
    """Return the trend of at least five values, None for fewer: they prove nothing."""
    series = np.asarray(values, np.float64)
    n = len(series)
    if n < MIN_TREND_VALUES:
        return None
    at = _thin(n)
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


def _thin(count: int) -> npt.NDArray[np.int64]:
    """Return the places of a long series that are used, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, MAX_POINTS)).astype(np.int64))


def chance_of(values: npt.ArrayLike, trend: Trend) -> float:
    """Return the p-value of the trend's tau if neighbours are alike, as under a load that comes and goes.

    Kendall's S then varies more than among independent values: by an amount that follows from the autocorrelation of
    the ranks of the residuals around the line (Hamed and Rao, J. Hydrol. 204, 1998).
    """
    series = np.asarray(values, np.float64)
    at = _thin(len(series))
    n, left = len(at), series[at] - trend.slope * at
    score = abs(trend.tau) * math.sqrt(9 * n * (n - 1) / (2 * (2 * n + 5)))
    return math.erfc(score / math.sqrt(2 * _inflation(left)))


def _inflation(left: npt.NDArray[np.float64]) -> float:
    """Return the variance of Kendall's S over that among independent values, at least 1."""
    n = len(left)
    ranks = np.argsort(np.argsort(left, kind="stable"), kind="stable") - (n - 1) / 2
    lag = np.arange(1, n - 2)
    alike = np.correlate(ranks, ranks, "full")[n : n + len(lag)] / max(1.0, float(ranks @ ranks))
    alike[np.abs(alike) < SURE / math.sqrt(n)] = 0
    weight = (n - lag) * (n - lag - 1) * (n - lag - 2)
    return max(1.0, 1 + 2 * float(weight @ alike) / (n * (n - 1) * (n - 2)))


def chance_of_drift(values: npt.ArrayLike) -> float:
    """Return the most that the chance can be of ending so far above the first value without drift.

    Without drift each step goes down as likely as up, however the sizes of steps differ. A sum of numbers with random
    signs is t times the root of their sum of squares, or more, with a chance of at most exp(-t²/2) (Hoeffding, J. Am.
    Stat. Assoc. 58, 1963, theorem 2). A walk without drift often has a trend by Kendall's tau; a series that scatters
    around its level, or falls back, ends even nearer to where it began. 1 for fewer than two values.
    """
    steps = np.diff(np.asarray(values, np.float64))
    risen, squares = float(steps.sum()), float(steps @ steps)
    return math.exp(-(risen**2) / (2 * squares)) if risen > 0 else 1.0


def rises_throughout(values: npt.ArrayLike, trend: Trend) -> bool:
    """Return whether either half rises by a good part of the slope: after a jump one of them is level."""
    series = np.asarray(values, np.float64)
    middle = len(series) // 2
    return min(_theil_sen(series[: len(series) - middle]), _theil_sen(series[middle:])) >= PART * trend.slope


def _theil_sen(series: npt.NDArray[np.float64]) -> float:
    """Return the median slope between any two of the values, 0 for fewer than two."""
    at = _thin(len(series))
    i, j = np.triu_indices(len(at), 1)
    return float(np.median((series[at[j]] - series[at[i]]) / (at[j] - at[i]))) if len(i) else 0.0
