"""Change points against planted ones, and on series that have none."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepprof.metrics.series import changes
from deepprof.metrics.series.changes import can_find_changes, find_changes
from tests.chance import examples

needs_library = pytest.mark.skipif(not can_find_changes(), reason="needs ruptures: pip install 'deepprof[changes]'")


@needs_library
@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(st.integers(8, 40), st.sampled_from([1.0, 1.3, 1.7, 0.7])), min_size=1, max_size=5),
    st.integers(0, 10_000),
)
def test_planted_shifts_are_found_where_they_are(levels: list[tuple[int, float]], seed: int) -> None:
    series = np.concatenate([np.full(n, 100 * level) for n, level in levels])
    series = series + np.random.default_rng(seed).normal(0, 2, len(series))
    ends = np.cumsum([n for n, _ in levels])[:-1]
    planted = [end for end, (_, a), (_, b) in zip(ends, levels[:-1], levels[1:], strict=True) if a != b]
    found = find_changes(series)
    assert len(found) == len(planted)
    assert all(abs(f.at - p) <= 1 for f, p in zip(found, planted, strict=True))


@needs_library
def test_a_change_has_the_levels_around_it() -> None:
    (found,) = find_changes([10.0] * 12 + [15.0] * 7)
    assert (found.at, found.before, found.after) == (12, 10.0, 15.0)


@needs_library
@settings(max_examples=examples(40))
@given(st.integers(0, 10_000), st.integers(20, 120))
def test_outliers_are_no_levels(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    series = rng.normal(100, 2, n)
    for at in rng.choice(n - 3, 2, replace=False):
        series[at : at + rng.integers(1, 4)] *= 3
    series[np.flatnonzero(series > 150)[3:]] = 100  # two that touch would make a level
    assert find_changes(series) == ()


def wander(rng: np.random.Generator, n: int) -> np.ndarray:
    """Noise in which each value resembles the one before."""
    steps = rng.normal(0, 3, n)
    for i in range(1, n):
        steps[i] += 0.7 * steps[i - 1]
    return 100 + steps


@pytest.mark.parametrize("kind", ["noise", "heavy tails", "skewed", "wandering", "sawtooth"])
def test_series_without_a_shift_seldom_have_one(kind: str) -> None:
    rng = np.random.default_rng(7)
    make = {
        "noise": lambda: rng.normal(100, 5, 60),
        "heavy tails": lambda: 200 + 10 * rng.standard_t(2, 60),
        "skewed": lambda: 90 + rng.exponential(15, 60),
        "wandering": lambda: wander(rng, 60),
        "sawtooth": lambda: 100 + 10 * (np.arange(60) % 5),
    }
    assert sum(bool(find_changes(make[kind]())) for _ in range(100)) <= 3


@pytest.mark.parametrize("values", [[], [1.0], [1.0] * 9, [5.0] * 400, [0.0] * 50])
def test_little_and_constant_series_have_none(values: list[float]) -> None:
    assert find_changes(values) == ()


def test_a_steady_series_does_not_load_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ruptures.detection.kernelcpd", None)  # an import would raise
    assert find_changes(np.random.default_rng(8).normal(100, 1, 200)) == ()


def test_without_the_library_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "find_spec", lambda _: None)
    assert not can_find_changes()
    assert find_changes([10.0] * 12 + [15.0] * 7) == ()


@needs_library
def test_a_long_series_is_thinned() -> None:
    series = np.random.default_rng(9).normal(100, 1, 90_000) + np.repeat([0, 50], [30_000, 60_000])
    (found,) = find_changes(series)
    assert found.at == pytest.approx(30_000, abs=10)
