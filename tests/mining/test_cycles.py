"""What comes back every this many iterations: its distance, its size, what it is, and that chance is no cycle."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.mining import Evidence, Family, Iterations, LoopCycle, find_loop
from deepprof.mining.cycles import Kind, find_cycles, insertion_place, rhythm
from tests.mining.jobs import Job

Ints = npt.NDArray[np.int64]

ITERATION = [0, *[1, 2, 3, 4, 5] * 6, 6, 7, *[8, 2, 9, 4, 10] * 6, 11]  # a micro-batch: no loop over parameters
LOOP, EVALUATION = [40, 41] * 10, [0, *[1, 2, 3, 4, 5] * 6, 6, 50]
CHECKPOINT, STATISTICS = list(range(60, 75)), [80, 81, 82, 83]
P = len(ITERATION)


def stream(after: Sequence[Sequence[int]], iteration: Sequence[int] = ITERATION) -> tuple[Ints, Iterations]:
    """Return one iteration for each of `after`, followed by these symbols, and where the iterations are."""
    first = np.cumsum([0, *(len(iteration) + len(extra) for extra in after)])[:-1]
    symbols = np.concatenate([[*iteration, *extra] for extra in after]).astype(np.int64)
    full = np.full(len(after), len(iteration))
    return symbols, Iterations(first, first + full, full, 0 * full, np.ones(len(after), bool))


def every(distance: int, extra: Sequence[int], count: int, begin: int | None = None) -> list[list[int]]:
    """Return what is after each of `count` iterations: `extra` after every this many, from `begin` on."""
    begin = distance - 1 if begin is None else begin
    return [list(extra) if j >= begin and (j - begin) % distance == 0 else [] for j in range(count)]


def cycles_of(
    after: Sequence[Sequence[int]], optimizer: npt.NDArray[np.bool_] | None = None, iteration: Sequence[int] = ITERATION
) -> list[LoopCycle]:
    symbols, rows = stream(after, iteration)
    return find_cycles(symbols.astype(np.uint16), rows, np.array(iteration, np.uint16), optimizer)


def named(*values: int) -> npt.NDArray[np.bool_]:
    """Return a mask over symbol values: those whose names look like an optimizer's."""
    return np.isin(np.arange(1000), values)


def kinds(cycles: Sequence[LoopCycle]) -> list[tuple[int, int, Kind]]:
    return [(c.every, c.extra, c.kind) for c in cycles]


@given(
    distance=st.integers(2, 9),
    size=st.integers(2, 150),
    times=st.integers(3, 8),
    place=st.integers(0, P),
    begin=st.integers(0, 8),
)
def test_a_stretch_that_comes_every_so_many_iterations_is_found_exactly(
    distance: int, size: int, times: int, place: int, begin: int
) -> None:
    extra, begin = list(range(200, 200 + size)), begin % distance
    count = begin + (times - 1) * distance + 2  # the last iteration has no successor, and shows nothing
    due = [j >= begin and (j - begin) % distance == 0 for j in range(count)]
    parts = [[*ITERATION[:place], *extra * here, *ITERATION[place:]] for here in due]
    first = np.cumsum([0, *map(len, parts)])
    symbols = np.concatenate(parts).astype(np.uint16)
    rows = Iterations(first[:-1], first[1:], np.diff(first), np.zeros(count, np.int64), np.ones(count, bool))
    (cycle,) = find_cycles(symbols, rows, np.array(ITERATION, np.uint16), None)
    assert (cycle.every, cycle.extra, cycle.phase) == (distance, size, begin)
    assert cycle.content.tolist() == extra
    assert len(cycle.whole) == distance * P + size
    after = first[begin] + place + size
    assert cycle.whole.tolist() == symbols[after : after + len(cycle.whole)].tolist()


