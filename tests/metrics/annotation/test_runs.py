"""A sequence found in a longer one, on sequences whose places are available."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepprof.metrics.annotation.runs import SequenceFinder
from tests.chance import examples

LAYER = [1, 2, 3, 4, 2, 3, 5, 1]
MODEL = [10, 11, *LAYER * 6, 12, 13]
TOKENS = st.lists(st.integers(0, 3), max_size=60)


def find(model: Sequence[int], tokens: Sequence[int], near: int | None = None) -> list[int]:
    return SequenceFinder(np.array(model, np.int64)).find(np.array(tokens, np.int64), near).tolist()


def test_every_pass_is_found_whole() -> None:
    noise = [3, 3, 2, 10, 4]
    found = find(MODEL, [*noise, *MODEL, *noise, *MODEL, *MODEL])
    whole, none = list(range(len(MODEL))), [-1] * len(noise)
    assert found == [*none, *whole, *none, *whole, *whole]


@pytest.mark.parametrize("at", [1, 2, 3, 9, 20, 49, 50, 51])
def test_one_that_is_put_in_has_no_place(at: int) -> None:
    places = list(range(len(MODEL)))
    tokens, true = [*MODEL[:at], 4, *MODEL[at:]], [*places[:at], -1, *places[at:]]
    assert find(MODEL, [*MODEL, *tokens, *MODEL]) == [*places, *true, *places]


@pytest.mark.parametrize("at", [0, 1, 2, 3, 9, 20, 49, 50, 51])
def test_one_that_is_missing_moves_no_other(at: int) -> None:
    model = list(range(52))
    assert find(model, [*model, *model[:at], *model[at + 1 :]]) == [*model, *model[:at], *model[at + 1 :]]


def test_a_pass_may_begin_in_its_middle_and_break_off() -> None:
    places = list(range(len(MODEL)))
    assert find(MODEL, [*MODEL[18:], *MODEL, *MODEL[:21], *MODEL]) == [*places[18:], *places, *places[:21], *places]


def test_after_something_else_an_interrupted_pass_goes_on() -> None:
    model = list(range(60))
    assert find(model, [*model[:30], *[99] * 200, *model[30:]]) == [*model[:30], *[-1] * 200, *model[30:]]


def test_a_few_tokens_that_agree_by_chance_have_no_place() -> None:
    assert find(MODEL, [2, 3, 5, 1, 2, 7, 3, 5, 1, 1]) == [-1] * 10


@pytest.mark.parametrize("layer", range(6))
def test_of_equal_parts_the_one_near_a_place_is_meant(layer: int) -> None:
    begin = 2 + layer * len(LAYER)
    for near in (begin, begin + len(LAYER) - 1):
        assert find(MODEL, LAYER, near) == list(range(begin, begin + len(LAYER)))


@pytest.mark.parametrize("model", [[], [5], [5, 6], [5, 6, 7]])
def test_short_sequences(model: list[int]) -> None:
    places = list(range(len(model)))
    assert find(model, [1, *model, 2, 3, *model]) == [-1, *places, -1, -1, *places]
    assert find(model, []) == []


@settings(max_examples=examples(400))
@given(TOKENS, TOKENS, st.none() | st.integers(0, 40))
def test_what_has_a_place_is_equal_and_goes_forward(model: list[int], tokens: list[int], near: int | None) -> None:
    found = np.array(find(model, tokens, near), np.int64)
    rows = np.flatnonzero(found >= 0)
    assert (np.array(model, np.int64)[found[rows]] == np.array(tokens, np.int64)[rows]).all()
    falls = np.flatnonzero(np.diff(found[rows]) <= 0)  # a new pass
    lengths = np.diff(np.concatenate([[0], falls + 1, [len(rows)]]))
    assert not len(rows) or lengths.min() >= 1


@settings(max_examples=examples(200))
@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(1, 4))
def test_nothing_but_passes_is_passes(model: list[int], passes: int) -> None:
    assert find(model, model * passes) == list(range(len(model))) * passes
