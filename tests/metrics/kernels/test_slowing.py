"""Kernels that become slower: the same calls against themselves, iteration by iteration."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

from deepprof.collectors.trace import LAUNCH_SHAPES, empty_table
from deepprof.metrics.kernels.slowing import FEWEST_ITERATIONS, SlowingKernels, find_slowing
from tests.tables import Row, table

CALLS = (100_000, 40_000, 40_000, 20_000)  # ns of the kernels of an iteration; the second and third are of one name
NAMES = (0, 1, 1, 2)
NOTHING = empty_table(LAUNCH_SHAPES)


def slow_down(
    pace: Callable[[int, int], float], iterations: int = 10, grids: dict[int, int] | None = None
) -> SlowingKernels | None:
    """Return what is found where kernel `k` of iteration `i` takes `pace(i, k)` times as long as usual."""
    rows, shapes = list[Row](), list[Row]()
    for window in range(iterations):
        for place, (length, name) in enumerate(zip(CALLS, NAMES, strict=True)):
            event, ns = len(rows), round(length * pace(window, place))
            rows.append({"event": event, "window": window, "stream": 7, "name_id": name, "kind": name, "ns": ns})
            shapes.append({"event": event, "grid": (grids or {}).get(window, 64), "block": 128})
    return find_slowing(pl.DataFrame(rows), table(shapes, LAUNCH_SHAPES), iterations)


def test_all_kernels_become_slower() -> None:
    found = slow_down(lambda i, _: 1 + 0.05 * i)
    assert found is not None
    # Usual is the median of 1, 1.05 … 1.45: 1.225. Early are the first three, late the last three iterations.
    assert found.growth == pytest.approx(1.40 / 1.05 - 1, abs=1e-4)
    assert found.even_ratio == 1
    paces = 1 + 0.05 * np.arange(10)
    assert found.lost_ns == pytest.approx(sum(CALLS) * np.clip(paces - 1.05, 0, None).mean(), rel=1e-3)
    assert sorted(found.kinds) == [0, 1, 2]


def test_a_step_down_is_found_too() -> None:
    found = slow_down(lambda i, _: 1.0 if i < 10 else 1.3, iterations=20)
    assert found is not None
    assert found.growth == pytest.approx(0.3, abs=1e-3)


@pytest.mark.parametrize(
    "pace",
    [
        pytest.param(lambda _i, _k: 1.0, id="steady"),
        pytest.param(lambda i, _k: 1 + 0.005 * i, id="settling clocks"),
        pytest.param(lambda i, _k: 1.5 if i % 2 else 1.0, id="to and fro"),
        pytest.param(lambda i, _k: 1.5 if i < 3 else 1.0, id="becoming faster"),
        pytest.param(lambda i, k: 3.0 if i > 6 and k == 3 else 1.0, id="another process now and then"),
        pytest.param(lambda i, k: 1 + 0.1 * i if k == 0 else 1.0, id="one kernel whose work grows"),
    ],
)
def test_what_is_no_falling_clock(pace: Callable[[int, int], float]) -> None:
    assert slow_down(pace) is None


def test_few_iterations_prove_nothing() -> None:
    assert slow_down(lambda i, _: 1 + 0.2 * i, iterations=FEWEST_ITERATIONS - 1) is None
    assert slow_down(lambda i, _: 1 + 0.2 * i, iterations=FEWEST_ITERATIONS) is not None


def test_other_launch_shapes_are_other_work() -> None:
    assert slow_down(lambda i, _: 1 + 0.1 * i, grids={i: 64 + i for i in range(10)}) is None


def test_calls_that_an_iteration_lacks_are_left_out() -> None:
    rows = pl.DataFrame({"event": [0], "window": [0], "stream": [7], "name_id": [0], "kind": [0], "ns": [5]})
    assert find_slowing(rows, NOTHING, 8) is None
    assert find_slowing(rows.clear(), NOTHING, 8) is None