@given(st.integers(2, 6), st.integers(1, 40), st.integers(3, 6))
def test_one_symbol_more_is_enough_for_a_cycle(distance: int, size: int, times: int) -> None:
    after = every(distance, range(200, 200 + size), times * distance + 1)
    for iteration in ([1, 2, 3, 4, 5, 6, 7], ITERATION):
        assert [(c.every, c.extra) for c in cycles_of(after, iteration=iteration)] == [(distance, size)]


@pytest.mark.parametrize(
    ("distance", "extra", "optimizer", "kind"),
    [
        (4, LOOP, None, "accumulation"),
        (6, LOOP, None, "accumulation"),
        (4, CHECKPOINT, None, "accumulation"),  # its own kernels every 4, 8 or 16 times: most likely an optimizer
        (6, CHECKPOINT, None, "checkpoint"),
        (6, CHECKPOINT, named(61), "accumulation"),
        (6, LOOP, named(900), "accumulation"),  # no name of the stream's kernels shows anything
        (4, LOOP, named(5), "checkpoint"),  # every iteration has its own optimizer
        (4, LOOP, named(5, 40), "checkpoint"),
        (5, EVALUATION, None, "evaluation"),
        (4, EVALUATION, None, "evaluation"),
        (5, EVALUATION, named(5), "evaluation"),
        (5, EVALUATION * 5, None, "evaluation"),
        (5, STATISTICS, None, "statistics"),
        (3, [1, 2, 3, 4], None, "statistics"),
        (65, LOOP, None, "checkpoint"),
        (65, LOOP, named(40), "checkpoint"),  # no one accumulates this many
    ],
)
def test_a_cycle_is_named_for_what_runs_in_it(
    distance: int, extra: list[int], optimizer: npt.NDArray[np.bool_] | None, kind: Kind
) -> None:
    assert kinds(cycles_of(every(distance, extra, 4 * distance), optimizer)) == [(distance, len(extra), kind)]


def test_an_optimizers_loop_within_the_iteration_leaves_none_to_accumulate_for() -> None:
    iteration = [*ITERATION, *[30, 31] * 10]
    assert kinds(cycles_of(every(4, LOOP, 16), iteration=iteration)) == [(4, 20, "checkpoint")]


def test_two_cycles_are_found_though_they_fall_together_at_times() -> None:
    one, other = every(3, EVALUATION, 40), every(7, CHECKPOINT, 40)
    cycles = cycles_of([a + b for a, b in zip(one, other, strict=True)])
    assert kinds(cycles) == [(3, len(EVALUATION), "evaluation"), (7, len(CHECKPOINT), "checkpoint")]
    assert [c.phase for c in cycles] == [2, 6]


def test_a_cycle_all_of_whose_times_are_another_ones_too_is_found() -> None:
    one, other = every(3, STATISTICS, 40), every(9, EVALUATION, 40)
    cycles = cycles_of([a + b for a, b in zip(one, other, strict=True)])
    assert kinds(cycles) == [(3, len(STATISTICS), "statistics"), (9, len(EVALUATION), "evaluation")]


@pytest.mark.parametrize("seed", range(6))
def test_a_cycle_is_heard_through_insertions_and_deletions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = []
    for j in range(60):
        one = list(ITERATION)
        if rng.random() < 0.3:
            at = int(rng.integers(0, P))
            one[at:at] = [99] * int(rng.integers(1, 9))
        if rng.random() < 0.3:
            del one[int(rng.integers(0, P))]
        parts.append(one + EVALUATION * (j % 5 == 4))
    first = np.cumsum([0, *map(len, parts)])
    whole = np.ones(60, bool)
    rows = Iterations(first[:-1], first[1:], np.diff(first), np.zeros(60, np.int64), whole)
    cycles = find_cycles(np.concatenate(parts).astype(np.uint16), rows, np.array(ITERATION, np.uint16), None)
    main = [c for c in cycles if c.kind == "evaluation"]
    assert [c.every for c in main] == [5]
    assert abs(main[0].extra - len(EVALUATION)) <= 8


