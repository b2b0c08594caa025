"""The made-up jobs: their truth is true, and the same seed makes the same job."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.accuracy.draws import BLOCKS, draw_job
from benchmarks.accuracy.jobs import Job
from benchmarks.accuracy.layout import make_job
from benchmarks.accuracy.negatives import cases
from benchmarks.accuracy.scenarios import SCENARIOS
from benchmarks.accuracy.truth import Made, Truth

PLAIN = Job(iterations=12, layers=4)
NOISE = replace(PLAIN, insertions=1.0, deletions=0.7, substitutions=0.02, autotuned=2, retuned=0.5, buckets=3)
KINDS = {
    "plain": PLAIN,
    "stages": replace(PLAIN, stages=3),
    "experts": replace(PLAIN, experts=5),
    "micro-batches": replace(PLAIN, micro=4),
    "critic": replace(PLAIN, critic=3),
    "decoding": replace(PLAIN, backward=0, optimizer_repeats=0),
    "evaluation and checkpoint": replace(PLAIN, eval_every=3, checkpoint_every=5),
}


def pieces(made: Made, truth: Truth) -> list[list[int]]:
    rows = zip(truth.starts[truth.whole].tolist(), truth.ends[truth.whole].tolist(), strict=True)
    return [made.symbols[a:b].tolist() for a, b in rows]


@pytest.mark.parametrize("kind", KINDS)
def test_without_noise_all_iterations_are_equal_and_a_period_long(kind: str) -> None:
    job = KINDS[kind]
    made = make_job(job)
    (truth,) = made.truths
    found = pieces(made, truth)
    assert len(found) == job.iterations
    assert all(piece == found[0] for piece in found)
    assert len(found[0]) == truth.period == truth.shortest == truth.longest == job.size
    assert (made.coarse[made.symbols] == made.symbols).all()


def test_arrays_have_one_entry_per_kernel_or_per_symbol() -> None:
    made = make_job(NOISE)
    assert made.gaps is not None
    assert made.durations is not None
    assert made.optimizer is not None
    assert len(made.symbols) == len(made.gaps) == len(made.durations)
    assert (made.gaps >= 0).all()
    assert (made.durations > 0).all()
    assert made.symbols.max() < len(made.coarse) == len(made.optimizer)


def test_a_micro_batch_is_as_long_as_said() -> None:
    made = make_job(replace(PLAIN, micro=4))
    assert made.micro is not None
    (one, *_) = pieces(made, made.truths[0])
    assert one[: made.micro] * 4 == one[: 4 * made.micro]
    assert make_job(PLAIN).micro is None


@pytest.mark.parametrize(("start", "end"), [(0.3, 0.0), (0.0, 0.3), (0.5, 0.5), (0.999, 0.999)])
def test_a_cut_capture_shows_the_same_without_its_ends(start: float, end: float) -> None:
    whole, cut = make_job(NOISE), make_job(replace(NOISE, cut_start=start, cut_end=end))
    (truth,), (shown,) = whole.truths, cut.truths
    first = truth.starts[0] - shown.starts[0]
    assert (whole.symbols[first : first + len(cut.symbols)] == cut.symbols).all()
    assert (truth.starts - first == shown.starts).all()
    assert (truth.ends - first == shown.ends).all()
    expected = [start == 0, *[True] * (NOISE.iterations - 2), end == 0]
    assert shown.whole.tolist() == expected
    assert (shown.starts[0] < 0) == (start > 0)
    assert (shown.ends[-1] > len(cut.symbols)) == (end > 0)


def test_coarse_symbols_map_variants_back() -> None:
    job = replace(PLAIN, substitutions=0.05, retuned=1.0, buckets=4, bucket_share=0.5)
    plain, varied = make_job(PLAIN), make_job(job)
    (one, *_) = pieces(plain, plain.truths[0])
    for piece in pieces(varied, varied.truths[0]):
        assert piece != one
        assert varied.coarse[piece].tolist() == one
    assert (varied.coarse[varied.coarse] == varied.coarse).all()


def test_edited_iterations_are_as_long_as_their_edits_make_them() -> None:
    deleted = make_job(replace(PLAIN, deletions=2.0)).truths[0]
    inserted = make_job(replace(PLAIN, insertions=2.0)).truths[0]
    assert deleted.period == inserted.period == PLAIN.size
    assert ((deleted.ends - deleted.starts) <= PLAIN.size).all()
    assert ((inserted.ends - inserted.starts) >= PLAIN.size).all()
    assert (deleted.starts[1:] == deleted.ends[:-1]).all()


def test_first_iterations_are_autotuned() -> None:
    truth = make_job(replace(PLAIN, autotuned=2)).truths[0]
    sizes = truth.ends - truth.starts
    assert (sizes[:2] > PLAIN.size).all()
    assert (sizes[2:] == PLAIN.size).all()


@pytest.mark.parametrize("every", [1, 3])
def test_an_iteration_that_grows(every: int) -> None:
    truth = make_job(replace(PLAIN, growth_every=every)).truths[0]
    expected = PLAIN.size + np.arange(PLAIN.iterations) // every
    assert (truth.ends - truth.starts == expected).all()
    assert (truth.shortest, truth.longest) == (expected[0], expected[-1])
    assert truth.shortest <= truth.period <= truth.longest


def test_what_happens_now_and_then_is_where_it_is_said_to_be() -> None:
    job = replace(PLAIN, eval_every=3, eval_passes=2, checkpoint_every=4, statistics_every=6)
    made = make_job(job)
    (truth,) = made.truths
    between = truth.starts[1:] - truth.ends[:-1]
    known = {cycle.kind: cycle for cycle in made.cycles}
    passes, saved = known["evaluation"].extra, known["checkpoint"].extra
    expected = [passes * (j % 3 == 2) + saved * (j % 4 == 3) for j in range(job.iterations - 1)]
    assert between.tolist() == expected
    assert (truth.ends - truth.starts - truth.period).tolist() == [0, 0, 0, 0, 0, known["statistics"].extra] * 2
    assert truth.period == job.size
    (aside,) = made.asides
    assert len(aside.starts) == 8
    assert {tuple(piece) for piece in pieces(made, aside)} == {tuple(pieces(made, aside)[0])}


@pytest.mark.parametrize("similar", [False, True])
@pytest.mark.parametrize("stretches", [2, 5])
def test_two_loops_have_a_truth_each(stretches: int, similar: bool) -> None:
    made = make_job(replace(PLAIN, iterations=60, stretches=stretches, similar=similar, cut_end=0.5))
    assert len(made.truths) == 2
    for truth in made.truths:
        found = pieces(made, truth)
        assert all(piece == found[0] for piece in found)
    starts = np.sort(np.concatenate([truth.starts for truth in made.truths]))
    ends = np.sort(np.concatenate([truth.ends for truth in made.truths]))
    assert (starts[1:] == ends[:-1]).all()
    turns = np.diff(np.isin(starts, made.truths[0].starts).astype(int)) != 0
    assert turns.sum() == stretches - 1


def test_pauses_are_where_they_are_said_to_be() -> None:
    made = make_job(replace(PLAIN, start_gap_us=1000.0))
    assert made.gaps is not None
    starts = made.truths[0].starts
    assert made.gaps[starts].min() > 20 * np.median(made.gaps)
    assert set(np.flatnonzero(made.gaps > 200)) >= set(starts.tolist())


def test_prologue_and_epilogue_are_as_long_as_asked_for() -> None:
    made = make_job(replace(PLAIN, prologue=77, epilogue=55))
    (truth,) = made.truths
    assert truth.starts[0] == 77
    assert len(made.symbols) - truth.ends[-1] == 55


def test_the_same_seed_makes_the_same_job_and_another_another() -> None:
    one, same, other = (make_job(replace(NOISE, seed=seed)) for seed in (5, 5, 6))
    assert one.symbols.tolist() == same.symbols.tolist()
    assert one.gaps is not None
    assert same.gaps is not None
    assert one.gaps.tolist() == same.gaps.tolist()
    assert one.symbols.tolist() != other.symbols.tolist()


def test_a_job_says_which_knobs_are_turned() -> None:
    assert str(replace(Job(), micro=4, substitutions=0.001)) == "micro=4, substitutions=0.001"


def test_random_jobs_have_enough_whole_iterations() -> None:
    for seed in (*BLOCKS["random"], *BLOCKS["unseen"]):
        job = draw_job(seed)
        assert job == draw_job(seed)
        assert job.iterations - (job.cut_start > 0) - (job.cut_end > 0) >= 3


def test_random_jobs_differ() -> None:
    jobs = {replace(draw_job(seed), seed=0) for seed in (*BLOCKS["random"], *BLOCKS["unseen"])}
    assert len(jobs) == 240
    assert not set(BLOCKS["random"]) & set(BLOCKS["unseen"])


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenarios_are_as_long_as_their_sizes_say(name: str) -> None:
    job = replace(SCENARIOS[name], insertions=0.0, deletions=0.0, autotuned=0)
    truth = make_job(job).truths[0]
    assert truth.shortest == job.size
    assert int(truth.whole.sum()) >= 3


def test_sequences_without_a_loop_are_many_and_have_no_truth() -> None:
    made = [case.make() for case in cases()]
    assert len(made) >= 60
    assert all(not one.truths and len(one.symbols) for one in made)
    assert [one.symbols.tolist() for one in made] == [case.make().symbols.tolist() for case in cases()]
