"""Where a repetition sets in and breaks off: the very symbol and its place in the period, whatever is around."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.mining.candidates import Candidate, measure
from deepprof.mining.matching import Matches
from deepprof.mining.symbols import SymbolArray, as_symbols
from deepprof.mining.template import Template
from deepprof.mining.votes import RepetitionBound, breaks_off, locate, sets_in

LAYERS = [1, 2, *[3, 4, 5, 6, 7] * 6, 8, 9, 10, *[11, 12] * 8]
DISTINCT = list(range(100, 160))
SHORT = list(range(20, 32))


def candidate_of(symbols: list[int], template: list[int]) -> tuple[SymbolArray, Candidate]:
    stream = as_symbols(symbols)
    return stream, measure(stream, Template(as_symbols(template), {}))


@given(
    template=st.sampled_from([LAYERS, DISTINCT, SHORT]),
    first=st.integers(0, 59),
    end=st.integers(0, 59),
    before=st.integers(0, 90),
    after=st.integers(0, 90),
)
def test_a_repetition_cut_anywhere_between_other_kernels_has_its_true_bounds(
    template: list[int], first: int, end: int, before: int, after: int
) -> None:
    first, end = first % len(template), end % len(template)
    symbols = [50] * before + template[first:] + template * 2 + template[:end] + [51] * after
    stream, candidate = candidate_of(symbols, template)
    assert sets_in(stream, candidate) == RepetitionBound(before, first)
    assert breaks_off(stream, candidate) == RepetitionBound(len(symbols) - after, end)


@given(st.integers(0, 20), st.integers(17, 24), st.integers(1, 12), st.integers(0, 40))
def test_symbols_inserted_into_the_outermost_passes_hide_no_place(cut: int, at: int, alien: int, before: int) -> None:
    first = DISTINCT[cut:]
    head = [*first[:at], *[7] * alien, *first[at:]]
    last = DISTINCT[: 60 - cut]
    tail = [*last[:-at], *[7] * alien, *last[-at:]]
    symbols = [50] * before + head + DISTINCT * 3 + tail + [51] * before
    stream, candidate = candidate_of(symbols, DISTINCT)
    assert sets_in(stream, candidate) == RepetitionBound(before, cut)
    assert breaks_off(stream, candidate) == RepetitionBound(len(symbols) - before, (60 - cut) % 60)


@pytest.mark.parametrize("missing", [1, 2])
def test_one_or_two_symbols_lost_hide_no_place(missing: int) -> None:
    lossy = DISTINCT[:30] + DISTINCT[30 + missing :]
    stream, candidate = candidate_of([50] * 9 + lossy[5:] + DISTINCT * 3 + lossy[:-5] + [51] * 9, DISTINCT)
    assert sets_in(stream, candidate) == RepetitionBound(9, 5)
    assert breaks_off(stream, candidate) == RepetitionBound(len(stream) - 9, 55)


def with_rows(candidate: Candidate, *rows: tuple[int, int, int, int]) -> Candidate:
    return replace(candidate, matches=Matches.from_rows(np.array(rows, np.int64).reshape(-1, 4), 0))


def test_without_passes_there_are_no_bounds() -> None:
    stream, candidate = candidate_of([50] * 100, DISTINCT)
    assert len(candidate.matches) == 0
    assert sets_in(stream, candidate) is None
    assert breaks_off(stream, candidate) is None


def test_an_outermost_pass_that_is_mostly_foreign_is_passed_over_for_the_next() -> None:
    stream, candidate = candidate_of([9] * 40 + DISTINCT * 2 + [8] * 40, DISTINCT)
    doubtful = with_rows(candidate, (20, 40, 9, 20), (40, 100, 60, 0), (100, 160, 60, 0), (160, 180, 9, 20))
    assert sets_in(stream, doubtful) == RepetitionBound(40, 0)
    assert breaks_off(stream, doubtful) == RepetitionBound(160, 0)


def test_two_foreign_passes_in_a_row_leave_a_bound_unknown() -> None:
    stream, candidate = candidate_of([9] * 80 + DISTINCT * 2 + [8] * 80, DISTINCT)
    rows = [(20, 40, 9, 20), (50, 80, 9, 30), (80, 140, 60, 0), (140, 200, 60, 0), (200, 220, 9, 20), (220, 240, 9, 20)]
    assert sets_in(stream, with_rows(candidate, *rows)) is None
    assert breaks_off(stream, with_rows(candidate, *rows)) is None


def test_half_of_a_pass_must_match_for_it_to_be_a_bound() -> None:
    stream, candidate = candidate_of(DISTINCT[:30] + [9] * 40 + DISTINCT, DISTINCT)
    part, whole = (0, 70, 30, 40), (70, 130, 60, 0)
    assert sets_in(stream, with_rows(candidate, part)) is None
    assert sets_in(stream, with_rows(candidate, part, whole)) == RepetitionBound(70, 0)


def test_a_few_symbols_at_the_streams_edge_have_no_place() -> None:
    pattern = as_symbols(DISTINCT)
    assert locate(pattern[5:12], pattern, 0, 20) is None
    assert locate(pattern[5:13], pattern, 0, 20) == 5


@given(st.integers(0, 59), st.integers(-3, 3), st.integers(-3, 3))
def test_a_place_is_looked_for_within_two_symbols_of_where_it_may_be(place: int, least: int, most: int) -> None:
    pattern = as_symbols(DISTINCT)
    piece = pattern[(place + np.arange(16)) % 60]
    least, most = sorted((place + least, place + most))
    found = locate(piece, pattern, least, most)
    assert found == (place if least - 2 <= place <= most + 2 else None)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=30), st.data())
def test_a_place_is_one_of_those_that_fit_best(template: list[int], data: st.DataObject) -> None:
    piece = data.draw(st.lists(st.integers(0, 2), min_size=8, max_size=16))
    least = data.draw(st.integers(0, len(template) + 3))
    most = data.draw(st.integers(least, len(template) + 4))
    places = range(max(0, least - 2), min(most + 2, len(template) - 1) + 1)
    equal = {at: sum(template[(at + j) % len(template)] == s for j, s in enumerate(piece)) for at in places}
    most_equal = max(equal.values(), default=0)
    found = locate(as_symbols(piece), as_symbols(template), least, most)
    assert (found is None) == (most_equal < 0.8 * len(piece))
    assert found is None or equal[found] == most_equal


def test_a_long_tight_loop_at_the_end_hides_no_place() -> None:
    template = [0, *[1, 2, 3, 4, 5] * 6, 6, 7, *[8, 2, 9, 4, 10] * 6, 11, *[12, 13] * 10]
    stream, candidate = candidate_of([50] * 100 + template * 3 + [51] * 100, template)
    assert breaks_off(stream, candidate) == RepetitionBound(352, 0)
