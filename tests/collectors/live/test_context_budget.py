"""Which iterations contexts are collected in: by what a job loses, whoever measures it, in all ranks the same."""

from __future__ import annotations

import ctypes
import itertools
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.collectors.live.building import FLAGS, compiler, run
from tests.collectors.live.hooked import PROGRAMS


def look(budget: ctypes.CDLL, share: float) -> None:
    """Let a second pass of which this much is lost, as far as is known how much more that is than what is measured."""
    budget.look(1e9 * share / budget.lost_by_measured(), 1e9)


@pytest.fixture(scope="module")
def budget_parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("budget") / "parts.so"
    run([compiler(), *FLAGS, "-O1", "-shared", str(PROGRAMS / "budget_parts.c"), "-o", str(target)])
    return target


@pytest.fixture
def new_budget(budget_parts: Path, tmp_path: Path) -> Callable[[], ctypes.CDLL]:
    """Load the part that chooses iterations, alone. A copy is a library with its own state."""
    numbers = itertools.count()
    return lambda: _load_budget(shutil.copy(budget_parts, tmp_path / f"budget{next(numbers)}.so"))


def _load_budget(library: Path) -> ctypes.CDLL:
    budget = ctypes.CDLL(str(library))
    budget.look.argtypes = [ctypes.c_double, ctypes.c_double]
    budget.let_pass.argtypes = [ctypes.c_int64]
    budget.lost_by_measured.restype = ctypes.c_double
    return budget


@pytest.fixture
def fresh_budget(new_budget: Callable[[], ctypes.CDLL]) -> ctypes.CDLL:
    """Return one to which no one has told of steps yet."""
    return new_budget()


@pytest.fixture
def budget(fresh_budget: ctypes.CDLL) -> ctypes.CDLL:
    """The same after the hook has told of steps: every second iteration is collected."""
    budget = fresh_budget
    for _ in range(2):
        assert budget.step(1)
        look(budget, 0.08)
    assert budget.every() == 2
    return budget


