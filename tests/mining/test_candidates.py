from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from deepprof.mining import Family
from deepprof.mining.candidates import follow, reach_left, reach_right
from deepprof.mining.ranges import comes_once, suggest_levels
from deepprof.mining.symbols import as_symbols
from tests.chance import examples

LAYERS = [1, 2, *[3, 4, 5, 6, 7] * 6, 8, 9, 10, *[11, 12] * 8]


def brute_left(symbols: list[int], template: list[int], at: int) -> int:
    p = len(template)
    while at > 0 and symbols[at - 1] == template[-1]:
        at, template = at - 1, template[-1:] + template[:-1]
    assert p == len(template)
    return at


@given(st.lists(st.integers(0, 2), min_size=1, max_size=4), st.integers(0, 30), st.data())
def test_reach_is_how_far_the_cyclic_template_goes(template: list[int], at: int, data: st.DataObject) -> None:
    symbols = data.draw(st.lists(st.integers(0, 2), min_size=at, max_size=40))
    text, pattern = as_symbols(symbols or [0]), as_symbols(template)
    at = min(at, len(symbols))
    assert reach_left(text, pattern, at) == brute_left(list(text), template, at)
    backwards = brute_left(list(text)[::-1], template[::-1], len(text) - at)
    assert reach_right(text, pattern, at) == len(text) - backwards


def test_a_first_lock_in_the_wrong_layer_is_put_right() -> None:
    symbols = as_symbols((LAYERS * 3)[4:])
    _, matches = follow(symbols, as_symbols(LAYERS))
    assert matches.edits.tolist() == [0, 0, 0]
    assert matches.matched.tolist() == [len(LAYERS) - 4, len(LAYERS), len(LAYERS)]
    assert matches.end.tolist() == np.cumsum(matches.matched).tolist()


def test_an_edited_first_pass_is_kept() -> None:
    edited = LAYERS[:20] + [99] * 5 + LAYERS[20:]
    _, matches = follow(as_symbols(edited + LAYERS * 3), as_symbols(LAYERS))
    assert matches.edits.tolist() == [5, 0, 0, 0]


@settings(max_examples=examples(50))
@given(st.integers(0, 10_000), st.floats(0, 0.1))
def test_rows_stay_apart_and_account_for_every_symbol(seed: int, noise: float) -> None:
    rng = np.random.default_rng(seed)
    symbols = np.tile(LAYERS, 6)[int(rng.integers(0, len(LAYERS))) :]
    symbols = np.where(rng.random(len(symbols)) < noise, 50, symbols)
    _, matches = follow(as_symbols(symbols), as_symbols(LAYERS))
    assert (matches.first[1:] >= matches.end[:-1]).all()
    assert (matches.end - matches.first).sum() + matches.foreign == len(symbols)
    assert (matches.matched <= matches.end - matches.first).all()


def family(*positions: int) -> Family:
    return Family("range", "step", np.array(positions, np.int64))


def test_a_range_per_period_is_seen_whatever_the_phase() -> None:
    assert all(comes_once(family(o, o + 100, o + 200), 0, 300, 100, 3.0) for o in (0, 50, 99, 100))
    assert not comes_once(family(0, 50, 100, 150, 200, 250), 0, 300, 100, 3.0)
    assert not comes_once(family(0, 200), 0, 400, 100, 4.0)
    assert not comes_once(family(0, 5, 10), 0, 300, 100, 3.0)


def test_regular_ranges_suggest_a_level_once() -> None:
    families = [family(0, 100, 200), family(7, 107, 207), family(0, 3, 90, 91, 200), family(0, 100)]
    assert [level.period for level in suggest_levels(families, 300)] == [100]
