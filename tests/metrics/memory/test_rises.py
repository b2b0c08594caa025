"""Memory that rises with the iterations: planted leaks, beneath what varies, and what only looks like them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from deepprof.collectors.trace import Trace
from deepprof.metrics.memory.rises import FEWEST_OF_LITTLE, LevelRise, find_memory_growth, find_rise
from deepprof.metrics.series.growth import CHANCE
from tests.loops import make_loop
from tests.metrics.memory.test_floors import mark, with_memory
from tests.tables import make_trace

MIB = 1 << 20
Levels = npt.NDArray[np.int64]


def leaking(floor: list[int], total: bool = True, base: int = 1000 * MIB) -> Trace:
    """Return a trace whose iterations of 10 ms leave `floor` more bytes than `base` in use."""
    rows = [mark(-1, base, base if total else None)]
    last = 0
    for i, left in enumerate(floor):
        at, peak = 10.0 * i, base + left + 500 * MIB
        rows += [
            mark(at + 3, peak - base - last, peak if total else None),
            mark(at + 9.9, base + left - peak, base + left if total else None),
        ]
        last = left
    return with_memory(make_trace(), rows)


@pytest.mark.parametrize("total", [False, True])
def test_memory_that_is_never_given_back_grows(total: bool) -> None:
    loop = make_loop([10.0] * 12)
    found = find_memory_growth(loop, leaking([80 * MIB * (i + 1) for i in range(13)], total))
    assert found is not None
    assert found.per_iteration == 80 * MIB
    assert found.certainty == 1


@pytest.mark.parametrize(
    "floor",
    [
        [0] * 14,
        [300, 500, 600, 640, 650] + [650] * 9,  # caches fill at first
        [100 * (i % 4) for i in range(14)],  # a sawtooth
        list(range(14)),  # a megabyte per iteration of a gigabyte
        [-50 * i for i in range(14)],
        [0, 900] + [900] * 12,  # once
    ],
    ids=["constant", "filling", "sawtooth", "little", "shrinking", "once"],
)
def test_memory_that_only_moves_does_not(floor: list[int]) -> None:
    assert find_memory_growth(make_loop([10.0] * 13), leaking([MIB * each for each in floor])) is None


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_few_iterations_prove_nothing(count: int) -> None:
    assert find_memory_growth(make_loop([10.0] * count), leaking([i * 100 * MIB for i in range(count + 1)])) is None
    assert find_rise(np.arange(count) * 100 * MIB) is None


def test_a_little_for_each_of_many_iterations_is_found_where_it_is_much() -> None:
    """4 MiB of 6 GiB: 4 % over these iterations, a device that is full within a day."""
    asked: list[float] = []

    def is_much(nbytes: float) -> bool:
        asked.append(nbytes)
        return True

    many, base = 62, 6 << 30
    trace = leaking([4 * MIB * i for i in range(many + 1)], base=base)
    assert find_memory_growth(make_loop([10.0] * many), trace) is None
    found = find_memory_growth(make_loop([10.0] * many), trace, is_much)
    assert found is not None
    assert asked == [found.per_iteration] == [4 * MIB]
    few = make_loop([10.0] * (FEWEST_OF_LITTLE - 1))
    assert find_memory_growth(few, leaking([4 * MIB * i for i in range(21)], base=base), is_much) is None


def scatter(seed: int, n: int, by: int = 3 * MIB) -> Levels:
    """Return by how much levels vary where an allocator counts blocks, or batches differ."""
    return np.asarray(np.random.default_rng(seed).normal(0, by, n), np.int64)


@pytest.mark.parametrize("seed", range(10))
def test_a_leak_smaller_than_what_varies_beside_it_is_found_with_its_size(seed: int) -> None:
    """In about a fourth of all steps memory in use falls."""
    levels = (2 << 30) + 4 * MIB * np.arange(66) + scatter(seed, 66)
    assert (np.diff(levels) < 0).mean() > 0.08
    found = find_rise(levels)
    assert found is not None
    assert found.per_value == pytest.approx(4 * MIB, rel=0.05)
    assert found.grown == pytest.approx(65 * 4 * MIB, rel=0.05)
    assert 0.9 < found.certainty < 1
    assert find_rise(levels[::-1].copy()) is None


def sawtooth(teeth: int) -> Callable[[int], Levels]:
    return lambda n: np.arange(n) % max(2, n // teeth) * 8 * MIB


SILENT: dict[str, Callable[[int], Levels]] = {
    "constant": lambda n: np.zeros(n, np.int64),
    "scatter": lambda n: scatter(n, n),
    "long teeth": sawtooth(2),
    "short teeth": sawtooth(9),
    "filling": lambda n: np.minimum(np.arange(n), n // 2) * 8 * MIB + scatter(n, n),
    "settling": lambda n: (200 * MIB * (1 - np.exp(-np.arange(n) * 8 / n))).astype(np.int64) + scatter(n, n),
    "shapes": lambda n: np.rint(n / 2 * (1 - np.exp(-2 * np.arange(n) / n))).astype(np.int64) * 8 * MIB,
    "once": lambda n: (np.arange(n) > n // 3) * 500 * MIB + scatter(n, n),
    "thrice": lambda n: np.arange(n) * 4 // n * 500 * MIB + scatter(n, n),
    "two batch sizes": lambda n: np.arange(n) % 2 * 70 * MIB,
    "falling": lambda n: -8 * MIB * np.arange(n) + scatter(n, n),
}


@pytest.mark.parametrize("n", [12, 66, 400])
@pytest.mark.parametrize("name", SILENT)
def test_what_does_not_go_on_rising_is_no_leak(name: str, n: int) -> None:
    assert find_rise((4 << 30) + SILENT[name](n)) is None


@pytest.mark.parametrize("n", [20, 66, 200])
def test_walks_without_aim_seldom_rise(n: int) -> None:
    """By Kendall's tau alone a fifth of them and more would."""
    rng = np.random.default_rng(n)
    walks = [(4 << 30) + np.cumsum(rng.normal(0, MIB, n)).astype(np.int64) for _ in range(300)]
    assert sum(find_rise(walk) is not None for walk in walks) <= 300 * CHANCE


def test_a_steady_rise_is_certain() -> None:
    assert find_rise(np.arange(6) * 10) == LevelRise(10, 50, 1.0)