def test_a_time_that_was_missed_does_not_cost_the_cycle() -> None:
    after = every(4, EVALUATION, 44)
    after[19] = []
    assert kinds(cycles_of(after)) == [(4, len(EVALUATION), "evaluation")]


def test_one_time_out_of_step_does_not_cost_the_cycle() -> None:
    after = every(4, EVALUATION, 44)
    after[21] = list(EVALUATION)
    assert kinds(cycles_of(after)) == [(4, len(EVALUATION), "evaluation")]


def test_what_stops_coming_early_is_no_cycle_of_the_whole() -> None:
    assert kinds(cycles_of(every(4, EVALUATION, 12) + [[]] * 29)) == [(4, len(EVALUATION), "evaluation")]
    assert cycles_of(every(4, EVALUATION, 12) + [[]] * 30) == []


def test_one_extra_far_smaller_than_the_others_does_not_set_their_size() -> None:
    after = every(4, range(200, 300), 24)
    after[3] = list(range(200, 220))
    after[7] = list(range(200, 303))
    assert [(c.every, c.extra) for c in cycles_of(after)] == [(4, 100)]


@pytest.mark.parametrize(
    "at", [[0], [18], [0, 18], [3, 9], [0, 1, 3, 6, 10, 15], [1, 2, 4, 8, 16], [2, 3, 5, 9, 10, 17]], ids=str
)
def test_extras_at_irregular_distances_or_too_few_are_no_cycle(at: list[int]) -> None:
    assert not cycles_of([EVALUATION if j in at else [] for j in range(20)])


@pytest.mark.parametrize("sizes", [1, 3, 100])
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_extras_that_come_by_chance_hardly_ever_look_like_a_cycle(share: float, sizes: int) -> None:
    found = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        long = rng.integers(1, sizes + 1, 60) * 10 * (rng.random(60) < share)
        found += bool(cycles_of([list(range(200, 200 + size)) for size in long.tolist()]))
    assert found <= 2


@given(st.lists(st.integers(0, 3), max_size=40))
def test_whatever_the_extras_a_cycle_tells_the_truth_about_itself(sizes: list[int]) -> None:
    after = [list(range(200, 200 + 20 * size)) for size in sizes]
    symbols, rows = stream(after) if after else (np.empty(0, np.int64), stream([[]])[1])
    cycles = find_cycles(symbols.astype(np.uint16), rows, np.array(ITERATION, np.uint16), None)
    assert [c.every for c in cycles] == sorted(c.every for c in cycles)
    for cycle in cycles:
        assert cycle.extra in (20, 40, 60)
        assert 2 <= cycle.every < len(sizes)
        assert len(cycle.content) == cycle.extra
        assert len(cycle.whole) == cycle.every * P + cycle.extra
        assert 20 * sizes[cycle.phase] >= cycle.extra
        holds = [20 * size >= cycle.extra for size in sizes[:-1]]
        assert any(a and b for a, b in zip(holds, holds[cycle.every :], strict=False))


def test_twice_is_enough_when_it_closes_two_whole_cycles() -> None:
    for extra, kind in ((LOOP, "accumulation"), (EVALUATION, "evaluation")):
        assert kinds(cycles_of(every(4, extra, 9))) == [(4, len(extra), kind)]
        assert kinds(cycles_of(every(4, extra, 12))) == [(4, len(extra), kind)]
        assert cycles_of(every(4, extra, 9)[:9] + [[]] * 4) == []  # the third time did not come


def test_twice_from_somewhere_on_is_enough_for_an_optimizers_loop_only() -> None:
    assert kinds(cycles_of(every(4, LOOP, 7, begin=1))) == [(4, len(LOOP), "accumulation")]
    assert kinds(cycles_of(every(4, LOOP, 6, begin=0))) == [(4, len(LOOP), "accumulation")]
    assert cycles_of(every(4, LOOP, 11, begin=5)) == []  # it would have come before
    assert cycles_of(every(4, EVALUATION, 7, begin=1)) == []
    assert cycles_of(every(4, CHECKPOINT, 7, begin=1)) == []  # no loop


