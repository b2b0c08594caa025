"""The stages of rows of kernels of which some are known: always a cheapest way, and equal for equal iterations."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.metrics.annotation import filling
from deepprof.metrics.annotation.event_stages import FAMILY_NAMES, _weigh_kinds
from deepprof.metrics.annotation.filling import STEPS, fill
from deepprof.metrics.annotation.stage_names import STAGES

COSTS = _weigh_kinds(1.0)
FAMILIES = len(FAMILY_NAMES)


def kind(family: str, stage: str | None = None) -> int:
    """Return the kind of a kernel of a family whose stage is known, or not."""
    return (0 if stage is None else STAGES.index(stage) + 1) * 2 * FAMILIES + FAMILY_NAMES.index(family)


def filled(*kinds: int) -> list[str]:
    found = fill(np.array(kinds), np.array([0]), np.array([len(kinds)]), COSTS)
    return [STAGES[each] for each in found]


def cheapest(kinds: list[int]) -> float:
    """Return the least cost of any way through the same, by recursion over all."""
    row = kinds * filling.TURNS

    @cache
    def least(place: int, stage: int) -> float:
        own = float(COSTS[row[place], stage])
        if place == len(row) - 1:
            return own
        return own + min(float(STEPS[stage, after]) + least(place + 1, after) for after in range(len(STAGES)))

    return min(least(0, stage) for stage in range(len(STAGES)))


@given(st.lists(st.integers(0, len(COSTS) - 1), min_size=1, max_size=6))
def test_no_way_is_cheaper(kinds: list[int]) -> None:
    cost = np.repeat(COSTS[np.array(kinds * filling.TURNS)][None], 2, axis=0)
    paths = filling._cheapest(cost)
    assert paths.shape == (2, len(kinds) * filling.TURNS)
    assert (paths[0] == paths[1]).all()
    path = paths[0].tolist()
    steps = sum(float(STEPS[a, b]) for a, b in pairwise(path))
    taken = steps + float(cost[0, np.arange(len(path)), path].sum())
    assert taken == pytest.approx(cheapest(kinds), abs=1e-3)


def test_what_is_known_stays() -> None:
    assert filled(kind("optimizer", "forward"), kind("other", "evaluation")) == ["forward", "evaluation"]


def test_what_lies_between_two_of_a_stage_is_part_of_it() -> None:
    row = [kind("other", "backward"), kind("other"), kind("copy"), kind("other", "backward")]
    assert filled(*row) == ["backward"] * 4


def test_kernels_alone_tell_an_iteration_apart() -> None:
    forward, backward = [kind("forward"), kind("plain product")] * 6, [kind("backward"), kind("weight product")] * 6
    found = filled(*forward, kind("loss"), *backward, *[kind("optimizer")] * 4)
    assert found == ["forward"] * 12 + ["loss"] + ["backward"] * 12 + ["optimizer"] * 4


def test_an_iteration_may_begin_anywhere() -> None:
    forward, backward, update = [kind("forward")] * 8, [kind("backward")] * 8, [kind("optimizer")] * 3
    assert filled(*backward, *update, *forward) == ["backward"] * 8 + ["optimizer"] * 3 + ["forward"] * 8


def test_micro_batches_are_forward_passes_and_what_is_run_again_is_not() -> None:
    forward, backward = [kind("forward")] * 9, [kind("backward")] * 9
    twice = filled(*forward, *backward, *forward, *backward, kind("optimizer"))
    assert twice == (["forward"] * 9 + ["backward"] * 9) * 2 + ["optimizer"]
    again = filled(*forward, *backward, *forward[:4], *backward, kind("optimizer"))
    assert again == ["forward"] * 9 + ["backward"] * 22 + ["optimizer"]


def test_equal_iterations_are_equal_and_what_lies_outside_has_no_stage() -> None:
    one = [kind("forward"), kind("backward"), kind("optimizer")]
    kinds = np.array([kind("other"), *one, *one, kind("other"), *one[:2]])
    found = fill(kinds, np.array([1, 4, 8, 9]), np.array([4, 7, 8, 10]), COSTS)
    assert found.tolist()[:1] == found.tolist()[7:8] == [-1]
    assert found[1:4].tolist() == found[4:7].tolist()
    assert found[8:9].tolist() == [-1]


def test_no_iteration_and_no_kernel_are_nothing() -> None:
    nothing = np.array([], np.int64)
    assert fill(nothing, nothing, nothing, COSTS).tolist() == []
    assert fill(np.array([1, 2]), nothing, nothing, COSTS).tolist() == [-1, -1]


def test_many_different_iterations_are_decided_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [kind("forward")] * 5 + [kind("backward")] * 5
    kinds = np.array([each for size in range(1, 11) for each in rows[:size]])
    first = np.cumsum([0, *range(1, 10)])
    whole = fill(kinds, first, first + np.arange(1, 11), COSTS)
    monkeypatch.setattr(filling, "CELLS", 30)
    assert fill(kinds, first, first + np.arange(1, 11), COSTS).tolist() == whole.tolist()


def test_a_very_long_iteration_is_read_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filling, "MOST_STEPS", 3)
    row = [kind("forward"), kind("plain product")] * 4 + [kind("backward"), kind("product")] * 4
    assert filled(*row) == ["forward"] * 8 + ["backward"] * 8
