"""Which pattern is found first in names: compared with a search one by one."""

from __future__ import annotations

import re

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.metrics.kernels import name_matching
from deepprof.metrics.kernels.name_matching import find_first, find_words, search_each
from deepprof.metrics.kernels.pattern_tables import list_tables

WORDS = ("soft", "max", "softmax", "abs", "abs[a-z]*$", "^a", "m.x", "(?i)MAX", "a|b", "b$", "(max)(abs)?")
NAMES = st.lists(st.text("absoftmxAB", max_size=12), max_size=12)


ATOMS = st.sampled_from(
    ["a", "b", "K", r"\w", r"\.", r"\(", "[ab]", "[^]a]", r"[\]b]", ".", "^", "$", "xy", "-", "{", ""]
)
COUNTS = st.sampled_from([*[""] * 6, "?", "*", "+", "+?", "??", "{2}", "{0,1}?"])


def _join(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return patterns of groups, alternatives and repetitions of `parts`."""
    chains = st.lists(parts, max_size=4).map("".join)
    groups = st.tuples(st.sampled_from(["(", "(?:", "(?i:", "(?P<n>"]), chains, st.just(")"), COUNTS).map("".join)
    return st.one_of(chains, groups, st.tuples(chains, chains).map("|".join))


PATTERNS = st.recursive(st.tuples(ATOMS, COUNTS).map("".join), _join, max_leaves=10)


def search_one_by_one(names: list[str], patterns: list[str]) -> list[int]:
    """Return the number of the first pattern in every name, by Python's own expressions."""
    return [next((n for n, each in enumerate(patterns) if re.search(each, name)), -1) for name in names]


@pytest.mark.parametrize("much_text", [0, 1 << 20])
@given(names=NAMES, patterns=st.lists(st.sampled_from(WORDS), max_size=20))
def test_first_of_many_is_found_as_one_by_one(much_text: int, names: list[str], patterns: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(name_matching, "MUCH_TEXT", much_text)
        found = find_first(pl.Series(names, dtype=pl.String), patterns)
    assert found.tolist() == search_one_by_one(names, patterns)


@given(pattern=PATTERNS, flag=st.sampled_from(["", "(?i)"]), data=st.data())
def test_text_that_matches_contains_one_of_the_words_of_the_pattern(
    pattern: str, flag: str, data: st.DataObject
) -> None:
    try:
        expression = re.compile(flag + pattern)
    except re.error:
        return
    text = data.draw(st.from_regex(expression, alphabet="abxyABKk\u212a.(]-{2}\n"))
    words = find_words(flag + pattern)
    assert not words or any(word in text.casefold() for word in words)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (r"(?i)\bFlash_(?:fwd|bwd)\w*kernel", ("flash_",)),
        ("splitK?reduce|col2im+", ("reduce", "col2im")),
        ("(?:igemm)_x(?:ab)?c{3}", ("igemm_x",)),
        ("^(?:dot|gemm)$", ("dot", "gemm")),
        ("a(?:dot|(?:gemm)?|x)", ("a",)),
        ("a(?:dot|gemm+)b|xy", ("adot", "gemm", "xy")),
        (r"a\x41bc", ()),
        ("[[:alpha:]_]bc", ()),
        ("", ()),
        ("(?:){0,1}?", ()),
        (r"ab\)?c", ("ab",)),
    ],
)
def test_words_of_a_pattern(pattern: str, words: tuple[str, ...]) -> None:
    assert find_words(pattern) == words


def test_earlier_pattern_counts_wherever_it_is_in_the_name() -> None:
    # Both alternatives begin alike: an expression that joins their beginnings takes what is further left in the name.
    assert find_first(pl.Series(["xabsoftmax"]), ["softmax", "abs"]).tolist() == [0]


def test_group_names_of_a_pattern_do_no_harm() -> None:
    assert find_first(pl.Series(["ab", "cd", "e"]), ["(?P<p1>b)", "(?P<p0>d)"]).tolist() == [0, 1, -1]


def test_no_pattern_and_no_name() -> None:
    assert find_first(pl.Series(["a"]), []).tolist() == [-1]
    assert find_first(pl.Series([], dtype=pl.String), ["a"]).dtype == np.int64


def test_what_precedes_a_match_may_be_any_text() -> None:
    lists = pl.Series(['["float",\n "c10::BFloat16"]', '["ä", "float"]'])
    assert find_first(lists, ["(?i)bfloat16", "(?i)float"]).tolist() == [0, 1]


@pytest.mark.parametrize(
    "pattern", ["(?i)aB", r"(?i)a\Db", "(?i)[A-C]+x", r"(?i)\Ab", "(?i)a(?-i:B)", "aB", "(?i)ä|ab"]
)
def test_case_is_ignored_as_by_the_pattern_itself(pattern: str) -> None:
    names = pl.Series(["ab", "AB", "aB", "a1b", "aXB", "cX", "bx", None, "Ä", ""])
    found = search_each(names, [pattern])[0]
    assert found.tolist() == names.str.contains(pattern).fill_null(value=False).to_list()


def test_shipped_patterns_find_the_names_that_polars_finds() -> None:
    patterns = [pattern for table in list_tables() for pattern in table.patterns]
    names = pl.Series([pattern.example for pattern in patterns])
    for pattern, found in zip(patterns, search_each(names, [pattern.match for pattern in patterns]), strict=True):
        assert found.tolist() == names.str.contains(pattern.match).to_list()
        words = find_words(pattern.match)
        assert not words or all(any(word in name.casefold() for word in words) for name in names.filter(found))
