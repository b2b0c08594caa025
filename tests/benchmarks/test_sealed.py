"""The sealed judge: its truth comes from how jobs were made, the same block is drawn twice, and luck fails nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from benchmarks.cases.case import HEALTHY
from benchmarks.cases.mixtures import Mistakes
from benchmarks.cases.played import Job
from benchmarks.sealed import drawing, seeds
from benchmarks.sealed.drawing import MISSING, NAMED, draw, draw_names
from benchmarks.sealed.judging import answer
from benchmarks.sealed.recording import record, whole_iterations
from benchmarks.sealed.scoring import CEILINGS, FLOORS, Answer, missed, passes, summary, wilson
from benchmarks.sealed.single import PASSES, draw_pass, record_pass
from benchmarks.sealed.truth import find_truth, judge_shares
from deepprof.analysis import analyze

RULES = {"data": "input-bound", "reads": "sync-bound", "logs": "host-bound", "growth": "graph-growth"}


def made(label: str | None, headline: str, confidence: float = 0.9, loops: int = 1) -> Answer:
    silent = headline == HEALTHY
    return Answer("kind", label, (), headline, 0.0 if silent else confidence, silent, loops, counted=True)


def test_the_same_seed_draws_the_same_job_and_another_one_does_not() -> None:
    first, again, other = draw("test", 3), draw("test", 3), draw("test 2", 3)
    assert (first.mistakes, first.truth, first.cut) == (again.mistakes, again.truth, again.cut)
    assert first.truth != other.truth
    assert record(first).device_events.equals(record(again).device_events)


def test_the_seed_is_the_commit_and_outside_git_the_sources(tmp_path: Path) -> None:
    assert seeds.read_seed() == seeds.read_seed()
    source = tmp_path / "mining" / "some.py"
    source.parent.mkdir()
    source.write_text("one = 1\n")
    before = seeds.hash_sources(tmp_path)
    source.write_text("one = 2\n")
    assert seeds.hash_sources(tmp_path) != before


@pytest.mark.parametrize(
    ("shares", "missing", "label", "also", "clear"),
    [
        ({}, "nothing", HEALTHY, (), True),
        ({"data": 0.03}, "nothing", HEALTHY, (), True),  # well below what is worth a word
        ({"data": 0.09}, "nothing", "input-bound", (), False),  # a matter of taste
        ({"data": 0.3}, "nothing", "input-bound", (), True),
        ({"data": 0.3}, "the host", "host-bound", ("input-bound",), True),
        ({"data": 0.3, "reads": 0.15}, "nothing", "input-bound", (), True),
        ({"data": 0.3, "reads": 0.25}, "nothing", "input-bound", ("sync-bound",), True),
        ({"reads": 0.3, "logs": 0.28}, "launch records", HEALTHY, ("sync-bound", "host-bound"), True),
    ],
)
def test_the_truth_is_the_largest_loss(
    shares: dict[str, float], missing: str, label: str, also: tuple[str, ...], clear: bool
) -> None:
    assert judge_shares(shares, RULES, missing) == (label, also, clear)


def test_the_loss_of_a_planted_mistake_is_measured_on_the_schedule() -> None:
    planted = [job for job in (draw("test", number) for number in range(8)) if job.kind == "one mistake"]
    assert planted
    for job in planted:
        ((_, share),) = job.truth.shares.items()
        assert 0.05 < share < 0.95


@pytest.mark.parametrize(("launches", "clear"), [(0.8, False), (0.05, True)])
def test_mistakes_that_hide_each_other_are_no_clear_case(launches: float, clear: bool) -> None:
    """Either the device copies for so long that launching is hidden, or the host launches so slowly that copies are."""
    mistakes = Mistakes(moves=0.8, launches=launches)
    job = Job(mistakes.plan, 8)
    without = {name: replace(job, plan=mistakes.without(name).plan) for name in ("moves", "launches")}
    bare = replace(job, plan=Mistakes().plan)
    truth = find_truth(job, without, bare, {"moves": "device-copies", "launches": "launch-bound"}, "nothing")
    assert truth.clear == clear


def test_other_frameworks_are_drawn_as_often_as_mistakes_of_kernels_allow() -> None:
    drawn = [draw_names(Random(f"families {number}"), 1)[0] for number in range(400)]
    of_kernels = sum(name in NAMED for name in drawn) / len(drawn)
    assert 0.18 < of_kernels < 0.3


@pytest.mark.parametrize("missing", MISSING)
def test_every_kind_of_record_can_be_missing(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "MISSING", {missing: 1})
    job = draw("missing", 0)
    trace = record(job)
    runtime = (trace.host_events["category"] == "runtime").any()
    assert runtime != (missing in ("launch records", "the host"))
    assert 3 <= whole_iterations(job, trace) <= job.job.iterations


@pytest.mark.parametrize("number", range(len(PASSES)))
def test_a_single_pass_is_one_and_is_judged(number: int) -> None:
    drawn = draw_pass("test", number)
    assert drawn.kind == PASSES[number]
    trace = record_pass(drawn)
    assert trace.device_events.height > len(drawn.model.forward)
    said = answer(("test", number, True))
    assert said.label is None
    assert said.counted == (said.loops == 0)


def test_an_answer_is_counted_as_what_it_is() -> None:
    either = Answer("kind", "drift", ("host-bound",), "host-bound", 0.9, silent=False, loops=1, counted=False)
    some = [made("drift", "drift"), either, made("drift", HEALTHY), made("drift", "copy-bound"), made(HEALTHY, HEALTHY)]
    row = summary(some).rows[-1]
    assert row[:6] == ["all", "5", "2", "1", "1", "1"]
    assert row[6:] == ["60.0 % (23.1 to 88.2)", "20.0 % (3.6 to 62.4)", "80.0 % (37.6 to 96.4)"]
    assert passes([made(None, HEALTHY, loops=1), made(None, HEALTHY, loops=0)]).rows[-1][1:] == [
        "2",
        "1, 50.0 % (9.5 to 90.5)",
    ]


def test_an_interval_holds_its_share_and_narrows() -> None:
    for number in (1, 10, 200):
        for hits in range(number + 1):
            low, high = wilson(hits, number)
            assert 0 <= low <= hits / number + 1e-12
            assert hits / number - 1e-12 <= high <= 1
    assert wilson(95, 100)[0] < wilson(950, 1000)[0]
    assert wilson(0, 0) == (0.0, 1.0)


def test_luck_fails_nothing_and_a_fault_does() -> None:
    floor, ceiling = FLOORS["right or acceptable"], CEILINGS["false loops"]
    random = Random("luck")
    for _ in range(100):
        jobs = [made("drift", "drift" if random.random() < floor else HEALTHY) for _ in range(120)]
        single = [made(None, HEALTHY, loops=int(random.random() < ceiling)) for _ in range(200)]
        assert missed([*jobs, *single]) == []
    bad = [made("drift", "copy-bound" if number % 5 == 0 else "drift") for number in range(120)]
    lines = missed([*bad, *[made(None, HEALTHY, loops=number % 10 == 0) for number in range(200)]])
    assert [line.partition(":")[0] for line in lines] == ["right or acceptable", "wrong at ≥ 0.8", "false loops"]
    assert missed([]) == []


@pytest.mark.parametrize(("misses", "fails"), [(4, False), (5, True)])
def test_few_misses_of_a_rare_kind_are_luck(misses: int, fails: bool) -> None:
    """At most 0.5 % of 120: that four of them come together happens three times in a thousand."""
    answers = [made("drift", "copy-bound" if number < misses else "drift") for number in range(120)]
    assert any(line.startswith("wrong at") for line in missed(answers)) == fails


@pytest.mark.parametrize(
    ("block", "number"),
    [
        ("look bb", 2),
        ("look bb", 107),
        ("look aa", 71),
        ("look dd", 170),
        ("look ee", 44),
        ("look look ff", 29),
        ("look ii", 35),
    ],
)
def test_layers_that_exact_names_show_are_not_hidden_by_coarse_ones(block: str, number: int) -> None:
    """TensorFlow steps: nearly all kernels of a layer have one coarse name."""
    assert analyze([record_pass(draw_pass(block, number))]).loops == ()
