"""Programs of several loops: each is found once, one loop stays one, and iterations of two loops never overlap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepprof.mining import Evidence, Family, Iterations, MinedLoop, MiningResult, find_loop, find_loops
from deepprof.mining.several import in_order, settle_ends, stretches, uncovered
from deepprof.mining.symbols import as_symbols
from tests.chance import examples
from tests.mining.jobs import Job, score


def model(layers: int, seed: int = 0, base: int = 0, forward: int = 11, backward: int = 19) -> list[int]:
    """Return one iteration of a made-up model; those of one seed and base differ in their number of layers only."""
    rng = np.random.default_rng(seed)
    sizes = ((0, 20, 7), (5, 40, forward), (40, 48, 7), (20, 70, backward), (70, 80, 6))
    pre, layer, loss, back, update = ((rng.integers(low, high, size) + base).tolist() for low, high, size in sizes)
    return [*pre, *layer * layers, *loss, *back * layers, *update * layers]


Finder = Callable[..., MiningResult]

BIG = model(12)
SMALL = model(8, seed=1, base=100, forward=9, backward=13)
VALIDATION = [*BIG[: 7 + 11 * 12], 90, 91]  # the same forward pass, and two kernels that only this has


def in_turn(*turns: tuple[list[int], int]) -> tuple[list[int], list[list[int]]]:
    """Return each iteration this many times, and where those of every distinct one begin, in order of appearance."""
    symbols: list[int] = []
    starts: dict[int, list[int]] = {}
    for iteration, times in turns:
        for _ in range(times):
            starts.setdefault(id(iteration), []).append(len(symbols))
            symbols += iteration
    return symbols, list(starts.values())


def starts_of(loop: MinedLoop) -> npt.NDArray[np.int64]:
    return loop.iterations.first[loop.iterations.complete]


def are_apart(loops: tuple[MinedLoop, ...]) -> bool:
    """Return whether no symbol is in two iterations, of one loop or of two."""
    rows = sorted((a, b) for loop in loops for a, b in zip(loop.iterations.first, loop.iterations.end, strict=True))
    return all(end <= first for (_, end), (first, _) in pairwise(rows))


def assert_found(mined: MiningResult, truth: list[tuple[int, list[int]]], at_least: float = 0.95) -> None:
    """The loops are those with these periods and starts, whatever the place in the period where they begin."""
    assert sorted(loop.period for loop in mined.loops) == sorted(period for period, _ in truth)
    for period, starts in truth:
        (loop,) = (loop for loop in mined.loops if loop.period == period)
        assert score(starts_of(loop), starts) >= at_least
    assert are_apart(mined.loops)


def test_one_model_and_then_another() -> None:
    symbols, (big, small) = in_turn((BIG, 20), (SMALL, 25))
    mined = find_loops(symbols)
    assert_found(mined, [(len(BIG), big), (len(SMALL), small)], 1.0)
    assert [loop.period for loop in mined.loops] == [len(BIG), len(SMALL)]
    assert [starts_of(loop).tolist() for loop in mined.loops] == [big, small]


def test_the_loop_that_explains_most_comes_first_wherever_it_stands() -> None:
    first, second = (find_loops(one).loops for one in (SMALL * 12 + BIG * 30, SMALL * 90 + BIG * 12))
    assert [loop.period for loop in first] == [len(BIG), len(SMALL)]
    assert [loop.period for loop in second] == [len(SMALL), len(BIG)]


def test_three_models_one_after_another() -> None:
    third = model(10, seed=4, base=200, forward=10, backward=15)
    symbols, starts = in_turn((BIG, 20), (SMALL, 20), (third, 20))
    periods = [len(BIG), len(SMALL), len(third)]
    assert_found(find_loops(symbols), list(zip(periods, starts, strict=True)))


@pytest.mark.parametrize(("before", "after"), [(24, 28), (12, 14), (28, 24)])
def test_more_or_fewer_layers_from_some_iteration_on_are_another_loop(before: int, after: int) -> None:
    one, other = model(before), model(after)
    symbols, (first, second) = in_turn((one, 15), (other, 15))
    assert_found(find_loops(symbols), [(len(one), first), (len(other), second)], 0.93)


def test_two_loops_taking_turns_of_different_lengths_are_two() -> None:
    symbols, (big, small) = in_turn((BIG, 5), (SMALL, 14), (BIG, 9), (SMALL, 3), (BIG, 2), (SMALL, 8), (BIG, 7))
    assert_found(find_loops(symbols), [(len(BIG), big), (len(SMALL), small)], 0.93)


@pytest.mark.parametrize("turns", [(1, 1), (5, 5), (7, 4)])
def test_two_loops_taking_turns_of_one_length_are_one_larger_iteration(turns: tuple[int, int]) -> None:
    one, other = turns
    mined = find_loops((BIG * one + SMALL * other) * 12)
    assert [loop.period for loop in mined.loops] == [one * len(BIG) + other * len(SMALL)]


@pytest.mark.parametrize(("every", "passes"), [(5, 4), (20, 20)])
def test_training_comes_before_its_validation_and_names_it(every: int, passes: int) -> None:
    symbols, (training, _) = in_turn(*[(BIG, every), (VALIDATION, passes)] * (40 // every + 1))
    mined = find_loops(symbols)
    assert [loop.period for loop in mined.loops] == [len(BIG), len(VALIDATION)]
    assert score(starts_of(mined.loops[0]), training) >= 0.95
    assert [(c.every, c.extra, c.kind) for c in mined.loops[0].cycles] == [
        (every, passes * len(VALIDATION), "evaluation")
    ]
    assert mined.loops[1].cycles == ()
    assert are_apart(mined.loops)


@pytest.mark.parametrize("seed", range(4))
def test_the_last_pass_of_an_evaluation_is_not_the_beginning_of_one_more_iteration(seed: int) -> None:
    """It is all that such an iteration, cut by the end of the capture, would have shown."""
    training = model(12, seed)
    test = training[: 7 + 11 * 12]
    symbols, (steps, _) = in_turn(*[(training, 5), (test, 10)] * 6)
    mined = find_loops(symbols)
    assert [loop.period for loop in mined.loops] == [len(training), len(test)]
    assert mined.loops[0].iterations.first.tolist() == steps
    assert int(mined.loops[1].iterations.matched.sum()) > 59.5 * len(test)  # wherever its passes begin
    assert are_apart(mined.loops)


def test_what_is_given_to_another_loop_leaves_its_later_iterations() -> None:
    """A training loop whose last, cut iteration is the first of many test passes."""
    training = model(12, 3)
    symbols, _ = in_turn((training, 20), (training[: 7 + 11 * 12], 30))
    one, other = find_loops(symbols).loops
    tests = other.iterations.first
    assert len(tests) == 30
    last = Iterations(*(np.array([x]) for x in (tests[0], tests[1], other.period, 0, False)))
    cut = replace(one, iterations=in_order(one.iterations, last))
    later = replace(other, iterations=other.iterations.select(other.iterations.first >= tests[1]))
    settled = settle_ends(as_symbols(np.array(symbols)), [cut, later])
    assert [loop.iterations.first.tolist() for loop in settled] == [one.iterations.first.tolist(), tests.tolist()]


ONE_LOOP = {
    "clean": Job(),
    "noise": Job(p_insert=0.4, p_delete=0.3, p_substitute=0.003),
    "a kernel more every third iteration": Job(growth=3, iterations=40),
    "a kernel more in each iteration": Job(growth=1, iterations=60),
    "cut": Job(prologue=0, cut=170),
}


def same(one: MinedLoop, other: MinedLoop) -> bool:
    arrays = all(
        np.array_equal(getattr(one.iterations, name), getattr(other.iterations, name)) for name in Iterations.__slots__
    )
    numbers = [(v.confidence, v.start_confidence, v.evidence, v.source, v.family, v.nested) for v in (one, other)]
    bounds = [(v.prologue, v.epilogue, [(c.every, c.extra) for c in v.cycles]) for v in (one, other)]
    return (
        arrays
        and numbers[0] == numbers[1]
        and bounds[0] == bounds[1]
        and one.template.tolist() == other.template.tolist()
    )


@pytest.mark.parametrize("name", ONE_LOOP)
def test_of_one_loop_they_say_what_find_loop_says(name: str) -> None:
    symbols = ONE_LOOP[name].symbols()
    (alone,), found = find_loops(symbols).loops, find_loop(symbols).loop
    assert found is not None
    assert same(alone, found)


def test_evidence_and_coarse_names_are_used_as_in_find_loop() -> None:
    job = Job(prologue=0)
    symbols = job.symbols()
    variants = np.where(np.random.default_rng(0).random(len(symbols)) < 0.4, symbols + 100, symbols)
    marks = Evidence(families=(Family("ProfilerStep", "step", np.array(job.starts) + 7),))
    coarse = np.arange(200) % 100
    (alone,), found = find_loops(variants, marks, coarse=coarse).loops, find_loop(variants, marks, coarse=coarse).loop
    assert found is not None
    assert same(alone, found)
    assert (alone.period, alone.source) == (job.period, "annotation")


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_growth_by_a_few_kernels_at_a_time_stays_one_loop(steps: int) -> None:
    grown = [[*BIG[:20], *[95] * (steps * j // 2), *BIG[20:]] for j in range(60)]
    mined = find_loops([symbol for iteration in grown for symbol in iteration])
    assert len(mined.loops) == 1
    assert len(starts_of(mined.loops[0])) >= 58


def test_what_is_no_loop_beside_one_gives_none() -> None:
    noise = np.random.default_rng(5).integers(0, 60, 6000)
    assert [loop.period for loop in find_loops(np.concatenate([np.tile(BIG, 12), noise])).loops] == [len(BIG)]


def test_a_loop_on_less_than_a_twentieth_is_left_out() -> None:
    assert [len(find_loops(BIG * 100 + SMALL * times).loops) for times in (7, 13)] == [1, 2]


NO_LOOP = {
    "empty": [],
    "one": [4],
    "two": [4, 4],
    "all equal": [3] * 3000,
    "counting": list(range(4000)),
    "random": np.random.default_rng(0).integers(0, 60, 5000).tolist(),
    "two iterations": BIG * 2,
    "the layers of one pass": [90, 91, *[1, 2, 3, 4, 5, 1, 6, 7] * 24, 92, 93],
}


@pytest.mark.parametrize("name", NO_LOOP)
def test_where_no_loop_is_there_is_a_reason(name: str) -> None:
    mined = find_loops(NO_LOOP[name])
    assert (mined.loops, mined.loop) == ((), None)
    assert mined.reason == find_loop(NO_LOOP[name]).reason
    assert mined.reason


@settings(max_examples=examples(40))
@given(st.lists(st.integers(0, 5), max_size=80))
def test_any_short_sequence_gives_loops_or_a_reason(symbols: list[int]) -> None:
    mined = find_loops(symbols)
    assert bool(mined.loops) == (mined.reason is None)


def test_symbols_that_only_just_fit_sixteen_bits_leave_one_to_hide_what_was_found() -> None:
    symbols = np.array(BIG * 20 + SMALL * 20)
    symbols[symbols == symbols.max()] = 2**16 - 1
    assert [loop.period for loop in find_loops(symbols).loops] == [len(BIG), len(SMALL)]


def test_names_of_an_optimizer_serve_all_loops() -> None:
    optimizer = np.isin(np.arange(200), [*range(70, 80), *range(170, 180)])
    mined = find_loops(BIG * 20 + SMALL * 20, Evidence(optimizer=optimizer))
    assert [loop.period for loop in mined.loops] == [len(BIG), len(SMALL)]
    assert all("an optimizer's kernels in each" in loop.evidence for loop in mined.loops)


# --- wrong arguments ------------------------------------------------------------------------------------------------

JOB = Job(iterations=4)
SYMBOLS = JOB.symbols()
N, ALPHABET = len(SYMBOLS), int(SYMBOLS.max()) + 1


def damaged(value: float, at: int = 7) -> npt.NDArray[np.float64]:
    values = np.ones(N)
    values[at] = value
    return values


WRONG_EVIDENCE = {
    **{f"{name} too short": {name: np.ones(N - 1)} for name in ("gaps", "launch_gaps")},
    **{f"{name} too long": {name: np.ones(N + 1)} for name in ("gaps", "launch_gaps")},
    **{f"{name} as a table": {name: np.ones((N, 2))} for name in ("gaps", "launch_gaps")},
    **{f"{name} with NaN": {name: damaged(float("nan"))} for name in ("gaps", "launch_gaps")},
    **{f"{name} with infinity": {name: damaged(float("inf"))} for name in ("gaps", "launch_gaps")},
    **{f"{name} too short": {name: np.ones(N - 1, bool)} for name in ("copies", "syncs", "graphs")},
    **{f"{name} too long": {name: np.ones(N + 1, bool)} for name in ("copies", "syncs", "graphs")},
    "no entry at all": {"copies": np.ones(0, bool)},
    "optimizer for too few symbols": {"optimizer": np.zeros(ALPHABET - 1, bool)},
}


@pytest.mark.parametrize("find", [find_loop, find_loops])
@pytest.mark.parametrize("name", WRONG_EVIDENCE)
def test_evidence_that_does_not_fit_the_sequence_is_a_value_error(find: Finder, name: str) -> None:
    (field,) = WRONG_EVIDENCE[name]
    with pytest.raises(ValueError, match=rf"\A.*`{field}` must.*\Z"):
        find(SYMBOLS, Evidence(**WRONG_EVIDENCE[name]))


@pytest.mark.parametrize("find", [find_loop, find_loops])
@pytest.mark.parametrize("positions", [[0.5, 100.5, 200.5], [[0, 100], [200, 300]]], ids=["fractions", "a table"])
def test_positions_that_are_none_are_a_value_error(find: Finder, positions: list[object]) -> None:
    with pytest.raises(ValueError, match=r"\A.*'my_step' must be one-dimensional integers\Z"):
        find(SYMBOLS, Evidence(families=(Family("my_step", "step", np.array(positions)),)))


@pytest.mark.parametrize("find", [find_loop, find_loops])
@pytest.mark.parametrize(
    "coarse",
    [np.arange(ALPHABET - 1), np.arange(3), -np.arange(ALPHABET), np.ones(ALPHABET), np.zeros((ALPHABET, 2), int)],
    ids=["one too few", "far too few", "negative", "fractions", "a table"],
)
def test_coarse_symbols_that_are_no_map_of_all_are_a_value_error(find: Finder, coarse: npt.NDArray[np.int64]) -> None:
    with pytest.raises(ValueError, match=r"\A`coarse` must.*\Z"):
        find(SYMBOLS, coarse=coarse)


@pytest.mark.parametrize("find", [find_loop, find_loops])
@pytest.mark.parametrize("windows", [(), (0,), (-5, 4000), (4000, 800)], ids=str)
@pytest.mark.parametrize("symbols", [SYMBOLS, np.empty(0, int)], ids=["job", "empty"])
def test_windows_that_are_no_ascending_sizes_are_a_value_error(
    find: Finder, symbols: npt.NDArray[np.int64], windows: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match=r"\Awindows must be ascending"):
        find(symbols, windows=windows)


@pytest.mark.parametrize("find", [find_loop, find_loops])
@pytest.mark.parametrize("windows", [(1,), (500,), (1000, 1000), (700, 1 << 40)], ids=str)
def test_windows_of_any_size_do(find: Finder, windows: tuple[int, ...]) -> None:
    mined = find(SYMBOLS, windows=windows)
    assert bool(mined.loops) == (mined.reason is None)


@pytest.mark.parametrize("find", [find_loop, find_loops])
@pytest.mark.parametrize("positions", [[-500, -3], [N, 10 * N, 2**60], [], [5] * 9], ids=str)
def test_positions_outside_of_the_sequence_are_no_error_and_no_evidence(find: Finder, positions: list[int]) -> None:
    loop = find(SYMBOLS, Evidence(families=(Family("my_step", "step", np.array(positions, np.int64)),))).loop
    assert loop is not None
    assert (loop.period, loop.source) == (JOB.period, "mined")


@pytest.mark.parametrize("find", [find_loop, find_loops])
def test_positions_need_no_order(find: Finder) -> None:
    marks = np.array(JOB.starts)[[2, 0, 3, 1]] + 9
    loop = find(SYMBOLS, Evidence(families=(Family("my_step", "step", marks),))).loop
    assert loop is not None
    assert loop.source == "annotation"
    assert loop.iterations.first[loop.iterations.complete].tolist() == sorted(marks)[: loop.iterations.complete.sum()]


@pytest.mark.parametrize("find", [find_loop, find_loops])
def test_masks_and_maps_may_know_more_symbols_than_there_are(find: Finder) -> None:
    variants = np.where(np.random.default_rng(0).random(N) < 0.4, SYMBOLS + 100, SYMBOLS)
    optimizer = np.isin(np.arange(1000) % 100, range(70, 80))
    for marks, coarse in ((optimizer, np.arange(1000) % 100), (optimizer[:200], np.arange(1000) % 100)):
        loop = find(variants, Evidence(optimizer=marks), coarse=coarse).loop
        assert loop is not None
        assert loop.period == JOB.period
        assert "an optimizer's kernels in each" in loop.evidence


@pytest.mark.parametrize("find", [find_loop, find_loops])
@pytest.mark.parametrize("largest", [2**16 - 1, 2**16, 10**9, 2**32 - 2])
def test_symbols_may_be_as_large_as_they_like(find: Finder, largest: int) -> None:
    small, large = SYMBOLS, np.where(SYMBOLS < ALPHABET - 1, SYMBOLS, largest)
    one, other = find(small).loop, find(large).loop
    assert one is not None
    assert other is not None
    assert np.where(one.template == small.max(), np.int64(largest), one.template).tolist() == other.template.tolist()
    assert one.iterations.first.tolist() == other.iterations.first.tolist()
    assert one.confidence == other.confidence


def test_cycles_are_told_in_the_symbols_own_values() -> None:
    job = Job(iterations=20, eval_every=5)
    symbols = job.symbols()
    small, large = (find_loop(values).loop for values in (symbols, symbols + 3 * 10**9))
    assert small is not None
    assert large is not None
    assert (
        [(c.every, c.extra, c.kind) for c in large.cycles] == [(c.every, c.extra, c.kind) for c in small.cycles] != []
    )
    assert (small.cycles[0].content + np.int64(3 * 10**9)).tolist() == large.cycles[0].content.tolist()
    assert (small.cycles[0].whole + np.int64(3 * 10**9)).tolist() == large.cycles[0].whole.tolist()


# --- its parts ------------------------------------------------------------------------------------------------------


@given(st.lists(st.booleans(), max_size=400), st.integers(0, 250))
def test_stretches_are_the_longest_free_ones_from_long_to_short(marks: list[bool], long: int) -> None:
    free = np.array([*marks, *[True] * long, False, *[True] * 200], bool)
    found = list(stretches(free))
    sizes = [end - first for first, end in found]
    assert sizes == sorted(sizes, reverse=True)
    assert len(found) <= 8
    for first, end in found:
        assert free[first:end].all()
        assert end - first >= 192
        assert first == 0 or not free[first - 1]
        assert end == len(free) or not free[end]
    assert (len(free) - 200, len(free)) in found


@cache
def some_loop() -> MinedLoop:
    loop = find_loop(BIG * 4).loop
    assert loop is not None
    return loop


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), max_size=6), st.integers(30, 50))
def test_uncovered_is_what_lies_in_no_iteration(rows: list[tuple[int, int]], length: int) -> None:
    first = np.array([a for a, _ in rows], np.int64)
    end = np.minimum(first + np.array([size for _, size in rows], np.int64), length)
    loop = replace(some_loop(), iterations=Iterations(first, end, end - first, 0 * first, np.ones(len(rows), bool)))
    inside = {place for a, b in zip(first.tolist(), end.tolist(), strict=True) for place in range(a, b)}
    assert np.flatnonzero(~uncovered(length, [loop])).tolist() == sorted(inside)


def test_names_serve_loops_around_others() -> None:
    optimizer = np.isin(np.arange(180), [*range(70, 80), *range(170, 180)])
    mined = find_loops(BIG * 160 + (SMALL * 4 + BIG * 2) * 10, Evidence(optimizer=optimizer))
    assert [loop.period for loop in mined.loops] == [len(BIG), len(SMALL)]


def test_a_small_loop_between_large_iterations_stays_its_own() -> None:
    small = [1, *[2, 3, 4, 5] * 8, 6, *[7, 3, 8, 4, 9] * 8, *[10, 11] * 6]
    large = [30, *list(range(31, 44)) * 30, 44, *list(range(45, 62)) * 30, *[62, 63, 64] * 30]
    assert are_apart(find_loops(small * 800 + (large * 4 + small) * 16).loops)


def test_a_loop_that_gives_its_strangers_away_ends_before_them() -> None:
    loops = find_loops(model(24) * 15 + model(28) * 15).loops
    assert sorted(loop.epilogue for loop in loops)[0] <= 30
    assert sorted(loop.epilogue for loop in loops)[1] >= 15 * len(model(28))
