"""From passes to iterations: torn ones whole again, cut ones flagged, tails where they belong, edits counted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepprof.mining import Iterations, Matches
from deepprof.mining.candidates import follow
from deepprof.mining.iterations import (
    EXACT_SYMBOLS,
    absorb_tails,
    count_edits,
    edit_distance,
    join_halves,
    to_iterations,
)
from deepprof.mining.several import find_strangers
from deepprof.mining.symbols import as_symbols
from tests.chance import examples
from tests.mining.streams import rows

Row = tuple[int, int, int, int, bool]

DISTINCT = list(range(100, 400))
LAYERS = [0, *[1, 2, 3, 4, 5] * 12, 6, 7, *[8, 2, 9, 4, 10] * 12, 11, *range(30, 70), *[12, 13] * 10]
TEMPLATES = {"all different": DISTINCT, "layers": LAYERS}
FOREIGN = 999


def found_in(symbols: list[int], template: list[int]) -> list[Row]:
    return listed(to_iterations(follow(as_symbols(symbols), as_symbols(template))[1], len(template)))


def listed(found: Iterations) -> list[Row]:
    columns = (found.first, found.end, found.matched, found.edits, found.complete)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def iterations(*parts: tuple[int, int, int, int], complete: bool = True) -> Iterations:
    first, end, matched, edits = np.array(parts, np.int64).reshape(-1, 4).T.copy()
    return Iterations(first, end, matched, edits, np.full(len(parts), complete))


# --- torn iterations ------------------------------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(st.sampled_from(sorted(TEMPLATES)), st.integers(1, 299), st.integers(1, 180), st.integers(1, 3))
def test_an_iteration_torn_by_foreign_symbols_is_one(name: str, at: int, alien: int, before: int) -> None:
    template, p = TEMPLATES[name], len(TEMPLATES[name])
    at = 1 + at % (p - 1)
    torn = template[:at] + [FOREIGN] * alien + template[at:]
    expected = [(j * p, (j + 1) * p, p, 0, True) for j in range(before)]
    expected.append((before * p, (before + 1) * p + alien, p, alien, True))
    expected += [(j * p + alien, (j + 1) * p + alien, p, 0, True) for j in (before + 1, before + 2)]
    assert found_in(template * before + torn + template * 2, template) == expected


def test_each_of_two_torn_iterations_in_a_row_is_one() -> None:
    torn = DISTINCT[:120] + [FOREIGN] * 150 + DISTINCT[120:]
    assert [row[:2] for row in found_in(DISTINCT + torn * 2 + DISTINCT, DISTINCT)] == [
        (0, 300),
        (300, 750),
        (750, 1200),
        (1200, 1500),
    ]


def test_halves_more_than_a_period_apart_are_none_of_one_iteration() -> None:
    """Counted from where the second half's missing symbols would be."""
    near, far = (DISTINCT * 2 + DISTINCT[:140] + [FOREIGN] * n + DISTINCT[140:] + DISTINCT for n in (430, 450))
    assert [row[:2] for row in found_in(near, DISTINCT)] == [(0, 300), (300, 600), (600, 1330), (1330, 1630)]
    assert [row[:2] for row in found_in(far, DISTINCT)] == [(0, 300), (300, 600), (1050, 1350), (1350, 1650)]


def test_a_part_seen_twice_makes_no_whole_iteration() -> None:
    """The second part must begin about where the first broke off."""
    begun_again = DISTINCT * 2 + DISTINCT[:140] + [FOREIGN] * 100 + DISTINCT[60:] + DISTINCT
    assert (600, 1080) not in [row[:2] for row in found_in(begun_again, DISTINCT)]


def test_parts_that_are_more_than_an_iteration_together_are_two() -> None:
    together = Matches.from_rows(np.array([(0, 60, 60, 0), (70, 112, 42, 58)]), 0)
    too_much = Matches.from_rows(np.array([(0, 60, 60, 0), (70, 130, 60, 60)]), 0)
    assert rows(join_halves(together, 100)) == [(0, 112, 102, 10)]
    assert rows(join_halves(too_much, 100)) == rows(too_much)


