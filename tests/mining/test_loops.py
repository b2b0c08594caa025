"""The miner without a count: right on jobs, silent on everything that is none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepprof.mining import Evidence, Family, Mined, find_loop
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


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 60))
def test_random_sequences_have_no_loop(seed: int, alphabet: int) -> None:
    assert find_loop(np.random.default_rng(seed).integers(0, alphabet, 3000)).loop is None


@settings(max_examples=60, deadline=None)
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


def mined_with(symbols: list[int], *families: Family, **evidence: np.ndarray) -> Mined:
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
