"""How sure a loop is: a probability, more with every pass, vote and sign, less with every edit, and capped by doubt."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.mining import Evidence, Family, LoopCycle, Matches, find_loop
from deepprof.mining.acceptance import AcceptanceVerdict
from deepprof.mining.candidates import Candidate
from deepprof.mining.cycles import Kind
from deepprof.mining.loops import is_one_run, limit, sure_of_period, sure_of_start
from deepprof.mining.phase import Phase
from deepprof.mining.symbols import as_symbols
from deepprof.mining.template import Template
from tests.mining.jobs import Job

FORWARD, BACKWARD = [1, 2, 3, 4, 5], [8, 2, 9, 4, 10, 11]
PASS = [0, *FORWARD * 12, 6, 7, *BACKWARD * 12, 13]
ITERATION = [*PASS, *[20, 21] * 9]
ONE_RUN = [90, 91, *list(range(10)) * 12, 92]
P = len(ITERATION)


def candidate_of(
    passes: int = 10, edits: int = 0, coverage: float = 1.0, template: list[int] | None = None
) -> Candidate:
    """Return a candidate of this many whole passes, each with this many symbols inserted."""
    symbols = as_symbols(template or ITERATION)
    size = len(symbols)
    rows = [(j * (size + edits), (j + 1) * (size + edits), size, edits) for j in range(passes)]
    matches = Matches.from_rows(np.array(rows, np.int64).reshape(-1, 4), 0)
    return Candidate(Template(symbols, {}), matches, np.zeros(size, np.int64), coverage, 0, 0)


def phase(votes: float = 2.0, lead: float = 1.0) -> Phase:
    return Phase(0, "mined", 1.0, "made up", None, votes, lead)


def structural(weak: int = 0) -> AcceptanceVerdict:
    return AcceptanceVerdict(True, 0.5, "made up", weak=weak)


def cycle(kind: Kind, every: int) -> LoopCycle:
    return LoopCycle(every, 3, kind, 0, as_symbols([1, 2, 3]), as_symbols([1]))


numbers = st.tuples(
    st.integers(1, 200),
    st.integers(0, 20),
    st.floats(0, 1),
    st.floats(0, 12),
    st.integers(0, 5),
    st.sampled_from([0, 1]),
)


def sure(*values: float) -> float:
    """Return how sure it is, given passes, edits in each, coverage, votes, weak signs, and 1 for no parameter loop."""
    passes, edits, coverage, votes, weak, plain = values
    candidate = candidate_of(int(passes), int(edits), coverage, PASS if plain else ITERATION)
    return sure_of_period(candidate, structural(int(weak)), phase(votes), ())


@given(numbers)
def test_it_is_a_probability(values: tuple[int, int, float, float, int, int]) -> None:
    assert 0 < sure(*values) < 1


@given(numbers, st.integers(0, 4), st.floats(0, 40))
def test_more_passes_coverage_votes_and_signs_make_it_no_less_sure_and_edits_no_surer(
    values: tuple[int, int, float, float, int, int], which: int, more: float
) -> None:
    changed: list[float] = list(values)
    changed[which] += more if which in (2, 3) else int(more)
    before, after = sure(*values), sure(*changed)
    assert after <= before if which == 1 else after >= before


def test_each_part_of_it_counts() -> None:
    usual = sure(10, 1, 0.9, 1.0, 0, 1)
    assert sure(20, 1, 0.9, 1.0, 0, 1) > usual
    assert sure(10, 0, 0.9, 1.0, 0, 1) > usual
    assert sure(10, 2, 0.9, 1.0, 0, 1) < usual
    assert sure(10, 1, 1.0, 1.0, 0, 1) > usual
    assert sure(10, 1, 0.9, 2.0, 0, 1) > usual
    assert sure(10, 1, 0.9, 1.0, 1, 1) > usual
    assert sure(10, 1, 0.9, 1.0, 0, 0) > usual  # a loop over parameters


def test_beyond_what_was_ever_seen_nothing_more_is_learnt() -> None:
    assert sure(64, 0, 1.0, 4.0, 0, 0) == sure(200, 0, 1.0, 11.0, 0, 0)
    assert sure(10, 19, 1.0, 4.0, 0, 0) == sure(10, 60, 1.0, 4.0, 0, 0)


@given(numbers, st.floats(0, 1))
def test_names_or_ranges_that_speak_for_an_iteration_decide(
    values: tuple[int, int, float, float, int, int], certainty: float
) -> None:
    passes, edits, coverage, votes, weak, which = values
    strong = AcceptanceVerdict(True, certainty, "made up", strong=True, weak=weak)
    candidate = candidate_of(passes, edits, coverage, (ONE_RUN, PASS)[which])
    assert sure_of_period(candidate, strong, phase(votes), [cycle("accumulation", 4)]) == certainty


# --- where it may be a multiple or a part ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kinds", "every", "most"),
    [
        ([], 4, 1.0),
        (["evaluation"], 4, 1.0),
        (["unknown"], 4, 1.0),
        (["statistics"], 4, 0.88),
        (["checkpoint"], 64, 0.88),
        (["checkpoint"], 65, 1.0),
        (["accumulation"], 64, 0.6),
        (["evaluation", "statistics", "accumulation"], 8, 0.6),
    ],
)
def test_what_comes_every_few_passes_may_be_their_optimizer(kinds: list[Kind], every: int, most: float) -> None:
    cycles = [cycle(kind, every) for kind in kinds]
    assert limit(as_symbols(ITERATION), cycles) == most
    best = sure_of_period(candidate_of(64), structural(5), phase(4.0), cycles)
    assert best == pytest.approx(min(most, sure(64, 0, 1.0, 4.0, 5, 0)))


def test_one_run_of_equal_parts_may_be_several_iterations() -> None:
    assert limit(as_symbols(ONE_RUN), []) == 0.85
    assert sure_of_period(candidate_of(64, template=ONE_RUN), structural(5), phase(4.0), ()) == 0.85


def test_a_second_run_of_as_many_parts_makes_them_layers() -> None:
    assert is_one_run(as_symbols([0, *FORWARD * 40, 6, 7]))
    assert not is_one_run(as_symbols(PASS))
    forty = [0, *FORWARD * 40, 6, 7]
    assert not is_one_run(as_symbols([*forty, *[30, 31, 32, 33] * 40, 8]))
    assert not is_one_run(as_symbols([*[30, 31, 32, 33, 34] * 6, *range(40, 90), *FORWARD * 8]))  # not most of it


def test_small_loops_beside_a_run_are_no_second_run() -> None:
    beside = [0, *list(range(1, 21)) * 12, 30, *[31, 32, 33, 34] * 4, 35]
    assert is_one_run(as_symbols(beside))
    assert is_one_run(as_symbols([0, *list(range(1, 51)) * 12, 60, *[61, 62, 63, 64] * 12]))  # a twelfth of the first


@pytest.mark.parametrize("template", [[], [1], [1] * 30, list(range(30))], ids=len)
def test_what_has_no_parts_is_no_run_of_them(template: list[int]) -> None:
    assert not is_one_run(as_symbols(template))


# --- the start ------------------------------------------------------------------------------------------------------


@given(st.floats(0, 9), st.floats(0, 9))
def test_a_start_is_the_surer_the_more_votes_it_leads_by(one: float, other: float) -> None:
    less, more = (sure_of_start(phase(9.0, lead)) for lead in sorted((one, other)))
    assert 0 < less <= more < 1


def test_a_start_without_a_lead_is_hardly_known_and_one_with_three_votes_more_nearly_sure() -> None:
    assert sure_of_start(phase(2.0, 0.0)) == pytest.approx(0.3)
    assert sure_of_start(phase(9.0, 3.0)) == pytest.approx(0.995)


@given(st.floats(0.6, 1))
def test_ranges_that_agree_make_the_start_sure(agreement: float) -> None:
    pointed = Phase(3, "annotation", agreement, "made up", "ProfilerStep")
    assert sure_of_start(pointed) == pytest.approx(0.9 + 0.1 * agreement)


# --- of a loop ------------------------------------------------------------------------------------------------------

JOBS = {
    "clean": Job(),
    "three iterations": Job(iterations=3),
    "noise": Job(p_insert=0.5, p_delete=0.3, p_substitute=0.005),
    "evaluation": Job(eval_every=5),
    "growth": Job(growth=1, iterations=60),
    "cut": Job(prologue=0, cut=200),
}


@pytest.mark.parametrize("name", JOBS)
def test_a_loop_is_no_surer_than_its_start_and_neither_is_certain(name: str) -> None:
    loop = find_loop(JOBS[name].symbols()).loop
    assert loop is not None
    assert 0 < loop.confidence <= loop.start_confidence < 1


def test_noise_makes_a_loop_less_sure() -> None:
    clean, noisy = (find_loop(JOBS[name].symbols()).loop for name in ("clean", "noise"))
    assert clean is not None
    assert noisy is not None
    assert clean.confidence > noisy.confidence


def test_a_step_marker_makes_a_loop_as_good_as_sure() -> None:
    job = Job(prologue=0, cut=100)
    symbols = job.symbols()
    marks = Evidence(families=(Family("ProfilerStep", "step", np.array(job.starts)),))
    alone, marked = find_loop(symbols).loop, find_loop(symbols, marks).loop
    assert alone is not None
    assert marked is not None
    assert alone.confidence < marked.confidence <= 1
    assert marked.confidence >= 0.99
    assert marked.start_confidence == 1


@pytest.mark.parametrize("cut", range(0, 123, 5))
def test_one_run_is_one_from_every_cut(cut: int) -> None:
    assert is_one_run(as_symbols(np.roll([90, 91, *list(range(10)) * 12, 92], -cut)))


@pytest.mark.parametrize("least", [0.0, 1.0])
def test_a_loop_that_is_hardly_certain_is_refused(least: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepprof.mining.loops.LEAST_CONFIDENCE", least)
    found = find_loop(ITERATION * 4)
    refused = f"{P} kernels that repeat 4 times are more likely parts of one pass than iterations"
    assert (found.loop is None, found.reason) == ((True, refused) if least else (False, None))
