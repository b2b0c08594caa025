"""Bounds and gains: the arithmetic on given figures; what programs gain is measured by `make gains` alone."""

from __future__ import annotations

import inspect
from importlib.util import find_spec

import pytest

from benchmarks.accuracy.tables import read_rows
from benchmarks.gains.pairs import PAIRS, UNMEASURED, GainPair
from benchmarks.gains.table import PairResult, draw_results, judge
from deepprof.diagnosis.engine import rules_on_work

PAIR = GainPair("train", "unfused-loss", "cross_entropy")
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="the programs need torch")


def result(*bounds: float | None, after_ns: tuple[int, ...] = (60, 120, 90)) -> PairResult:
    return PairResult(PAIR, bounds, (100, 200, 100), after_ns)


@pytest.mark.parametrize(
    ("bound", "gain", "verdict"),
    [
        (0.6, 0.6, "good"),
        (0.6, 0.2, "good"),
        (0.6, 0.19, "below a third"),
        (0.6, -0.1, "below a third"),
        (0.6, 0.61, "above the bound"),
        (0.0, 0.1, "above the bound"),
        (None, 0.4, "no finding"),
    ],
)
def test_a_bound_is_good_where_the_gain_is_between_a_third_of_it_and_all(
    bound: float | None, gain: float, verdict: str
) -> None:
    assert judge(bound, gain) == verdict


def test_a_gain_is_the_median_of_iterations_that_ran_in_turn() -> None:
    # The gains are 0.4, 0.4 and 0.1: half way between the first two and the last two of 0.1, 0.4, 0.4.
    assert result(0.5).gain_quartiles == pytest.approx((0.25, 0.4, 0.4))


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ((0.5, 0.2, 0.4), 0.4),
        ((0.5, None, 0.4), 0.45),
        ((0.5, None), None),  # half of the recordings show nothing
        ((None, None, 0.4), None),
    ],
)
def test_a_bound_is_the_median_of_recordings_if_most_have_one(
    bounds: tuple[float | None, ...], expected: float | None
) -> None:
    assert result(*bounds).bound_ratio == (None if expected is None else pytest.approx(expected))


def test_the_table_has_a_row_for_each_pair_and_for_what_was_not_measured() -> None:
    results = {"written-loss": result(0.5), "other": result(None), "third": result(0.3)}
    page = "\n" + draw_results(results, {"small-grids": "only a GPU"}).markdown()
    assert "1 of 3 bounds are good." in page
    assert read_rows(page, "Bounds and gains") == [
        ["written-loss", "unfused-loss", "cross_entropy", "50.0", "40.0", "25.0 to 40.0", "0.80", "good"],
        ["other", "unfused-loss", "cross_entropy", "-", "40.0", "25.0 to 40.0", "-", "no finding"],
        ["third", "unfused-loss", "cross_entropy", "30.0", "40.0", "25.0 to 40.0", "1.33", "above the bound"],
        ["-", "small-grids", "only a GPU", "-", "-", "-", "-", "not measured"],
    ]


def test_every_rule_on_work_is_measured_or_not() -> None:
    measured = {pair.rule for pair in PAIRS.values()}
    assert measured | set(UNMEASURED) == rules_on_work()
    assert not measured & set(UNMEASURED)


@needs_torch
def test_every_pair_has_a_program_that_takes_whether_it_is_changed() -> None:
    from benchmarks.gains import programs

    for pair in PAIRS.values():
        assert list(inspect.signature(getattr(programs, pair.function)).parameters) == ["changed"]


@needs_torch
def test_programs_run_in_turn_until_their_time_is_over() -> None:
    from benchmarks.gains.measuring import FEWEST, time_in_turn

    now, ran = [0], list[str]()

    def take(name: str, ns: int) -> None:
        ran.append(name)
        now[0] += ns

    times = time_in_turn(lambda: take("before", 300), lambda: take("after", 100), 0.0, lambda: now[0])
    assert times == ([300] * FEWEST, [100] * FEWEST)
    assert ran == ["before", "after"] * FEWEST


@needs_torch
@pytest.mark.parametrize("name", ["written-norm", "batch-norm", "written-attention"])
def test_a_change_does_not_change_the_result(name: str) -> None:
    import torch

    from benchmarks.gains import programs

    results = []
    for changed in (False, True):
        torch.manual_seed(0)
        results.append(getattr(programs, PAIRS[name].function)(changed)())
    torch.testing.assert_close(*results, rtol=1e-3, atol=1e-4)
