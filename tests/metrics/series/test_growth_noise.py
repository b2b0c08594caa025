"""Intervals on a busy machine vary, jump and stay long for a while: none of that is growth from one to the next."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from msgspec.structs import replace

from deepprof.metrics.loop import Loop
from deepprof.metrics.series.growth import find_growth, find_interval_growth
from deepprof.metrics.series.trend import chance_of, find_trend
from tests.loops import make_loop

Values = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Values]
DRAWS = 100
LENGTHS = (20, 40, 100, 300)


def scatter(rng: np.random.Generator, n: int, by: float = 0.15) -> Values:
    return np.asarray(1e5 * np.exp(rng.normal(0, by, n)))


def alone(rng: np.random.Generator, n: int) -> Values:
    """Values that know nothing of each other."""
    return scatter(rng, n, 0.5)


def alike(rng: np.random.Generator, n: int) -> Values:
    """Neighbours that share the load of their time."""
    left, values = rng.normal(0, 0.3, n), np.zeros(n)
    for at in range(1, n):
        values[at] = 0.9 * values[at - 1] + left[at]
    return np.asarray(1e5 * np.exp(values))


def burst(rng: np.random.Generator, n: int) -> Values:
    """Another program for a third of the time."""
    values, first = scatter(rng, n), int(rng.integers(0, n))
    values[first : first + n // 3] *= rng.uniform(1.5, 6)
    return values


def jump(rng: np.random.Generator, n: int) -> Values:
    """Another program from some time on."""
    values = scatter(rng, n)
    values[rng.integers(n // 5, n - 3) :] *= rng.uniform(1.5, 4)
    return values


def ending(rng: np.random.Generator, n: int) -> Values:
    """One long value at the end."""
    values = scatter(rng, n)
    values[-1] *= 100
    return values


def growing(rng: np.random.Generator, n: int) -> Values:
    return (1 + np.arange(n) / n) * scatter(rng, n, 0.1)


def slowing(rng: np.random.Generator, n: int) -> Values:
    """Growth that becomes less, as that of a list which is searched by halves."""
    return (1 + 2 * np.sqrt(np.arange(n) / n)) * scatter(rng, n, 0.1)


def share_found(draw: Draw, n: int) -> float:
    """How often growth is found in series with fixed seeds."""
    return sum(find_growth(draw(np.random.default_rng([n, seed]), n)) is not None for seed in range(DRAWS)) / DRAWS


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize(("draw", "most"), [(alone, 0.01), (alike, 0.06), (burst, 0.03), (jump, 0.15), (ending, 0.01)])
def test_noise_is_no_growth(draw: Draw, most: float, n: int) -> None:
    assert share_found(draw, n) <= most


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("draw", [growing, slowing])
def test_growth_is_found(draw: Draw, n: int) -> None:
    assert share_found(draw, n) >= 0.85


def test_the_chance_is_that_of_independent_values_where_they_are() -> None:
    chances = []
    for seed in range(400):
        values = np.random.default_rng(seed).normal(0, 1, 40)
        trend = find_trend(values)
        assert trend is not None
        chances.append((chance_of(values, trend), trend.p_value))
    corrected, plain = np.array(chances).T
    assert (corrected < 0.05).mean() == pytest.approx(0.05, abs=0.025)
    assert np.median(corrected - plain) < 0.05


def loop_of(busy_ns: Values, interval_ns: Values) -> Loop:
    """A loop with these times of work and of waiting."""
    loop = make_loop(((busy_ns + interval_ns) / 1e6).tolist())
    last = len(busy_ns) - 1
    columns = {
        "busy_ns": np.append(busy_ns, busy_ns[last]),
        "operation_ns": np.append(busy_ns, busy_ns[last]),
        "interval_ns": np.append(interval_ns, np.nan),
    }
    series = [pl.Series(name, values).fill_nan(None).cast(pl.Int64) for name, values in columns.items()]
    return replace(loop, iterations=loop.iterations.with_columns(series))


def test_a_machine_that_becomes_slower_is_no_loop_that_grows() -> None:
    n = 60
    rising, level = 5e6 * (1 + 2 * np.arange(n) / n), np.full(n, 5e6)
    assert find_interval_growth(loop_of(rising, rising)) is None
    found = find_interval_growth(loop_of(level, rising))
    assert found is not None
    assert found.trend.tau == 1
