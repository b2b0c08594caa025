"""Planted mistakes of kernels: each alone has its rule as headline, and put right the rule is silent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.cases.mixtures import RULES, Mistakes
from benchmarks.cases.planted import PLANTED, put_on_device
from benchmarks.cases.played import Job, play, time_iteration
from benchmarks.sealed.drawing import NAMED, WAITING
from benchmarks.sealed.truth import LIMITS
from deepprof.analysis import analyze
from deepprof.diagnosis.engine import rules_on_work

SIZE = 0.6  # of the device's computing time
NOT_BY_KERNELS = {  # rules on work that the names, grids and operators of one rank's kernels do not show
    "low-efficiency",  # needs shapes and peaks
    "fusion-candidates",  # a remark, of functions
    "recomputed-forward",  # a remark, of operators within the backward pass
    "slowing-kernels",  # listed under drift
}


def find(mistakes: Mistakes, seed: int) -> tuple[str | None, set[str]]:
    """Return the headline, and the rules of all findings of at least a warning."""
    found = analyze(put_on_device(play(Job(mistakes.plan, 14, seed)), mistakes))
    told = {each.rule for each in found.findings if each.severity != "info"}
    return (found.headline.rule if found.headline else None), told


@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.parametrize("seed", [2, 3])  # a transformer and a convolutional network
def test_a_planted_mistake_is_the_headline_and_put_right_it_is_not_told(name: str, seed: int) -> None:
    mistakes = Mistakes(**{name: SIZE})  # type: ignore[arg-type]
    assert find(mistakes, seed)[0] == RULES[name]
    assert RULES[name] not in find(mistakes.without(name), seed)[1]


@pytest.mark.parametrize("name", PLANTED)
def test_a_mistake_costs_about_its_size(name: str) -> None:
    mistakes = Mistakes(**{name: SIZE})  # type: ignore[arg-type]
    job = Job(mistakes.plan, 8, 2)
    lost_ns = time_iteration(job) - time_iteration(replace(job, plan=mistakes.without(name).plan))
    whole_ns = time_iteration(replace(job, plan=Mistakes().plan))
    assert lost_ns / whole_ns == pytest.approx(SIZE, rel=0.15)


def test_every_rule_on_work_that_kernels_show_has_a_mistake() -> None:
    assert rules_on_work() - NOT_BY_KERNELS <= set(RULES.values())
    assert set(RULES.values()) - {"small-kernels"} <= set(LIMITS)


def test_families_have_every_mistake_that_is_drawn() -> None:
    assert set(WAITING) | set(NAMED) == set(RULES) - {"tiny"}


def test_two_mistakes_share_the_places_in_front_of_products() -> None:
    both = Mistakes(casts=0.5, drawn=0.5)
    assert {"repeated-casts", "unfused-dropout"} <= find(both, 2)[1]


def test_the_device_is_the_one_that_shows_the_mistake() -> None:
    for mistakes, device in ((Mistakes(), "A100"), (Mistakes(older=0.3), "H100"), (Mistakes(doubles=0.3), "GeForce")):
        names = put_on_device(play(Job(mistakes.plan, 2)), mistakes).devices["name"]
        assert [device in name for name in names] == [True]