def test_twice_is_not_enough_where_something_else_differs_too() -> None:
    after = every(4, EVALUATION, 9)
    after[5] = [90, 91, 92]
    assert cycles_of(after) == []


@pytest.mark.parametrize("count", [1, 2])
def test_one_or_two_iterations_have_no_cycle(count: int) -> None:
    assert cycles_of([EVALUATION] * count) == []


def test_no_iteration_has_no_cycle() -> None:
    nothing = np.empty(0, np.int64)
    rows = Iterations(nothing, nothing, nothing, nothing, np.empty(0, bool))
    assert find_cycles(np.array(ITERATION, np.uint16), rows, np.array(ITERATION, np.uint16), None) == []


def test_iterations_cut_by_the_capture_are_not_counted() -> None:
    symbols, rows = stream(every(4, EVALUATION, 17))
    cut = Iterations(rows.first, rows.end, rows.matched, rows.edits, np.arange(17) > 0)
    (cycle,) = find_cycles(symbols.astype(np.uint16), cut, np.array(ITERATION, np.uint16), None)
    assert (cycle.every, cycle.phase) == (4, 2)


def test_of_two_micro_batches_either_may_be_the_template() -> None:
    after = every(2, LOOP, 20)
    symbols, rows = stream(after)
    bare = find_cycles(symbols.astype(np.uint16), rows, np.array(ITERATION, np.uint16), None)
    longer = find_cycles(symbols.astype(np.uint16), rows, np.array(ITERATION + LOOP, np.uint16), None)
    assert kinds(bare) == kinds(longer) == [(2, len(LOOP), "accumulation")]
    assert [c.whole.tolist() for c in bare] == [c.whole.tolist() for c in longer] == [ITERATION * 2 + LOOP]


@given(
    st.lists(st.integers(0, 2), max_size=12),
    st.lists(st.integers(0, 2), max_size=12),
    st.integers(0, 6),
)
def test_the_place_of_an_insertion_is_that_with_the_fewest_differences(
    longer: list[int], shorter: list[int], size: int
) -> None:
    common = min(len(shorter), max(0, len(longer) - size))

    def differences(place: int) -> int:
        left = sum(a != b for a, b in zip(longer[:place], shorter[:place], strict=True))
        right = common - place
        ends = (longer[len(longer) - right :], shorter[len(shorter) - right :])
        return left + sum(a != b for a, b in zip(*ends, strict=True))

    found = [differences(place) for place in range(common + 1)]
    assert insertion_place(np.array(longer), np.array(shorter), size) == (found.index(min(found)), min(found))


@given(st.integers(2, 9), st.integers(0, 8), st.integers(2, 10))
def test_rows_in_step_have_their_distance_as_rhythm(distance: int, begin: int, times: int) -> None:
    at = begin % distance + distance * np.arange(times)
    found = rhythm(at, int(at[-1]) + 1)
    assert found is not None
    assert (found[0], found[1].tolist()) == (distance, at.tolist())


def test_strangers_among_many_rows_in_step_are_left_aside() -> None:
    in_step = [*range(0, 41, 5)]
    found = rhythm(np.array(sorted([*in_step, 12, 23])), 41)
    assert found is not None
    assert (found[0], found[1].tolist()) == (5, in_step)
    assert rhythm(np.array(sorted([*in_step[:5], 12, 17])), 21) is None


@given(st.sets(st.integers(0, 60), min_size=2, max_size=20))
def test_a_rhythm_is_the_commonest_distance_of_rows_that_keep_to_it(rows: set[int]) -> None:
    at = np.array(sorted(rows))
    found = rhythm(at, 61)
    apart = [b - a for a, b in pairwise(sorted(rows))]
    if found is not None:
        assert found[0] >= 2
        assert apart.count(found[0]) == max(map(apart.count, apart)) >= 0.4 * len(apart)
        assert set(found[1].tolist()) <= rows
        assert len(found[1]) >= min(6, 0.75 * len(rows)) or all(a % found[0] == 0 for a in apart)


