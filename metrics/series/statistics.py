"""Robust statistics of few, noisy measurements: medians with intervals, spreads that outliers do not move.

Intervals are bootstrapped: the sample represents its source and is resampled. The median of `n` values drawn
with replacement is the value at a random rank, whose distribution is known (order statistics of uniform numbers), so
that ranks are drawn instead of samples: the same result at a cost that does not depend on `n`.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Float64s = npt.NDArray[np.float64]

MIN_MEDIAN_VALUES = 5  # values: the median is between the extremes of fewer in less than 95 of 100 cases
RESAMPLES = 10_000  # at least 25 of them are beyond either end of the interval
SEED = 20260  # the same interval on every run
NORMAL = 1.4826  # a normal distribution's standard deviation over its median absolute deviation
Z = 1.959964  # standard deviations of a normal distribution that 95 % are within


def bootstrap_median(values: npt.ArrayLike) -> tuple[float, float] | None:
    """Return the 95 % interval of the median, in the values' unit; None for fewer than five values.

    The values are taken to be independent; correlated values would need a wider interval.
    """
    series = np.sort(np.asarray(values, np.float64))
    if len(series) < MIN_MEDIAN_VALUES:
        return None
    return _bounds_of(resampled_medians(series, np.random.default_rng(SEED)), len(series))


def bootstrap_change(
    before: npt.ArrayLike, after: npt.ArrayLike, *, relative: bool = True
) -> tuple[float, float] | None:
    """Return the 95 % interval of the median's change: 0.1 for a tenth more, or the difference unless `relative`.

    None where either side has fewer than five values, or a relative change starts at a median of 0 or less.
    """
    first, second = (np.sort(np.asarray(side, np.float64)) for side in (before, after))
    if min(len(first), len(second)) < MIN_MEDIAN_VALUES:
        return None
    random = np.random.default_rng(SEED)
    old, new = resampled_medians(first, random), resampled_medians(second, random)
    both = len(first) + len(second) - 1
    if not relative:
        return _bounds_of(new - old, both)
    return _bounds_of(new / old - 1, both) if old.min() > 0 else None


def resampled_medians(ordered: Float64s, random: np.random.Generator) -> Float64s:
    """Return the medians of `RESAMPLES` samples drawn from sorted values with replacement."""
    n, middle = len(ordered), (len(ordered) + 1) // 2
    rank = random.beta(middle, n + 1 - middle, RESAMPLES)  # of n uniform numbers, the `middle`-th smallest
    lower = ordered[np.minimum((rank * n).astype(np.int64), n - 1)]
    if n % 2:
        return np.asarray(lower)
    following = rank + (1 - rank) * random.beta(1, n - middle, RESAMPLES)  # the smallest of those above it
    return np.asarray((lower + ordered[np.minimum((following * n).astype(np.int64), n - 1)]) / 2)


def _bounds_of(resampled: Float64s, n: int) -> tuple[float, float]:
    """Return the ends of the interval that holds 95 % of the resampled values, widened if `n` is small.

    A small sample scatters less than its source. The expanded percentile interval (Hesterberg 2015, "What Teachers
    Should Know About the Bootstrap") takes the quantiles of Student's t instead of the normal ones.
    """
    free = n - 1
    student = Z + (Z**3 + Z) / (4 * free) + (5 * Z**5 + 16 * Z**3 + 3 * Z) / (96 * free**2)
    tail = math.erfc(student * math.sqrt(n / free) / math.sqrt(2)) / 2
    low, high = np.quantile(resampled, (tail, 1 - tail))
    return float(low), float(high)


def deviation(values: npt.ArrayLike) -> float:
    """Return the standard deviation estimated from the middle half of the values; 0 without values."""
    series = np.asarray(values, np.float64)
    return NORMAL * float(np.median(np.abs(series - np.median(series)))) if len(series) else 0.0


def noise(values: npt.ArrayLike) -> float:
    """Return the standard deviation from one value to the next, which neither shifts nor trends increase."""
    steps = np.diff(np.asarray(values, np.float64))
    return NORMAL * float(np.median(np.abs(steps))) / math.sqrt(2) if len(steps) else 0.0


def local_median(values: npt.ArrayLike, width: int) -> Float64s:
    """Return for every value the median of the `width` values around it; at the ends, of the first or last `width`."""
    series = np.asarray(values, np.float64)
    if not len(series):
        return series
    width = min(width, len(series))
    medians = np.median(np.lib.stride_tricks.sliding_window_view(series, width), axis=1)
    at = np.clip(np.arange(len(series)) - width // 2, 0, len(medians) - 1)
    return np.asarray(medians[at])