@st.composite
def passes(draw: st.DrawFn) -> tuple[Matches, int]:
    """Rows as a matcher may give them, apart, and the period."""
    period = draw(st.integers(50, 200))
    found, at = [], 0
    for _ in range(draw(st.integers(0, 8))):
        at += draw(st.sampled_from([0, 0, 5, period // 2, period, 2 * period]))
        matched = draw(st.one_of(st.integers(1, period), st.just(period)))
        alien = draw(st.sampled_from([0, 0, 1, 20, period]))
        missing = draw(st.one_of(st.integers(0, period - matched), st.just(period - matched)))
        found.append((at, at + matched + alien, matched, max(alien, missing)))
        at += matched + alien
    return Matches.from_rows(np.array(found, np.int64).reshape(-1, 4), draw(st.integers(0, 9))), period


@given(passes())
def test_two_true_iterations_are_never_joined(made: tuple[Matches, int]) -> None:
    before, period = made
    after = join_halves(before, period)
    old, new = rows(before), rows(after)
    assert after.matched.sum() == before.matched.sum()
    assert after.foreign == before.foreign
    for first, end, matched, edits in new:
        inside = [row for row in old if first <= row[0] and row[1] <= end]
        assert len(inside) in (1, 2)
        assert (inside[0][0], inside[-1][1]) == (first, end)
        if len(inside) == 1:
            assert inside[0] == (first, end, matched, edits)
            continue
        assert matched == inside[0][2] + inside[1][2] <= 1.02 * period
        assert inside[0][2] < 0.99 * period
        assert inside[1][0] - inside[0][1] <= period
        assert edits >= end - first - matched
        assert matched + edits >= period


@given(passes())
def test_iterations_are_apart_and_half_of_each_but_the_outermost_is_matched(made: tuple[Matches, int]) -> None:
    matches, period = made
    found = to_iterations(matches, period)
    assert (found.first[1:] >= found.end[:-1]).all()
    assert (2 * found.matched[1:-1] >= period).all()
    assert (found.matched >= 0.02 * period).all()
    assert (2 * found.matched[found.complete] >= period).all()
    assert (found.matched + found.edits >= 0.99 * period)[found.complete].all()
    for column in (found.first, found.end, found.matched, found.edits, found.complete):
        assert len(column) == len(found.first)


# --- both ends ------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(st.sampled_from(sorted(TEMPLATES)), st.floats(0.03, 0.96), st.floats(0.03, 0.96))
def test_iterations_cut_at_both_ends_are_kept_and_flagged(name: str, head: float, tail: float) -> None:
    template, p = TEMPLATES[name], len(TEMPLATES[name])
    cut, end = int(p * head), int(p * tail)
    begun = p - cut
    found = found_in(template[cut:] + template * 3 + template[:end], template)
    whole = [(begun + j * p, begun + (j + 1) * p, p, 0, True) for j in range(3)]
    assert found == [(0, begun, begun, 0, False), *whole, (begun + 3 * p, begun + 3 * p + end, end, 0, False)]


def test_less_than_a_fiftieth_of_an_iteration_is_none() -> None:
    assert len(found_in(DISTINCT[:-5] + DISTINCT * 2, DISTINCT)) == 3
    assert [row[:2] for row in found_in(DISTINCT[-5:] + DISTINCT * 2 + DISTINCT[:5], DISTINCT)] == [
        (5, 305),
        (305, 605),
    ]


def test_the_last_iteration_may_lack_what_prepares_the_next() -> None:
    complete = [row[4] for row in found_in(DISTINCT * 3 + DISTINCT[:-3], DISTINCT)]
    assert complete == [True] * 4
    complete = [row[4] for row in found_in(DISTINCT * 3 + DISTINCT[:-4], DISTINCT)]
    assert complete == [True, True, True, False]


def test_parts_within_are_dropped_unless_half_an_iteration() -> None:
    small, large = (DISTINCT * 2 + [FOREIGN] * 400 + DISTINCT[:n] + [FOREIGN] * 400 + DISTINCT * 2 for n in (149, 150))
    assert [row[2] for row in found_in(small, DISTINCT)] == [300] * 4
    assert [row[2] for row in found_in(large, DISTINCT)] == [300, 300, 150, 300, 300]
    assert [row[4] for row in found_in(large, DISTINCT)] == [True, True, False, True, True]


def test_no_pass_gives_no_iteration() -> None:
    assert found_in([], DISTINCT) == []
    assert found_in([FOREIGN] * 1000, DISTINCT) == []


# --- tails ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tail", "given_to"), [(1, 1), (30, 30), (31, 0), (400, 0)])
def test_a_short_tail_belongs_to_the_iteration_before_it(tail: int, given_to: int) -> None:
    found = found_in((DISTINCT + [FOREIGN] * tail) * 3, DISTINCT)
    size = 300 + tail
    expected = [(j * size, j * size + 300 + given_to, 300, given_to, True) for j in range(2)]
    assert found == [*expected, (2 * size, 2 * size + 300, 300, 0, True)]


def test_of_a_short_iteration_eight_symbols_are_a_tail() -> None:
    found = absorb_tails(iterations((0, 10, 10, 0), (18, 28, 10, 0), (37, 47, 10, 0)), 10)
    assert [row[:4] for row in listed(found)] == [(0, 18, 10, 8), (18, 28, 10, 0), (37, 47, 10, 0)]


def test_tails_of_no_iteration_and_of_one() -> None:
    assert listed(absorb_tails(iterations(), 10)) == []
    assert listed(absorb_tails(iterations((3, 9, 6, 0)), 10)) == [(3, 9, 6, 0, True)]


@given(passes())
def test_tails_lengthen_iterations_up_to_the_next_at_most(made: tuple[Matches, int]) -> None:
    matches, period = made
    before = iterations(*rows(matches))
    after = absorb_tails(before, period)
    tail = after.end - before.end
    gap = np.append(before.first[1:], before.end[-1:]) - before.end
    assert tail.tolist() == [size if size <= max(8, 0.1 * period) else 0 for size in gap.tolist()]
    assert (after.edits - before.edits).tolist() == tail.tolist()
    assert (after.first.tolist(), after.matched.tolist()) == (before.first.tolist(), before.matched.tolist())


# --- edits ----------------------------------------------------------------------------------------------------------


def test_edits_are_those_of_the_cheapest_way() -> None:
    symbols = as_symbols([*DISTINCT[:50], 7, 7, *DISTINCT[53:], *DISTINCT])
    bound = iterations((0, 299, 297, 90), (299, 599, 300, 0))
    assert count_edits(bound, symbols, as_symbols(DISTINCT)).edits.tolist() == [3, 0]


@settings(max_examples=examples(60))
@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.data())
def test_edits_never_exceed_the_matchers_bound_and_are_no_fewer_than_there_are(
    template: list[int], data: st.DataObject
) -> None:
    segments = data.draw(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=30), min_size=1, max_size=5))
    first = np.cumsum([0, *map(len, segments)])
    distances = [edit_distance(segment, template, 60) for segment in segments]
    slack = data.draw(st.lists(st.integers(0, 9), min_size=len(segments), max_size=len(segments)))
    bounds = np.array(distances) + slack
    full = np.ones(len(segments), bool)
    found = Iterations(first[:-1], first[1:], 0 * bounds, bounds, full)
    symbols = as_symbols([symbol for segment in segments for symbol in segment])
    assert count_edits(found, symbols, as_symbols(template)).edits.tolist() == distances


