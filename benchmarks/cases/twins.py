"""Twins: a job that shows what real traces once got wrong, next to one that only looks like it.

Each represents a principle, and is made by the simulator alone. `defects` and `habits` have most of them, each next to
its program.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

from benchmarks.cases import defects, equal_kernels, habits, starts
from benchmarks.cases.case import HEALTHY, Case
from benchmarks.cases.lookalikes import plan_patient_host
from benchmarks.cases.played import NONE, ONE, TWIN_SEED, Job, LateMachine, Twin, make_job, play, read_machine
from benchmarks.cases.simulated import load_ranks
from deepprof.collectors.trace import Trace
from deepprof.simulation.document import START_NS
from deepprof.simulation.machine import Machine
from deepprof.simulation.plan import SimulationRequest
from deepprof.simulation.steps import Close, Open

__all__ = ["SECTION", "TWINS", "cases"]

SECTION = "Twins"
RANKS = 8

TWINS = {
    **defects.TWINS,
    **habits.TWINS,
    "three marked steps, computing": Twin(make_job(plan_patient_host, 3, annotate=True), (HEALTHY,), loops=ONE),
    "one marked step, computing": Twin(make_job(plan_patient_host, 1), (HEALTHY,), loops=NONE, single=True),
    "queued work starts late": Twin(
        Job(plan_patient_host, 16, TWIN_SEED, LateMachine),
        (HEALTHY, "sync-bound"),
        ("capture-incomplete", "launch-bound"),
    ),
    "queued work starts at once": Twin(make_job(plan_patient_host), (HEALTHY,), ("capture-incomplete",)),
}


def cases() -> Iterator[Case]:
    """Yield a case per twin, and those of eight ranks."""
    for name, twin in TWINS.items():
        label, *also = twin.labels
        count = twin.job.iterations
        yield Case(
            section=SECTION,
            name=name,
            label=label,
            load=partial(load_twin, twin),
            also=tuple(also),
            never=twin.never,
            loops=twin.loops,
            iterations=count if twin.counted else None,
            counts=(count,) if twin.told else (),
        )
    for name, scenario, label in (("late", "straggler", "straggler"), ("none late", "ranks-healthy", HEALTHY)):
        load = partial(load_ranks, scenario, TWIN_SEED, RANKS, 10)
        yield Case(SECTION, f"{RANKS} ranks, {name}", label, load, never=() if label == scenario else ("straggler",))
    yield from starts.cases(SECTION)
    yield from equal_kernels.cases(SECTION)


def load_twin(twin: Twin, _: Path) -> list[Trace]:
    """Play a job, and leave of its trace what was recorded."""
    trace = play_once(twin.job, marked=twin.change is None) if twin.single else play(twin.job)
    return [twin.change(trace) if twin.change else trace]


def play_once(job: Job, *, marked: bool) -> Trace:
    """Return what a profiler would have recorded of one iteration alone, `marked` as a step of PyTorch's profiler."""
    plan = job.plan(SimulationRequest(random=Random(f"{job.seed} plan"), iterations=1, strength=1.0))
    machine = Machine(Random(f"{job.seed}"), START_NS, pace=plan.pace)
    for step in (*(Open("ProfilerStep#3"),) * marked, *plan.build(1), *(Close(),) * marked):
        machine.play(step)
    return read_machine(machine)
