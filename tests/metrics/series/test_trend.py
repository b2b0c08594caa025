"""The chance of a walk's end, against all walks with steps of the same sizes."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepprof.metrics.series.trend import chance_of_drift
from tests.chance import examples

STEPS = st.lists(st.integers(-1000, 1000), min_size=1, max_size=10)


@settings(max_examples=examples(100))
@given(STEPS, st.integers(-(10**6), 10**6))
def test_no_fewer_walks_end_as_far_up_than_it_says(steps: list[int], begin: int) -> None:
    """Every walk that goes as far at every step, up or down."""
    values = begin + np.cumsum([0, *steps])
    walks = product(*((step, -step) for step in steps))
    exact = sum(sum(walk) >= sum(steps) for walk in walks) / 2 ** len(steps)
    assert exact <= chance_of_drift(values) + 1e-12


@given(STEPS)
def test_where_it_begins_its_scale_and_steps_of_nothing_do_not_matter(steps: list[int]) -> None:
    chance = chance_of_drift(np.cumsum([0, *steps]))
    assert chance_of_drift(7 + 3 * np.cumsum([0, *steps, 0])) == pytest.approx(chance)


@pytest.mark.parametrize("values", [[], [5], [5, 5, 5], [5, 4], [1, 9, 1]])
def test_what_does_not_end_higher_has_no_drift(values: list[int]) -> None:
    assert chance_of_drift(values) == 1


def test_a_straight_line_is_certain_after_ten_steps() -> None:
    assert chance_of_drift(range(11)) == pytest.approx(np.exp(-5))
    assert chance_of_drift(range(9)) > 0.01 > chance_of_drift(range(11))
