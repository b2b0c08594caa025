"""Which pattern is found first in names: compared with a search one by one."""

from __future__ import annotations

import re
from unittest.mock import Mock

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.metrics.kernels import name_matching
from deepprof.metrics.kernels.name_matching import AT_ONCE, find_first

WORDS = ("soft", "max", "softmax", "abs", "abs[a-z]*$", "^a", "m.x", "(?i)MAX", "a|b", "b$", "(max)(abs)?")
NAMES = st.lists(st.text("absoftmxAB", max_size=12), max_size=12)


def search_one_by_one(names: list[str], patterns: list[str]) -> list[int]:
    """Return the number of the first pattern in each name, by Python's own expressions."""
    return [next((n for n, each in enumerate(patterns) if re.search(each, name)), -1) for name in names]


@pytest.mark.parametrize("much_text", [0, 1 << 20])
@given(names=NAMES, patterns=st.lists(st.sampled_from(WORDS), max_size=2 * AT_ONCE + 3))
def test_first_of_many_is_found_as_one_by_one(much_text: int, names: list[str], patterns: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(name_matching, "MUCH_TEXT", much_text)
        found = find_first(pl.Series(names, dtype=pl.String), patterns)
    assert found.tolist() == search_one_by_one(names, patterns)


def test_earlier_pattern_counts_wherever_it_is_in_the_name() -> None:
    # Both alternatives begin alike: an expression that joins their beginnings takes what is further left in the name.
    assert find_first(pl.Series(["xabsoftmax"]), ["softmax", "abs"]).tolist() == [0]


def test_patterns_too_large_for_one_expression_are_searched_by_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    halves = Mock(wraps=name_matching._tell_halves)
    monkeypatch.setattr(name_matching, "_tell_halves", halves)
    large = [r"\pL{200}" + word for word in "abcdefgh"]
    assert find_first(pl.Series(["x" * 200 + word for word in ("d", "a", "", "h")]), large).tolist() == [3, 0, -1, 7]
    assert halves.called


def test_group_names_of_a_pattern_do_no_harm() -> None:
    assert find_first(pl.Series(["ab", "cd", "e"]), ["(?P<p1>b)", "(?P<p0>d)"]).tolist() == [0, 1, -1]


def test_no_pattern_and_no_name() -> None:
    assert find_first(pl.Series(["a"]), []).tolist() == [-1]
    assert find_first(pl.Series([], dtype=pl.String), ["a"]).dtype == np.int64


def test_what_precedes_a_match_may_be_any_text() -> None:
    lists = pl.Series(['["float",\n "c10::BFloat16"]', '["ä", "float"]'])
    assert find_first(lists, ["(?i)bfloat16", "(?i)float"]).tolist() == [0, 1]