def test_cut_iterations_and_those_beyond_what_time_allows_keep_the_bound() -> None:
    template = as_symbols(DISTINCT)
    symbols = as_symbols(DISTINCT * 3)
    wrong = [(j * 300, (j + 1) * 300, 300, 9) for j in range(3)]
    assert count_edits(iterations(*wrong), symbols, template).edits.tolist() == [0, 0, 0]
    assert count_edits(iterations(*wrong, complete=False), symbols, template).edits.tolist() == [9, 9, 9]
    long = as_symbols(np.arange(EXACT_SYMBOLS // 2 + 1))
    twice = iterations((0, len(long), 0, 9), (len(long), 2 * len(long), 0, 9))
    assert count_edits(twice, as_symbols(np.tile(long, 2)), long).edits.tolist() == [0, 9]


# --- iterations that are another loop's -----------------------------------------------------------------------------


def rows_of(lengths: list[int], edits: list[int], complete: list[bool] | None = None) -> Iterations:
    first = np.cumsum([0, *lengths])
    size = np.array(lengths, np.int64)
    whole = np.ones(len(lengths), bool) if complete is None else np.array(complete)
    return Iterations(first[:-1], first[1:], size, np.array(edits, np.int64), whole)


def strangers(edits: list[int], lengths: list[int] | None = None, complete: list[bool] | None = None) -> list[int]:
    return np.flatnonzero(find_strangers(rows_of(lengths or [100] * len(edits), edits, complete), 100)).tolist()


def test_a_stretch_of_three_iterations_that_differ_at_once_is_strange() -> None:
    assert strangers([0, 0, 30, 30, 30, 0]) == [2, 3, 4]
    assert strangers([30, 30, 30, 0, 0]) == [0, 1, 2]
    assert strangers([0, 0, 0, 30, 30, 30]) == [3, 4, 5]
    assert strangers([0, 30, 30, 0, 30, 30]) == []
    assert strangers([0, 10, 10, 10, 0]) == []
    assert strangers([0, 11, 11, 11, 0]) == [1, 2, 3]


def test_what_came_a_little_at_a_time_is_not_strange() -> None:
    assert strangers(list(range(0, 60, 5))) == []
    assert strangers([0, 9, 12, 15, 18]) == []
    assert strangers([*range(0, 60, 3), 0, 0, 50, 50, 50]) == [22, 23, 24]


def test_iterations_far_longer_until_the_next_one_are_strange() -> None:
    assert strangers([0] * 7, [100, 100, 130, 130, 130, 100, 100]) == [2, 3, 4]
    assert strangers([0] * 7, [100, 100, 130, 100, 130, 100, 130]) == []


def test_cut_iterations_are_as_strange_as_can_be() -> None:
    assert strangers([0] * 6, None, [True, True, False, False, False, True]) == [2, 3, 4]
    assert strangers([0] * 6, None, [False, True, True, True, True, False]) == []


@pytest.mark.parametrize("count", [0, 1, 2])
def test_fewer_than_three_iterations_have_no_stretch(count: int) -> None:
    assert strangers([90] * count) == []


@given(st.lists(st.integers(0, 60), max_size=20), st.data())
def test_strangers_are_whole_stretches_as_described(edits: list[int], data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(40, 160), min_size=len(edits), max_size=len(edits)))
    odds = [
        max(e, abs(n - 100) if j + 1 < len(edits) else 0) for j, (e, n) in enumerate(zip(edits, lengths, strict=True))
    ]
    expected: list[int] = []
    j = 0
    while j < len(odds):
        end = j
        while end < len(odds) and odds[end] > 10:
            end += 1
        if end - j >= 3 and odds[j] - (odds[j - 1] if j else 0) > 5:
            expected += range(j, end)
        j = max(end, j + 1)
    assert strangers(edits, lengths) == expected


def test_a_rest_of_the_iteration_before_is_not_joined_to_a_whole_one() -> None:
    found = found_in(DISTINCT[-6:] + DISTINCT[:100] + DISTINCT[101:] + DISTINCT * 3, DISTINCT)
    assert found[:2] == [(0, 6, 6, 0, False), (6, 305, 299, 1, True)]