@pytest.mark.parametrize("share", [0.08, 0.16, 0.32, 0.64, 1.28, 2.56])
def test_work_of_each_nth_iteration_has_its_share_of_what_is_collected(budget: ctypes.CDLL, share: float) -> None:
    """One iteration of a row is collected, and whatever a program does in each 2nd to 100th is in as many of them."""
    budget.reset()
    for _ in range(2):
        assert budget.step(1)
        look(budget, share)
    row, count = budget.every(), 1 << 17
    assert row == round(share / 0.04)
    collected = np.array([budget.step(1) for _ in range(count)], np.bool_)
    assert abs(collected.sum() - count // row) <= 2
    for period in (2, 3, 8, 10, 64, 100):
        shares = np.array([collected[first::period].mean() * row for first in range(period)])
        assert np.abs(shares - 1).max() < 5 * math.sqrt(row * period / count)  # as of chance, and the same each time


def test_ranks_collect_the_same_iterations(new_budget: Callable[[], ctypes.CDLL]) -> None:
    """Each is switched on at another one, and finds another share: who collects fewer collects some of the others'."""
    ranks = [new_budget() for _ in range(3)]
    collected = np.zeros((3, 4000), np.bool_)
    for number, (rank, row) in enumerate(zip(ranks, (2, 8, 64), strict=True)):
        for at in range(4000):
            if at == 7 * (number + 1):
                rank.reset()
            if at in range(30, 40):
                look(rank, 0.04 * row / rank.every())
            collected[number, at] = rank.step(at >= 7 * (number + 1))
        assert rank.every() == row
    often, seldom, least = collected[:, 40:]
    assert 0 < (least & seldom).sum() == least.sum() < (seldom & often).sum() == seldom.sum() < often.sum()


def test_steps_while_nothing_is_collected_are_not_left_out(budget: ctypes.CDLL) -> None:
    assert [budget.step(0) for _ in range(100)] == [1] * 100
    budget.reset()
    assert budget.take_left_out() == 0
    assert budget.is_collected()


def test_a_long_iteration_that_is_left_out_has_no_seconds_that_are_collected(budget: ctypes.CDLL) -> None:
    """PyTorch does not call until the next step, as in an evaluation: there is nothing that seconds could be of."""
    while budget.step(1):
        pass
    told = budget.lines_told()
    for _ in range(1000):
        look(budget, 0)
    assert (budget.every(), budget.lines_told(), budget.take_left_out()) == (2, told, 1)
    assert any(budget.step(1) for _ in range(3))


def test_a_long_iteration_that_is_collected_is_sampled_by_seconds(budget: ctypes.CDLL) -> None:
    while not budget.step(1):
        pass
    budget.take_left_out()
    for _ in range(100):
        look(budget, 0.04)
    assert budget.take_left_out() < 0


class _Job:
    """A job whose iterations use 10 ms, and those longer in which the library measures something of itself."""

    def __init__(self, budget: ctypes.CDLL, lost: float, measured: float, noise: float = 0) -> None:
        self.budget, self.lost, self.measured = budget, lost, measured
        self.noise, self.random = noise, np.random.default_rng(7)
        budget.reset()

    def run(self, seconds: int) -> float:
        """Return which part of the time was lost to the library."""
        lost_ns = all_ns = count = 0.0
        collected = bool(self.budget.is_collected())
        for _ in range(seconds):
            passed_ns = cost_ns = 0.0
            while passed_ns < 1e9:
                own_ns = 1e7 * self.random.lognormal(0, self.noise) if count % 50 else 1e8  # as of an evaluation
                cost_ns += 1e7 * self.measured * collected
                iteration_ns = own_ns + 1e7 * self.lost * collected
                self.budget.let_pass(int(iteration_ns))
                passed_ns += iteration_ns
                lost_ns += 1e7 * self.lost * collected
                count += 1
                collected = bool(self.budget.step(1))
            self.budget.look(cost_ns, passed_ns)
            all_ns += passed_ns
        return lost_ns / all_ns


@pytest.mark.parametrize(("lost", "measured"), [(0.06, 0.04), (0.5, 0.3), (0.3, 0.1), (1.2, 0.9), (0.04, 0.039)])
@pytest.mark.parametrize("noise", [0, 0.2])
def test_a_job_loses_what_is_allowed_and_not_what_is_measured(
    budget: ctypes.CDLL, lost: float, measured: float, noise: float
) -> None:
    """Some iterations need ten times as long, others a fifth more or less."""
    job = _Job(budget, lost, measured, noise)
    job.run(60)
    assert 0.015 < job.run(200) < 0.055


def test_no_less_is_lost_than_is_measured(budget: ctypes.CDLL) -> None:
    """A GPU that is busy hides it, until it no longer does."""
    job = _Job(budget, 0, 0.3)
    job.run(100)
    assert (budget.every(), budget.lost_by_measured()) == (8, pytest.approx(1, abs=0.01))


@pytest.mark.parametrize("steps", [0, 3])
def test_seconds_within_the_budget_are_all_collected(fresh_budget: ctypes.CDLL, steps: int) -> None:
    """From the first one on, and where they follow iterations: those and seconds are not counted together."""
    for _ in range(steps):
        assert fresh_budget.step(1)
        look(fresh_budget, 0.04)
    for _ in range(100):
        look(fresh_budget, 0.04)
        assert fresh_budget.is_collected()
    assert (fresh_budget.every(), fresh_budget.lines_told(), fresh_budget.take_left_out()) == (1, 0, 0)


def test_a_budget_of_all_there_is_leaves_nothing_out(fresh_budget: ctypes.CDLL) -> None:
    """Threads that are late while they are measured, or end side by side, seem to use more than there is."""
    fresh_budget.allow(100)
    for _ in range(100):
        look(fresh_budget, 8)
        assert fresh_budget.is_collected()
    for _ in range(100):
        assert fresh_budget.step(1)
        look(fresh_budget, 8)
    assert (fresh_budget.every(), fresh_budget.lines_told(), fresh_budget.take_left_out()) == (1, 0, 0)
