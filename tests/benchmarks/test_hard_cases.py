"""Hard cases: labels that are the truth, and disturbances that leave the job as it is."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks.cases import hard
from benchmarks.cases.case import HEALTHY, Case, judge
from benchmarks.cases.hard import DISTURBANCES, MIXTURES, disturbed, load_base, mixture_job
from benchmarks.cases.mixtures import Mistakes
from benchmarks.cases.played import Job, play, time_iteration
from deepprof.collectors.trace import RECORD_TABLES
from tests.widening import slow_unless

RULES = {
    "data": "input-bound",
    "logs": "host-bound",
    "copies": "copy-bound",
    "reads": "sync-bound",
    "memory": "allocator-bound",
    "wires": "communication-bound",
    "tiny": "small-kernels",
    "growth": "graph-growth",
}
AS_GOOD = 1.5  # times as large: two mistakes of about one size
KEPT = {name for name in DISTURBANCES if not name.endswith("lost") and not name.startswith("no ")}


ALL_LABELS = [labels for _, labels in MIXTURES]


def is_first(number: int) -> bool:
    """Whether no mixture before has the same labels."""
    return ALL_LABELS.index(ALL_LABELS[number]) == number


@pytest.mark.parametrize("number", slow_unless(is_first, range(len(MIXTURES))))
def test_a_mixture_is_called_what_its_removal_saves_most(number: int) -> None:
    mistakes, labels = MIXTURES[number]
    job = mixture_job(number)
    planted = [name for name, share in asdict(mistakes).items() if share]
    without = {name: Job(replace(mistakes, **{name: 0.0}).plan, seed=job.seed) for name in planted}
    saved = {RULES[name]: time_iteration(job) - time_iteration(other) for name, other in without.items()}
    most = max(saved.values())
    assert {rule for rule, ns in saved.items() if AS_GOOD * ns >= most} == set(labels)


def test_a_mixture_without_mistakes_is_healthy() -> None:
    assert judge(Case("", "", HEALTHY, lambda _: [play(Job(Mistakes().plan))])).right


def test_every_case_has_its_own_name_and_disturbance() -> None:
    names = [(case.section, case.name) for case in hard.cases()]
    assert len(names) == len(set(names))
    assert all(sum(name.endswith(f", {each}") for _, name in names) >= 3 for each in DISTURBANCES)


@pytest.mark.parametrize("name", sorted(DISTURBANCES))
def test_a_disturbed_trace_is_one_and_tells_the_same_job(name: str) -> None:
    (base,) = load_base("input-bound")
    (made,) = disturbed("input-bound", name).load(Path())
    assert made is not base
    assert made.accounting.kept == sum(getattr(made, table).height for table in RECORD_TABLES)
    if name in KEPT:
        assert made.device_events.height >= base.device_events.height
        lost = base.host_events["correlation"].drop_nulls().unique().is_in(made.host_events["correlation"].implode())
        assert lost.all()
