"""The online miner on made-up jobs: it locks early, follows change, finds back, and states nothing where nothing is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from deepprof.mining import Evidence, find_loop
from deepprof.mining.online.miner import OnlineMiner
from deepprof.mining.online.progress import IterationBatch
from tests.chance import examples
from tests.mining.jobs import Job, score
from tests.mining.online_runs import kinds, one_after_the_other, rows, run, starts_of, story

WINDOW = 1 << 13
SMALL = Job(layers=6, forward=6, backward=9, optimizer=16, iterations=120)
NOISE = {
    "clean": Job(),
    "starts mid-iteration": Job(prologue=0, cut=150),
    "insertions": Job(p_insert=0.5),
    "an insertion in each": Job(p_insert=1.0),
    "deletions": Job(p_delete=0.5),
    "substitutions": Job(p_substitute=0.01),
    "all edits": Job(p_insert=0.3, p_delete=0.2, p_substitute=0.003),
    "evaluation": Job(eval_every=5),
    "tiny": Job(layers=4, forward=5, backward=9),
    "grows every third iteration": Job(growth=3),
    "grows every iteration": Job(growth=1),
    "grows and is noisy": Job(growth=2, p_insert=0.1),
}


@pytest.mark.widens(3)
@pytest.mark.parametrize("name", NOISE)
def test_iterations_are_found_as_they_come(name: str) -> None:
    job = replace(NOISE[name], iterations=120, starts=[])
    miner, found = run(job.symbols())
    assert miner.state == "locked"
    assert len(set(found.loop.tolist())) == 1
    assert abs(len(starts_of(found)) - len(job.starts)) <= 1
    assert score(starts_of(found), job.starts) >= 0.98


@pytest.mark.parametrize(
    ("job", "at"),
    [
        (Job(layers=4, forward=5, backward=9, iterations=200), 2048),
        (Job(iterations=60), 8192),
        (Job(iterations=60, p_insert=1.0), 8192),
        (Job(iterations=12, layers=96), 1.25 * (200 + 3 * 2918)),
        (Job(iterations=5, layers=400), 1.25 * (200 + 3 * 12_038)),
    ],
    ids=["tiny", "plain", "noisy", "large", "very large"],
)
def test_it_locks_within_three_iterations_or_8192_symbols_or_a_quarter_more(job: Job, at: float) -> None:
    miner, found = run(job.symbols())
    assert kinds(miner, "lock")[0][0] <= at
    assert score(starts_of(found), job.starts) >= 0.97


def test_iterations_before_the_lock_are_given_too() -> None:
    job = Job(iterations=40)
    _, found = run(job.symbols())
    assert found.first[0] <= job.starts[0]
    assert len(starts_of(found)) == 40


def test_an_iteration_is_given_when_the_next_has_ended() -> None:
    job = Job(iterations=60)
    symbols = job.symbols()
    miner, ends, known = OnlineMiner(), [], []
    for at in range(len(symbols)):
        batch = miner.feed(symbols[at : at + 1])
        ends += batch.end.tolist()
        known += [at + 1] * len(batch)
    late = [at for at in zip(ends, known, strict=True) if at[1] > 8192]
    assert len(late) > 20
    assert all(at <= end + job.period for end, at in late)


@pytest.mark.parametrize("growth", [1, 3])
def test_edits_say_how_much_iterations_differ_from_a_template_that_follows_them(growth: int) -> None:
    job = Job(iterations=300, growth=growth)
    miner, found = run(job.symbols())
    assert len(starts_of(found)) == 300
    assert 0 < found.edits[found.complete].max() <= 20
    drifts = kinds(miner, "drift")
    assert len(drifts) >= 20
    assert drifts[-1][3] > job.period + 250 // growth
    assert miner.loop is not None
    assert miner.loop.has_drifted


def test_the_same_change_three_times_is_the_new_template() -> None:
    job = Job(iterations=40, prologue=0)
    before = job.symbols()
    one = before[: job.period]
    after = np.concatenate([one[:100], [86] * 90, one[100:]])
    miner, found = run(np.concatenate([before, np.tile(after, 20)]))
    assert [row[3] for row in rows(found)[38:46]] == [0, 0, 90, 90, 90, 0, 0, 0]
    assert len(found) == 60
    assert [event[1:] for event in kinds(miner, "drift")] == [("drift", 0, len(after))]


def test_another_model_is_another_loop() -> None:
    first, second = Job(iterations=60, seed=1), Job(iterations=60, seed=2, layers=9, prologue=500)
    stream, (starts, later) = one_after_the_other(first, second, apart=(0, 200))
    miner, found = run(stream)
    assert story(miner) == [("lock", 0), ("lost", 0), ("lock", 1)]
    assert score(starts_of(found, 0), starts) >= 0.99
    assert score(starts_of(found, 1), later) >= 0.99
    assert miner.loop is not None
    assert (miner.loop.number, miner.loop.period) == (1, second.period)


def test_a_model_that_comes_back_keeps_its_number() -> None:
    first, second = Job(iterations=60, seed=1), Job(iterations=60, seed=2, layers=9)
    again = replace(first, prologue=0, starts=[])
    stream, (one, other, two) = one_after_the_other(first, second, again, apart=(0, 200, 0))
    miner, found = run(stream)
    assert [loop for _, _, loop, _ in kinds(miner, "lock")] == [0, 1, 0]
    assert score(starts_of(found, 0), one + two) >= 0.98
    assert score(starts_of(found, 1), other) >= 0.98


def test_the_loop_comes_back_after_something_without_a_loop() -> None:
    job = Job(iterations=60)
    symbols = job.symbols()
    noise = np.random.default_rng(5).integers(100, 300, 30_000)
    miner, found = run(np.concatenate([symbols, noise, symbols]))
    assert miner.state == "locked"
    assert story(miner) == [("lock", 0), ("lost", 0), ("lock", 0)]
    assert score(starts_of(found), job.starts + [len(symbols) + 30_000 + start for start in job.starts]) >= 0.99


def test_evaluation_that_runs_the_forward_pass_gives_way_to_training_again() -> None:
    def training(seed: int) -> Job:
        return Job(iterations=60, seed=seed, layers=24, forward=12, backward=4)

    job = training(0)
    symbols = job.symbols()
    one = symbols[job.starts[0] : job.starts[1]]
    forward = one[: job.ends + job.layers * job.forward + job.ends]
    evaluation = np.tile(np.concatenate([forward, [90, 91, 92]]), 60)
    stream = np.concatenate([symbols, evaluation, np.tile(one, 60)])
    miner, found = run(stream)
    again = len(symbols) + len(evaluation) + np.arange(60) * len(one)
    assert miner.loop is not None
    assert miner.loop.number == 0
    assert score(starts_of(found, 0), [*job.starts, *again.tolist()]) >= 0.9


def test_micro_batches_seen_first_give_way_to_the_iteration() -> None:
    micro = Job(iterations=1, prologue=0, layers=24, optimizer=4).symbols()
    step = np.concatenate([*[micro] * 8, np.tile(np.arange(100, 140), 10)])
    miner, found = run(np.tile(step, 40))
    locks = kinds(miner, "lock")
    assert locks[-1][2:] == (locks[-1][2], len(step))
    assert len(starts_of(found, locks[-1][2])) >= 30
    assert [event.kind for event in miner.events if event.position == locks[-1][0]] == ["review", "lock"]


def thue_morse(n: int) -> list[int]:
    return [bin(i).count("1") % 2 for i in range(n)]


NEGATIVES = {
    "empty": [],
    "one": [5],
    "all equal": [3] * 20_000,
    "two taking turns": [1, 2] * 10_000,
    "Thue-Morse": thue_morse(20_000),
    "counting": list(range(20_000)),
    "random, few symbols": np.random.default_rng(0).integers(0, 3, 20_000).tolist(),
    "random, many symbols": np.random.default_rng(1).integers(0, 200, 20_000).tolist(),
    "two iterations": [*range(3000), *range(1000, 4000)] * 2,
}


@pytest.mark.parametrize("name", NEGATIVES)
def test_nothing_is_found_where_nothing_is(name: str) -> None:
    miner, found = run(np.array(NEGATIVES[name], np.int64), window=1 << 12)
    assert len(found) == 0
    assert miner.state == "learning"
    assert miner.loop is None
    assert miner.counts.foreign == len(NEGATIVES[name])


@settings(max_examples=examples(10), deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 60))
def test_random_streams_have_no_iterations(seed: int, alphabet: int) -> None:
    stream = np.random.default_rng(seed).integers(0, alphabet, 6000)
    assert len(run(stream, window=1 << 10)[1]) == 0


# --- the same as offline --------------------------------------------------------------------------------------------

stationary = st.builds(
    Job,
    iterations=st.integers(130, 200),
    layers=st.integers(3, 12),
    forward=st.integers(4, 12),
    backward=st.integers(6, 20),
    optimizer=st.integers(8, 40),
    prologue=st.integers(0, 400),
    p_insert=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    p_delete=st.sampled_from([0.0, 0.1, 0.3]),
    p_substitute=st.sampled_from([0.0, 0.0, 0.003]),
    seed=st.integers(0, 10**6),
)


def is_clear(job: Job, window: int) -> bool:
    """Whether offline mining of the whole stops at the window, and has from there where iterations are."""
    stream = job.symbols()
    whole = find_loop(stream, windows=(window, 2 * window, 4 * window)).loop
    part = find_loop(stream[:window], Evidence(closes=False), windows=(window,)).loop
    if whole is None or part is None or not np.array_equal(whole.template, part.template):
        return False
    exact = (whole.iterations.edits == 0) & (whole.iterations.end < window)
    return bool(exact.any())


@settings(max_examples=examples(40), deadline=None)
@given(stationary)
def test_from_the_last_lock_on_iterations_are_those_found_offline(job: Job) -> None:
    stream, window = job.symbols(), 1 << 12
    assume(len(stream) >= 2 * window)
    assume(is_clear(job, window))
    miner, found = run(stream, window, chunk=1000)
    assume(not kinds(miner, "drift", "lost"))  # noise may look like change
    offline = find_loop(stream, windows=(window, 2 * window, 4 * window)).loop
    assert offline is not None
    assert miner.loop is not None
    assert miner.loop.template.tolist() == offline.template.tolist()
    locked = kinds(miner, "lock")[-1][0]
    ours = [(first, end, complete) for first, end, _, _, complete, _ in rows(found) if first >= locked]
    theirs = offline.iterations
    columns = (theirs.first.tolist(), theirs.end.tolist(), theirs.complete.tolist())
    assert ours[:-1] == [row for row in zip(*columns, strict=True) if row[0] >= locked][:-1]


def test_with_the_real_window_too() -> None:
    job = Job(iterations=400, p_insert=0.2, p_delete=0.1)
    stream = job.symbols()
    miner, found = run(stream)
    offline = find_loop(stream).loop
    assert offline is not None
    locked = kinds(miner, "lock")[-1][0]
    ours, theirs = found.first >= locked, offline.iterations.first >= locked
    assert found.first[ours].tolist() == offline.iterations.first[theirs].tolist()
    assert found.end[ours].tolist() == offline.iterations.end[theirs].tolist()


def test_a_short_stream_is_mined_as_a_whole_at_its_end() -> None:
    job = Job(iterations=3)
    stream = job.symbols()
    _, found = run(stream)
    offline = find_loop(stream).loop
    assert offline is not None
    assert found.first.tolist() == offline.iterations.first.tolist()
    assert found.complete.tolist() == offline.iterations.complete.tolist()


# --- what it refuses, and what it adds up to ------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [[-1, 2], [0.5, float("nan")], [[1, 2], [3, 4]], [2**40, 1], ["kernel"]], ids=str)
def test_what_is_no_symbol_sequence_is_a_value_error_and_changes_nothing(wrong: list[object]) -> None:
    miner = OnlineMiner(1 << 10)
    miner.feed([1, 2, 3])
    before = miner.save()
    with pytest.raises(ValueError, match="symbols must"):
        miner.feed(np.array(wrong))
    assert miner.save() == before


def test_after_the_end_nothing_more_is_taken() -> None:
    miner = OnlineMiner()
    miner.finish()
    for late in (lambda: miner.feed([1]), miner.gap, miner.finish):
        with pytest.raises(ValueError, match="has ended"):
            late()


@pytest.mark.parametrize("window", [0, -1, 1000, 1 << 9, 3 << 14, 1 << 21])
def test_a_window_that_is_none_is_a_value_error(window: int) -> None:
    with pytest.raises(ValueError, match="power of two"):
        OnlineMiner(window)


def test_every_symbol_is_in_an_iteration_or_foreign() -> None:
    stream, _ = one_after_the_other(Job(seed=1, eval_every=4), Job(seed=2, p_insert=0.5), apart=(0, 200))
    miner, found = run(stream, window=1 << 12, gaps=[5000, 5100, 14_000])
    assert miner.counts.foreign + int((found.end - found.first).sum()) == len(stream) == miner.position
    assert miner.counts.iterations == len(found)
    assert (found.first[1:] >= found.end[:-1]).all()


def test_batches_join_to_one() -> None:
    assert len(IterationBatch.join([])) == 0
    _, found = run(SMALL.symbols(), WINDOW)
    assert rows(IterationBatch.join([found, found])) == rows(found) * 2
