"""Where passes begin, put right: never fewer symbols explained, rows apart, every symbol accounted for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepprof.mining.heads import align_head, begin_late, passes_before, unbroken
from deepprof.mining.matching import Matches, match
from deepprof.mining.symbols import SymbolArray, as_symbols
from tests.chance import examples
from tests.mining.streams import noisy_streams, rows

LAYERS = [1, 2, *[3, 4, 5, 6, 7] * 6, 8, 9, 10, *[11, 12] * 8]
P = len(LAYERS)
DISTINCT = list(range(100, 160))


def made(*parts: tuple[int, int, int, int], foreign: int = 0) -> Matches:
    return Matches.from_rows(np.array(parts, np.int64).reshape(-1, 4), foreign)


def accounts_for(matches: Matches, symbols: SymbolArray) -> bool:
    """Return whether the rows are apart, within the stream, and together with what is foreign all of it."""
    m = matches
    apart = bool((m.first[1:] >= m.end[:-1]).all() and (m.first <= m.end).all())
    within = not len(m) or (m.first[0] >= 0 and m.end[-1] <= len(symbols))
    sane = bool((m.matched >= 0).all() and (m.matched <= m.end - m.first).all() and (m.edits >= 0).all())
    return apart and bool(within) and sane and int((m.end - m.first).sum()) + m.foreign == len(symbols)


@settings(max_examples=examples(150))
@given(noisy_streams(), st.lists(st.integers(0, 90), max_size=60))
def test_aligning_backwards_explains_never_less_and_keeps_the_accounts(
    made_up: tuple[list[int], np.ndarray], warm_up: list[int]
) -> None:
    template, stream = as_symbols(made_up[0]), as_symbols(np.concatenate([warm_up, made_up[1]]).astype(np.int64))
    before = match(stream, template)
    after = align_head(stream, template, before)
    assert accounts_for(after, stream)
    assert after.matched.sum() >= before.matched.sum()
    exact = (before.edits == 0) & (before.matched == len(template))
    kept = rows(before)[int(np.argmax(exact)) :] if exact.any() else rows(before)
    assert rows(after)[len(after) - len(kept) :] == kept


starts_over = st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(-1, 50))


@settings(max_examples=examples(150))
@given(st.sampled_from([LAYERS, DISTINCT]), st.lists(starts_over, max_size=6), st.lists(st.integers(0, 9), max_size=20))
def test_beginning_late_moves_first_symbols_only_and_never_adds_edits(
    template: list[int], parts: list[tuple[int, int, int]], tail: list[int]
) -> None:
    symbols: list[int] = []
    for begun, alien, wrong in parts:
        symbols += [*template[:begun], *[50] * alien, *(51 if at == wrong else s for at, s in enumerate(template))]
    stream, pattern = as_symbols(symbols + tail), as_symbols(template)
    before = match(stream, pattern)
    after = begin_late(stream, pattern, before)
    assert accounts_for(after, stream)
    assert after.end.tolist() == before.end.tolist()
    assert (after.first >= before.first).all()
    assert (after.edits <= before.edits).all()
    assert (after.matched >= np.minimum(before.matched, 0.98 * len(template))).all()
    moved = after.first > before.first
    assert ((after.end - after.first)[moved] == len(template)).all()
    differences = [
        int((stream[a:b] != pattern).sum()) for a, b in zip(after.first[moved], after.end[moved], strict=True)
    ]
    assert after.edits[moved].tolist() == differences


@pytest.mark.parametrize("cut", [*range(2, 32, 5), 40, 50])
@pytest.mark.parametrize("alien", [0, 7, 40])
def test_a_warm_up_before_a_part_of_a_pass_is_told_from_it(cut: int, alien: int) -> None:
    symbols = as_symbols([50] * alien + LAYERS[cut:] + LAYERS * 3)
    matches = align_head(symbols, as_symbols(LAYERS), match(symbols, LAYERS))
    left = P - cut
    assert matches.first[-4:].tolist() == [alien, *(alien + left + P * np.arange(3)).tolist()]
    assert matches.edits.tolist()[-4:] == [0] * 4
    assert matches.matched[-4:].tolist() == [left, P, P, P]
    assert accounts_for(matches, symbols)


def test_a_lock_in_the_wrong_one_of_equal_layers_is_put_right() -> None:
    symbols = as_symbols([50] * 30 + LAYERS[10:] + LAYERS * 2)
    assert rows(match(symbols, LAYERS))[0] == (20, 71, 41, 10)  # what there is to put right
    assert rows(align_head(symbols, as_symbols(LAYERS), match(symbols, LAYERS)))[0] == (30, 71, 41, 0)


def test_where_backwards_is_no_better_nothing_changes() -> None:
    template = as_symbols(LAYERS)
    for symbols in (
        LAYERS[5:] + LAYERS * 2,
        [],
        [50] * 9,
        LAYERS[:30],
        LAYERS * 3,
        [*LAYERS[:20], 50, *LAYERS[21:]] * 2,
    ):
        stream = as_symbols(symbols)
        before = match(stream, template)
        assert align_head(stream, template, before) is before


def test_passes_before_end_one_at_the_other_and_end_where_told() -> None:
    symbols = as_symbols(LAYERS + [50] * 200 + LAYERS[8:] + LAYERS + LAYERS)
    until = len(symbols) - P
    found = passes_before(symbols, as_symbols(LAYERS), until)
    assert rows(found) == [(until - 2 * P + 8, until - P, P - 8, 0), (until - P, until, P, 0)]
    assert rows(passes_before(symbols, as_symbols(LAYERS), 0)) == []


def test_unbroken_rows_are_those_up_to_the_first_gap() -> None:
    apart = np.array([[3, 5, 2, 0], [5, 9, 4, 0], [10, 12, 2, 0], [12, 13, 1, 0]])
    assert [unbroken(apart, at) for at in (3, 2)] == [2, 0]
    assert unbroken(apart[:2], 3) == 2
    assert unbroken(apart[:0], 3) == 0


def test_a_few_first_symbols_and_foreign_ones_before_a_whole_pass_are_not_of_it() -> None:
    symbols = as_symbols(LAYERS + LAYERS[:6] + [50] * 9 + LAYERS * 2)
    before = match(symbols, LAYERS)
    assert rows(before)[1] == (P, 2 * P + 15, 50, 16)  # what there is to put right
    after = begin_late(symbols, as_symbols(LAYERS), before)
    assert rows(after) == [(P * j + 15 * (j > 0), P * (j + 1) + 15 * (j > 0), P, 0) for j in range(3)]
    assert after.foreign == 15


def test_symbols_inserted_within_a_pass_stay_in_it() -> None:
    symbols = as_symbols(DISTINCT + DISTINCT[:30] + [7] * 12 + DISTINCT[30:] + DISTINCT)
    before = match(symbols, DISTINCT)
    assert rows(begin_late(symbols, as_symbols(DISTINCT), before)) == rows(before)


def test_the_first_symbols_of_a_late_pass_are_the_templates() -> None:
    """The last period of a pass that differs in its first symbols begins somewhere else."""
    wrong = [DISTINCT[0], 7, *DISTINCT[2:]]
    symbols = as_symbols(DISTINCT + DISTINCT[:2] + [9] * 5 + wrong + DISTINCT)
    before = made((0, 60, 60, 0), (60, 127, 59, 8), (127, 187, 60, 0))
    assert rows(begin_late(symbols, as_symbols(DISTINCT), before)) == rows(before)
    late = [*DISTINCT[:30], 7, *DISTINCT[31:]]
    symbols = as_symbols(DISTINCT + DISTINCT[:2] + [9] * 5 + late + DISTINCT)
    assert rows(begin_late(symbols, as_symbols(DISTINCT), before))[1] == (67, 127, 59, 1)


def test_as_many_differences_as_edits_move_nothing() -> None:
    flat = [5] * 90 + list(range(10, 20))
    symbols = as_symbols(flat + [5] * 50 + [9] + flat[50:] + flat)
    before = made((0, 100, 100, 0), (100, 201, 100, 1), (201, 301, 100, 0))
    assert rows(begin_late(symbols, as_symbols(flat), before)) == rows(before)