# --- through the whole search ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("distance", [3, 5])
def test_evaluation_of_a_job_is_found_with_what_it_adds(distance: int) -> None:
    job = Job(iterations=40, eval_every=distance)
    loop = find_loop(job.symbols()).loop
    assert loop is not None
    assert [(c.every, c.kind) for c in loop.cycles] == [(distance, "evaluation")]
    lengths = np.diff(job.starts)
    assert loop.cycles[0].extra == lengths.max() - lengths.min()
    assert (loop.cycles[0].phase - (distance - 1)) % distance == 0


def test_a_clean_job_has_no_cycle() -> None:
    loop = find_loop(Job().symbols()).loop
    assert loop is not None
    assert loop.cycles == ()


def test_names_make_the_loop_of_an_optimizer_per_iteration_and_leave_the_rest_a_cycle() -> None:
    job = Job(iterations=40, eval_every=4)
    symbols = job.symbols()
    optimizer = np.isin(np.arange(int(symbols.max()) + 1), np.arange(70, 80))
    loop = find_loop(symbols, Evidence(optimizer=optimizer)).loop
    assert loop is not None
    assert loop.period == job.period
    assert [(c.every, c.kind) for c in loop.cycles] == [(4, "evaluation")]


TRAINING = [*range(1, 9), 3, 5, *range(9, 17), 12, 20, 21, 22, 23]  # forward, backward, and an update without a loop
EVALUATED = [30, 2, 31, 32, 4, 33, 34]  # one batch: other kernels do what the forward pass does


def epochs(batches: int, evaluated: int) -> tuple[list[int], Family]:
    """Return three epochs with an evaluation behind each, and the range around each update, where it ends."""
    epoch = [*TRAINING * batches, *EVALUATED * evaluated]
    updates = np.concatenate([at * len(epoch) + np.arange(1, batches + 1) * len(TRAINING) for at in range(3)])
    return epoch * 3, Family("Optimizer.step#RMSprop.step", "loop", updates, telling=2.0)


@pytest.mark.parametrize(("batches", "evaluated"), [(50, 50), (12, 24), (8, 30)])
def test_epochs_with_an_evaluation_are_no_iterations_of_micro_batches(batches: int, evaluated: int) -> None:
    symbols, updates = epochs(batches, evaluated)
    loop = find_loop(symbols, Evidence(families=(updates,))).loop
    assert loop is not None
    assert loop.period == len(TRAINING)
    assert loop.iterations.complete.sum() == 3 * batches
    assert "accumulation" not in {cycle.kind for cycle in loop.cycles}


def test_an_update_in_each_makes_what_comes_every_so_often_no_optimizers() -> None:
    symbols, rows = stream(every(4, LOOP, 16))
    template = np.array(ITERATION, np.uint16)
    each, rare = rows.first + P, rows.first[3::4] + P
    found = [find_cycles(symbols.astype(np.uint16), rows, template, None, updates)[0] for updates in (rare, each)]
    assert [cycle.kind for cycle in found] == ["accumulation", "checkpoint"]


def test_a_second_model_with_an_update_of_its_own_is_half_of_the_iteration() -> None:
    generator = list(range(100, 100 + P // 2 + 8))
    symbols = [*ITERATION * 12, *generator] * 4
    whole = 12 * P + len(generator)
    ends = np.append(np.arange(1, 13) * P, whole)
    updates = np.concatenate([at * whole + ends for at in range(4)])
    steps = Family("Optimizer.step#Adam.step", "loop", updates, telling=2.0)
    loop = find_loop(symbols, Evidence(families=(steps,))).loop
    assert loop is not None
    assert loop.period == whole
