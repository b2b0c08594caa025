"""The scores: what is right gets 1, and what is wrong less, each for its own reason."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.accuracy.scoring import Score, best, boundary_f1, mean, rotated_f1, score, score_all
from benchmarks.accuracy.truth import Truth


@dataclass(frozen=True)
class Loop:
    period: int
    starts: npt.NDArray[np.int64]
    confidence: float = 1.0


def loop(period: int, starts: list[int] | npt.NDArray[np.int64]) -> Loop:
    return Loop(period, np.asarray(starts, np.int64))


def truth(starts: list[int], period: int = 100, cut: tuple[int, ...] = ()) -> Truth:
    at = np.array(starts, np.int64)
    whole = ~np.isin(np.arange(len(at)), [c % len(at) for c in cut])
    return Truth(at, at + period, whole, period, period, period)


TEN = truth(list(range(1000, 2000, 100)))


def test_the_truth_is_fully_right() -> None:
    assert score(loop(100, TEN.starts), TEN) == Score(1, 1, 1, 1, 1, 1)


def test_no_loop_scores_nothing() -> None:
    assert score_all([], [TEN]) == Score()
    assert score(loop(100, []), TEN) == Score(period=1.0)


@pytest.mark.parametrize(("period", "right"), [(99, 1), (101, 1), (98, 0), (102, 0), (200, 0)])
def test_a_period_is_right_within_a_hundredth(period: int, right: int) -> None:
    assert score(loop(period, TEN.starts), TEN).period == right


@pytest.mark.parametrize(("period", "right"), [(98, 0), (99, 1), (110, 1), (121, 1), (122, 0)])
def test_a_growing_iteration_may_have_any_of_its_lengths(period: int, right: int) -> None:
    grown = Truth(TEN.starts, TEN.ends, TEN.whole, 110, 100, 120)
    assert score(loop(period, TEN.starts), grown).period == right


def test_a_rotated_loop_is_right_but_not_in_phase() -> None:
    found = score(loop(100, TEN.starts + 40), TEN)
    assert (found.rotated, found.phase, found.right, found.fully) == (1.0, 0.0, 1.0, 0.0)


@pytest.mark.parametrize("rotation", [-40, 40])
def test_the_iteration_that_a_rotation_costs_is_not_held_against_it(rotation: int) -> None:
    starts = TEN.starts + rotation
    assert rotated_f1(starts[1:] if rotation < 0 else starts[:-1], TEN) == 1.0
    assert rotated_f1(starts[2:] if rotation < 0 else starts[:-2], TEN) < 1.0


def test_without_rotation_a_missing_iteration_counts() -> None:
    assert boundary_f1(TEN.starts[:-1], TEN, 0, 2) == pytest.approx(18 / 19)


def test_of_every_other_boundary_half_are_missed() -> None:
    assert rotated_f1(TEN.starts[::2], TEN) == pytest.approx(2 * 5 / 15)


def test_boundaries_may_be_two_symbols_off_and_no_more() -> None:
    assert rotated_f1(TEN.starts + np.tile([0, 2], 5), TEN) == 1.0
    assert rotated_f1(TEN.starts + np.tile([0, 0, 0, 0, 4], 2), TEN) == pytest.approx(0.8)


def test_the_phase_may_be_a_hundredth_of_the_period_off() -> None:
    large = truth(list(range(0, 10_000, 1000)), 1000)
    assert score(loop(1000, large.starts + 10), large).phase == 1.0
    assert score(loop(1000, large.starts + 11), large).phase == 0.0


def test_iterations_that_the_capture_cuts_count_neither_way() -> None:
    cut = truth([-30, 70, 170, 270, 370], cut=(0, -1))
    for found in ([70, 170, 270], [70, 170, 270, 370], [-30, 70, 170, 270]):
        assert boundary_f1(np.array(found), cut, 0, 2) == 1.0
    assert boundary_f1(np.array([70, 170]), cut, 0, 2) == pytest.approx(0.8)
    assert score(loop(100, [70, 170, 270]), cut).count == 1


@pytest.mark.parametrize(("count", "right"), [(10, 1), (9, 1), (11, 1), (8, 0), (12, 0)])
def test_the_count_may_be_one_off(count: int, right: int) -> None:
    assert score(loop(100, 1000 + 100 * np.arange(count)), TEN).count == right


def test_each_true_loop_is_scored_with_the_found_one_that_fits_it() -> None:
    other = truth(list(range(3000, 5000, 250)), 250)
    found = [loop(250, other.starts), loop(100, TEN.starts)]
    assert score_all(found, [TEN, other]).fully == 1.0
    assert score_all(found[:1], [TEN, other]).fully == 0.5
    assert score_all(found, []) == Score()


def test_the_mean_and_the_best_of_scores() -> None:
    half, full = Score(period=1.0, rotated=0.5), Score(1, 1, 0.9, 0.9, 1, 1)
    assert mean([half, full]).rotated == pytest.approx(0.7)
    assert best([half, full]) == full
    assert best([]) == mean([]) == Score()
