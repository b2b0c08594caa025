"""Slow iterations against planted ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from deepprof.metrics.series.outliers import find_outliers, split_cycles
from tests.chance import examples
from tests.loops import MS, make_loop


@settings(max_examples=examples(60))
@given(st.integers(0, 10_000), st.integers(12, 80), st.floats(1.4, 8), st.integers(1, 3))
def test_planted_ones_are_found_and_no_others(seed: int, n: int, factor: float, count: int) -> None:
    rng = np.random.default_rng(seed)
    times = rng.normal(100, 1.5, n)
    planted = np.sort(rng.choice(n, count, replace=False))
    times[planted] *= factor
    found = find_outliers(make_loop(times.tolist()))
    assert found is not None
    assert found.rows["index"].to_list() == planted.tolist()
    assert found.extra_ns == pytest.approx((times[planted] - 100).sum() * MS, rel=0.15)


@pytest.mark.parametrize(
    "times",
    [
        [100.0] * 30,
        [100.0 + 3 * i for i in range(40)],  # a trend
        [100.0] * 20 + [140.0] * 12,  # a shift
        [90.0, 110.0] * 15,
        [100.0] * 15 + [115.0] + [100.0] * 15,  # clear, but small
    ],
    ids=["constant", "trend", "shift", "alternating", "small"],
)
def test_what_is_no_outlier(times: list[float]) -> None:
    found = find_outliers(make_loop(times))
    assert found is not None
    assert found.rows.height == 0
    assert found.share == found.headroom_ns == 0


@pytest.mark.parametrize("times", [[], [9.0], [1.0, 1.0, 1.0, 9.0, 1.0, 1.0, 1.0]])
def test_few_iterations_have_no_outliers(times: list[float]) -> None:
    assert find_outliers(make_loop(times)) is None


def test_warmup_is_none() -> None:
    found = find_outliers(make_loop([900.0, 300.0] + [100.0] * 12, warmup=2))
    assert found is not None
    assert (found.iterations, found.rows.height) == (12, 0)


def test_noise_is_seldom_an_outlier() -> None:
    rng = np.random.default_rng(11)
    found = [find_outliers(make_loop(rng.normal(100, 5, 30).tolist())) for _ in range(100)]
    assert sum(f is not None and f.rows.height > 0 for f in found) <= 3


def test_the_differences_are_from_the_ordinary_ones() -> None:
    times = [100.0] * 10 + [160.0] + [100.0] * 10
    loop = make_loop(
        times,
        idle_input_ns=[5.0] * 10 + [62.0] + [5.0] * 10,
        kernels=[100.0] * 10 + [107.0] + [100.0] * 10,
        allocations=[2.0] * 10 + [5.0] + [2.0] * 10,
    )
    found = find_outliers(loop)
    assert found is not None
    (row,) = found.rows.to_dicts()
    assert (row["index"], row["idle_input_ns"], row["compute_ns"]) == (10, 57 * MS, 3 * MS)
    assert (row["kernels"], row["allocations"], row["launches"]) == (7, 3, 0)
    assert found.headroom_ns == pytest.approx(60 * MS / 21)


def test_a_cycle_takes_what_lies_on_its_beat() -> None:
    times = [100.0] * 40
    for at in (9, 19, 29, 39, 24):
        times[at] = 200.0
    loop = replace(make_loop(times), cycles=({"every": 10, "extra_events": 90, "kind": "evaluation"},))
    found = find_outliers(loop)
    assert found is not None
    irregular, regular, every = split_cycles(loop, found)
    assert every == 10
    assert irregular.rows["index"].to_list() == [24]
    assert regular.rows["index"].to_list() == [9, 19, 29, 39]
    assert regular.iterations == irregular.iterations == 40


def test_a_cycle_does_not_explain_what_comes_without_rhythm() -> None:
    times = [100.0] * 40
    for at in (3, 14, 29):
        times[at] = 200.0
    loop = replace(make_loop(times), cycles=({"every": 10, "extra_events": 90, "kind": "evaluation"},))
    found = find_outliers(loop)
    assert found is not None
    irregular, regular, every = split_cycles(loop, found)
    assert (irregular.rows.height, regular.rows.height, every) == (3, 0, None)
