"""The miner without a count: right on jobs, silent on everything that is none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepprof.mining import Evidence, Family, MiningResult, find_loop
from tests.chance import examples
from tests.mining.jobs import Job, score

NOISE = {
    "clean": Job(),
    "starts mid-iteration": Job(prologue=0, cut=150),
    "insertions": Job(p_insert=0.5),
    "an insertion in each": Job(p_insert=1.0),
    "deletions": Job(p_delete=0.5),
    "substitutions": Job(p_substitute=0.01),
    "all edits": Job(p_insert=0.3, p_delete=0.2, p_substitute=0.003),
    "evaluation": Job(eval_every=5),
    "growth": Job(growth=3, iterations=40),
    "three iterations": Job(iterations=3),
    "long prologue": Job(prologue=30_000),
    "tiny": Job(layers=4, forward=5, backward=9, iterations=200),
}


@pytest.mark.widens(4)
@pytest.mark.parametrize("name", NOISE)
@pytest.mark.parametrize("seed", [0, 1])
def test_iterations_are_found_without_a_count(name: str, seed: int) -> None:
    job = Job(**{**NOISE[name].__dict__, "seed": seed, "starts": []})
    loop = find_loop(job.symbols()).loop
    assert loop is not None
    assert abs(loop.period - job.period) <= 0.03 * job.period
    first = loop.iterations.first[loop.iterations.complete]
    assert abs(len(first) - len(job.starts)) <= 1 + 0.05 * len(job.starts)
    assert score(first, job.starts) >= 0.95


def thue_morse(n: int) -> list[int]:
    return [bin(i).count("1") % 2 for i in range(n)]


def fibonacci(n: int) -> list[int]:
    one, word = [0], [0, 1]
    while len(word) < n:
        one, word = word, word + one
    return word[:n]


def markov(n: int, states: int, seed: int) -> list[int]:
    rng = np.random.default_rng(seed)
    steps = rng.dirichlet(np.full(states, 0.1), states).cumsum(axis=1)
    state, found = 0, []
    for draw in rng.random(n):
        state = min(int(np.searchsorted(steps[state], draw)), states - 1)
        found.append(state)
    return found


NEGATIVES = {
    "empty": [],
    "one": [5],
    "two": [5, 5],
    "all equal": [3] * 4000,
    "two taking turns": [1, 2] * 2000,
    "Fibonacci": fibonacci(8000),
    "Thue-Morse": thue_morse(8000),
    "counting": list(range(5000)),
    "random, few symbols": np.random.default_rng(0).integers(0, 3, 8000).tolist(),
    "random, many symbols": np.random.default_rng(1).integers(0, 200, 8000).tolist(),
    "Markov, few states": markov(8000, 8, 2),
    "Markov, many states": markov(8000, 100, 3),
    "two iterations": (list(range(300)) + list(range(100, 400))) * 2,
}


@pytest.mark.parametrize("name", NEGATIVES)
def test_no_loop_where_there_is_none_and_it_says_why(name: str) -> None:
    mined = find_loop(NEGATIVES[name])
    assert mined.loop is None
    assert mined.reason


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 60))
def test_random_sequences_have_no_loop(seed: int, alphabet: int) -> None:
    assert find_loop(np.random.default_rng(seed).integers(0, alphabet, 3000)).loop is None


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.integers(0, 4), max_size=60))
def test_any_short_sequence_gives_a_loop_or_a_reason(symbols: list[int]) -> None:
    mined = find_loop(symbols)
    assert (mined.loop is None) == (mined.reason is not None)


@pytest.mark.parametrize(
    "wrong", [[-1, 2, 3], [0.5, float("nan")], [[1, 2], [3, 4]], [2**40, 1, 2], ["kernel"]], ids=str
)
def test_what_is_no_symbol_sequence_is_a_value_error(wrong: list[object]) -> None:
    with pytest.raises(ValueError, match="symbols must"):
        find_loop(np.array(wrong))


def test_iterations_cut_by_the_ends_are_incomplete() -> None:
    job = Job(prologue=0, cut=150)
    symbols = job.symbols()[:-120]
    loop = find_loop(symbols, Evidence(families=(Family("ProfilerStep", "step", np.array(job.starts)),))).loop
    assert loop is not None
    assert loop.iterations.complete.tolist() == [False, *[True] * (len(loop.iterations.first) - 2), False]
    assert loop.iterations.first[0] == 0
    assert loop.iterations.end[-1] == len(symbols)


# --- what else is known ---------------------------------------------------------------------------------------------


def layers(count: int) -> list[int]:
    """One forward pass: an embedding, equal layers, a head."""
    return [90, 91, *[1, 2, 3, 4, 5, 1, 6, 7, 8, 9] * count, 92, 93, 94]


def mined_with(symbols: list[int], *families: Family, **evidence: np.ndarray) -> MiningResult:
    return find_loop(symbols, Evidence(families=families, **evidence))


def test_the_layers_of_one_forward_pass_are_no_iterations() -> None:
    mined = mined_with(layers(24), Family("ProfilerStep", "step", np.array([0]), ends=np.array([245])))
    assert mined.loop is None
    assert "ProfilerStep" in (mined.reason or "")
    assert find_loop(layers(24)).loop is None


def test_a_short_iteration_is_accepted_when_a_range_stands_for_each() -> None:
    starts = np.arange(0, 240, 10)
    loop = mined_with([1, 2, 3, 4, 5, 1, 6, 7, 8, 9] * 24, Family("train_step", "step", starts)).loop
    assert loop is not None
    assert (loop.period, loop.source, loop.family) == (10, "annotation", "train_step")


def test_a_short_iteration_is_accepted_when_each_gets_a_copy_from_the_host() -> None:
    copies = np.zeros(240, bool)
    copies[3::10] = True
    assert find_loop([1, 2, 3, 4, 5, 1, 6, 7, 8, 9] * 24).loop is None
    assert mined_with([1, 2, 3, 4, 5, 1, 6, 7, 8, 9] * 24, copies=copies).loop is not None


@pytest.mark.parametrize("offset", [0, 17, 200])
def test_a_step_marker_says_where_iterations_begin(offset: int) -> None:
    job = Job(prologue=0)
    symbols = job.symbols()
    marked = np.array(job.starts) + offset
    loop = mined_with(symbols.tolist(), Family("ProfilerStep", "step", marked)).loop
    assert loop is not None
    assert loop.source == "annotation"
    assert np.isin(loop.iterations.first[loop.iterations.complete], marked).all()


@pytest.mark.parametrize("offset", [0, 40])
def test_long_launch_gaps_say_where_iterations_begin(offset: int) -> None:
    job = Job(prologue=0, cut=100)
    symbols = job.symbols()
    gaps = np.ones(len(symbols))
    marked = np.array(job.starts) + offset
    gaps[marked[marked < len(symbols)]] = 100.0
    loop = mined_with(symbols.tolist(), launch_gaps=gaps).loop
    assert loop is not None
    assert loop.source == "mined"
    assert "host launch gap" in loop.evidence
    assert np.isin(loop.iterations.first[loop.iterations.complete], marked).all()


def test_two_markers_are_too_few_to_decide() -> None:
    job = Job(prologue=0)
    symbols = job.symbols()
    loop = mined_with(symbols.tolist(), Family("ProfilerStep", "step", np.array(job.starts[:2]) + 11)).loop
    assert loop is not None
    assert loop.source == "mined"


def test_more_exact_repeats_make_it_surer() -> None:
    few, many = (find_loop(Job(iterations=i, prologue=0).symbols()).loop for i in (3, 30))
    assert few is not None
    assert many is not None
    assert 0.5 < few.confidence < many.confidence <= 1


def single_pass(layers: int, block: list[int]) -> list[int]:
    return [90, 91, 92, *block * layers, 93, 94, 95]


@pytest.mark.parametrize("sign", ["copies", "syncs", "graphs"])
def test_what_every_layer_does_does_not_make_it_an_iteration(sign: str) -> None:
    block = list(range(30))
    symbols = single_pass(24, block)
    marks = np.zeros(len(symbols), bool)
    marks[5::30] = True
    assert mined_with(symbols, **{sign: marks}).loop is None


def test_a_users_range_around_each_layer_does_not_make_it_an_iteration() -> None:
    symbols = single_pass(24, list(range(30)))
    starts = 3 + np.arange(24) * 30
    ranges = Family("fwd", "range", starts, coverage=0.97, ends=starts + 30)
    assert mined_with(symbols, ranges).loop is None


def test_a_range_named_like_a_layer_says_what_the_repetition_is() -> None:
    experts = [1, 2, *[3, 4, 5, 6] * 40, 7, 8, 9]
    starts = 3 + np.arange(24) * len(experts)
    mined = mined_with(single_pass(24, experts), Family("layer_#", "part", starts, coverage=0.97, ends=starts + 30))
    assert mined.loop is None
    assert "each is one layer_#" in (mined.reason or "")


def test_layers_with_inner_loops_inside_one_step_are_layers() -> None:
    experts = [1, 2, *[3, 4, 5, 6] * 40, 7, 8, 9]
    symbols = single_pass(24, experts)
    step = Family("ProfilerStep", "step", np.array([0]), ends=np.array([len(symbols)]))
    assert mined_with(symbols, step).loop is None


def test_micro_batches_with_their_own_batch_are_parts_of_the_optimizers_step() -> None:
    micro = [1, 2, *[3, 4, 5, 6] * 30, 7, 8, *[9, 10, 11] * 30]
    step = [*micro * 4, *[20, 21] * 25]
    symbols = step * 6
    loads = np.concatenate([s * len(step) + np.arange(4) * len(micro) for s in range(6)])
    steps = np.arange(1, 7) * len(step)
    loop = mined_with(
        symbols,
        Family("Optimizer.step#SGD.step", "loop", steps, telling=2.0),
        Family("enumerate(DataLoader)#x", "loop", loads, telling=3.0),
    ).loop
    assert loop is not None
    assert loop.period == len(step)


def test_one_autotuned_iteration_does_not_cost_the_loop() -> None:
    iteration = [90, 91, *[1, 2, 3, 4, 5, 6, 7] * 30, 92, 93]
    rng = np.random.default_rng(3)
    first = [s for k in iteration for s in ([k] if rng.random() > 0.3 else [int(rng.integers(100, 120)), k])]
    loop = find_loop(first + iteration * 4).loop
    assert loop is not None
    assert loop.period == len(iteration)


def test_an_inner_loop_seen_later_is_not_the_iteration() -> None:
    iteration = [*range(100, 200), *[1, 2, 3] * 60, *range(200, 300)]
    assert find_loop(iteration * 2 + iteration[:150]).loop is None


@pytest.mark.parametrize("name", ["clean", "all edits", "evaluation"])
def test_c_and_numpy_find_the_same_loop(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from deepprof.mining import native

    if native.library() is None:
        pytest.skip("no C library was built here; the numpy fallback is all there is")
    symbols = NOISE[name].symbols()
    with_c = find_loop(symbols).loop
    monkeypatch.setattr(native, "library", lambda: None)
    without = find_loop(symbols).loop
    assert with_c is not None
    assert without is not None
    assert with_c.template.tolist() == without.template.tolist()
    assert with_c.iterations.first.tolist() == without.iterations.first.tolist()
    assert with_c.iterations.edits.tolist() == without.iterations.edits.tolist()
    assert (with_c.confidence, with_c.evidence) == (without.confidence, without.evidence)


def test_kernels_outside_the_loop_are_not_passed_over() -> None:
    symbols = Job(prologue=0).symbols()
    alone, second = (
        find_loop(symbols).loop,
        find_loop(np.concatenate([symbols, np.arange(1000, 1000 + len(symbols))])).loop,
    )
    assert alone is not None
    assert second is not None
    assert "of the stream's kernels" not in alone.evidence
    assert "on 50 % of the stream's kernels" in second.evidence


def test_a_copy_and_a_wait_in_each_outweigh_a_prologue() -> None:
    symbols = single_pass(40, list(range(30)))
    copies, syncs = (np.zeros(len(symbols), bool) for _ in range(2))
    copies[5::30] = syncs[25::30] = True
    loop = mined_with(symbols, copies=copies, syncs=syncs).loop
    assert loop is not None
    assert loop.period == 30


BACKWARD = [1, 2, *[3, 4, 5, 6] * 60, 7, 8, *[9, 10, 11] * 70]  # a large layer with inner loops


def test_layers_of_the_only_optimizer_step_are_layers() -> None:
    symbols = [*single_pass(12, BACKWARD), *[96, 97] * 20]
    steps = Family("Optimizer.step#Adam.step", "loop", np.array([len(symbols)]), telling=2.0)
    mined = mined_with(symbols, steps)
    assert mined.loop is None
    assert "Optimizer.step#Adam.step" in (mined.reason or "")


def test_micro_batches_of_two_steps_are_no_iterations() -> None:
    step = [*BACKWARD * 8, *[96, 97] * 20]
    loads = np.concatenate([np.arange(8) * len(BACKWARD), len(step) + np.arange(8) * len(BACKWARD)])
    mined = mined_with(
        step * 2,
        Family("Optimizer.step#Adam.step", "loop", np.array([len(step), 2 * len(step)]), telling=2.0),
        Family("enumerate(DataLoader)#x", "loop", loads, telling=3.0),
    )
    assert mined.loop is None


def test_large_layers_within_one_step_need_more_than_a_wait() -> None:
    symbols = single_pass(12, BACKWARD)
    step = Family("ProfilerStep", "step", np.array([0]), ends=np.array([len(symbols)]))
    waits, copies = (np.zeros(len(symbols), bool) for _ in range(2))
    waits[10 :: len(BACKWARD)] = copies[50 :: len(BACKWARD)] = True
    assert mined_with(symbols, step, syncs=waits).loop is None
    assert mined_with(symbols, step, syncs=waits, copies=copies).loop is not None


def test_a_marker_for_each_settles_it_whatever_encloses_them() -> None:
    symbols = [1, 2, 3, 4, 5, 1, 6, 7, 8, 9] * 24
    starts = np.arange(0, 240, 10)
    epoch = Family("execute_epoch", "step", np.array([0]), ends=np.array([240]))
    loop = mined_with(symbols, epoch, Family("train_step", "step", starts, ends=starts + 10)).loop
    assert loop is not None
    assert (loop.period, loop.family) == (10, "train_step")


def test_edits_are_counted_exactly() -> None:
    iteration = [90, 91, *[1, 2, 3, 4, 5, 6, 7] * 30, 92, 93]
    inserted, replaced = [*iteration[:50], 99, 98, *iteration[50:]], [*iteration[:40], 77, *iteration[41:]]
    both = inserted[:120] + inserted[123:]
    loop = find_loop([*iteration * 3, *inserted, *replaced, *both, *iteration * 3]).loop
    assert loop is not None
    assert loop.iterations.edits.tolist() == [0, 0, 0, 2, 1, 5, 0, 0, 0]
