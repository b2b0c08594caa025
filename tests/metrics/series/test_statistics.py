"""Intervals and robust spreads against brute force and known distributions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.metrics.series.statistics import (
    bootstrap_change,
    bootstrap_median,
    deviation,
    local_median,
    noise,
    resampled_medians,
)

VALUES = st.lists(st.integers(1, 10**9), min_size=5, max_size=60)


@given(VALUES)
def test_the_interval_of_a_median_contains_it_and_lies_within_the_values(values: list[int]) -> None:
    interval = bootstrap_median(values)
    assert interval is not None
    assert min(values) <= interval[0] <= np.median(values) <= interval[1] <= max(values)


@pytest.mark.parametrize("n", [7, 20, 31])
def test_it_covers_the_true_median_in_about_95_of_100_cases(n: int) -> None:
    rng = np.random.default_rng(n)
    intervals = [bootstrap_median(rng.normal(100, 5, n)) for _ in range(600)]
    covered = sum(i is not None and i[0] <= 100 <= i[1] for i in intervals) / 600
    assert 0.93 <= covered <= 0.99  # seven values have no interval between 87.5 % and 98.4 %


@pytest.mark.parametrize("n", [6, 7, 24, 25])
def test_drawing_ranks_is_drawing_samples(n: int) -> None:
    rng = np.random.default_rng(1)
    values = np.sort(rng.lognormal(3, 0.5, n))
    drawn = np.median(rng.choice(values, (40_000, n)), axis=1)
    ranked = resampled_medians(values, rng)
    levels = np.linspace(0.02, 0.98, 25)
    at = np.quantile(drawn, levels)
    # The same distribution function: 10,000 draws are within 0.02 of it (Kolmogorov, one chance in 1500).
    assert np.abs((ranked[:, None] <= at).mean(axis=0) - (drawn[:, None] <= at).mean(axis=0)).max() < 0.02


def test_the_same_values_have_the_same_interval_in_any_order() -> None:
    values = np.random.default_rng(2).normal(10, 1, 40)
    assert bootstrap_median(values) == bootstrap_median(values[::-1])


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0, 3.0, 4.0]])
def test_few_values_have_no_interval(values: list[float]) -> None:
    assert bootstrap_median(values) is None
    assert bootstrap_change(values, [1.0] * 9) is None
    assert bootstrap_change([1.0] * 9, values) is None


def test_a_million_values_cost_no_more_than_sorting_them() -> None:
    values = np.random.default_rng(3).normal(1000, 100, 1_000_000)
    found = bootstrap_median(values)
    assert found is not None
    assert 999 < found[0] < 1000 < found[1] < 1001


@pytest.mark.parametrize("true", [-0.2, 0.0, 0.25])
def test_the_interval_of_a_change_covers_it(true: float) -> None:
    rng = np.random.default_rng(4)
    pairs = [(rng.normal(100, 3, 12), rng.normal(100 * (1 + true), 3, 15)) for _ in range(300)]
    found = [bootstrap_change(a, b) for a, b in pairs]
    assert 0.9 <= sum(f is not None and f[0] <= true <= f[1] for f in found) / 300 <= 0.995


def test_the_difference_is_in_the_values_unit() -> None:
    assert bootstrap_change([10.0] * 8, [13.0] * 6, relative=False) == (3.0, 3.0)
    assert bootstrap_change([10.0] * 8, [13.0] * 6) == pytest.approx((0.3, 0.3))
    assert bootstrap_change([0.0] * 8, [13.0] * 6) is None
    assert bootstrap_change([0.0] * 8, [13.0] * 6, relative=False) == (13.0, 13.0)


def test_spreads_of_normal_values_are_their_standard_deviation() -> None:
    values = np.random.default_rng(5).normal(50, 4, 20_000)
    assert deviation(values) == pytest.approx(4, rel=0.03)
    assert noise(values) == pytest.approx(4, rel=0.03)


def test_a_shift_or_a_trend_is_no_noise() -> None:
    rng = np.random.default_rng(6)
    values = rng.normal(50, 1, 400)
    shifted = values + np.repeat([0, 40], 200)
    assert noise(shifted) == pytest.approx(1, rel=0.2)
    assert noise(values + np.linspace(0, 40, 400)) == pytest.approx(1, rel=0.2)
    assert deviation(shifted) > 10


def test_spreads_of_nothing_and_of_one_value_are_zero() -> None:
    assert deviation([]) == noise([]) == deviation([3]) == noise([3]) == 0


@given(st.lists(st.integers(-1000, 1000), max_size=40), st.integers(1, 15))
def test_local_medians_are_those_of_the_nearest_full_window(values: list[int], width: int) -> None:
    found, n = local_median(values, width), len(values)
    for i in range(n):
        first = min(max(0, i - min(width, n) // 2), n - min(width, n))
        assert found[i] == np.median(values[first : first + width])
