"""A single step has no iterations, however often its layers come back."""

from __future__ import annotations

import pytest

from deepprof.mining import Evidence, find_loops
from tests.mining.single_steps import make_chosen_step, make_step


@pytest.mark.widens(5)
@pytest.mark.parametrize("first", range(0, 200, 20))
@pytest.mark.parametrize("named", [False, True])
def test_a_step_that_updates_within_its_backward_pass_holds_no_loop(first: int, named: bool) -> None:
    for seed in range(first, first + 20):
        symbols, optimizer = make_step(seed)
        found = find_loops(symbols, Evidence(optimizer=optimizer if named else None))
        assert found.loops == (), f"seed {seed}: {[loop.evidence for loop in found.loops]}"


@pytest.mark.widens(4)
@pytest.mark.parametrize("first", range(0, 100, 20))
@pytest.mark.parametrize("named", [False, True])
def test_nor_does_one_whose_layers_differ_in_a_kernel_or_have_one_coarse_name(first: int, named: bool) -> None:
    for seed in range(first, first + 20):
        symbols, optimizer, coarse = make_chosen_step(seed)
        found = find_loops(symbols, Evidence(optimizer=optimizer if named else None), coarse=coarse)
        assert found.loops == (), f"seed {seed}: {[loop.evidence for loop in found.loops]}"


def test_a_simulation_of_eight_different_kernels_is_a_loop() -> None:
    found = find_loops([0, 0, 0, *list(range(1, 9)) * 150])
    assert found.loop is not None
    assert (found.loop.period, len(found.loop.iterations.first)) == (8, 150)


def test_a_solver_that_uses_a_kernel_twice_is_none() -> None:
    assert find_loops([9, *[1, 2, 3, 4, 5, 6, 2] * 150]).loop is None


def test_training_with_an_evaluation_every_few_iterations_is_a_loop_of_its_training() -> None:
    layer, back = [1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11, 2]
    forward = [20, *layer * 20, 21, 22]
    training = [*forward, *back * 20, *[30, 31, 32] * 10]
    found = find_loops((training * 5 + forward * 10) * 6)
    assert found.loop is not None
    assert found.loop.period == len(training)
    assert int(found.loop.iterations.complete.sum()) == 30
    assert sorted(loop.period for loop in found.loops) == [len(forward), len(training)]
