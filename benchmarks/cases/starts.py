"""Ranks of which one starts late: the others wait in their first collective, and never again."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

from benchmarks.cases.case import HEALTHY, Case
from benchmarks.cases.lookalikes import draw_training
from benchmarks.cases.played import TWIN_SEED, read_machine
from deepprof.collectors.trace import Trace
from deepprof.simulation.capture import record
from deepprof.simulation.document import START_NS, FileOrigin
from deepprof.simulation.machine import Machine
from deepprof.simulation.plan import RankPlan, SimulationRequest
from deepprof.simulation.steps import Join, Pause, Reduce, Step

__all__ = ["cases", "load_start"]

RANKS, ITERATIONS, LATE_RANK = 4, 12, 2
REDUCE_NS, ELEMENTS = 150_000, 60_000
LATE = 8  # iterations by which the rank starts late


def cases(section: str) -> Iterator[Case]:
    """Yield a job whose third rank starts late, and its twin."""
    for name, late, never in (("one starts late", LATE, ()), ("all start at once", 0, ("late-start",))):
        load = partial(load_start, late)
        yield Case(section, f"{RANKS} ranks, {name}", HEALTHY, load, never=("straggler", "slow-iterations", *never))


def load_start(late: int, _: Path | None = None) -> list[Trace]:
    """Return what a profiler would have recorded of every rank; one starts `late` iterations after the others."""
    plans = [plan_rank(late if rank == LATE_RANK else 0) for rank in range(RANKS)]
    machines = [Machine(Random(f"{TWIN_SEED} {rank}"), START_NS, ranks=RANKS) for rank in range(RANKS)]
    record(machines, plans, ITERATIONS, annotate=False)
    return [read_machine(machine, FileOrigin(rank, RANKS)) for rank, machine in enumerate(machines)]


def plan_rank(late: int) -> RankPlan:
    """Return the program of a rank that meets the others once in an iteration; it starts `late` iterations late."""
    request = SimulationRequest(random=Random(f"{TWIN_SEED} plan"), iterations=ITERATIONS, strength=1.0)
    training = draw_training(request.random, reads=True)

    def build(index: int) -> Iterator[Step]:
        yield Pause(late * training.model.device_ns if index == 0 else 0)
        yield from training.build(index)
        yield from (Reduce(ELEMENTS, REDUCE_NS), Join())

    return RankPlan(build=build)
