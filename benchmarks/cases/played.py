"""Plans that no scenario has, played and read as a profiler's file; on machines with noise, or shared with others."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from random import Random

import msgspec
import numpy as np

import deepprof
from deepprof.collectors.trace import Trace
from deepprof.simulation.capture import record
from deepprof.simulation.document import START_NS, FileOrigin, make_document
from deepprof.simulation.machine import Machine
from deepprof.simulation.plan import RankPlan, SimulationRequest
from deepprof.simulation.steps import MAIN_STREAM

__all__ = [
    "NONE",
    "ONE",
    "TWIN_SEED",
    "HandingMachine",
    "Job",
    "LateMachine",
    "NoisyMachine",
    "SharedMachine",
    "Twin",
    "make_job",
    "play",
    "read_machine",
    "run",
    "time_iteration",
]

STRENGTH = 1.0
TWIN_SEED = 501
ONE = (1, 1)  # loop, no more and no fewer
NONE = (0, 0)


class NoisyMachine(Machine):
    """Kernels and copies take up to 30 % more or less each time."""

    def occupy(self, stream: int, ns: int) -> tuple[int, int]:
        """Reserve a stream for about `ns`."""
        return super().occupy(stream, self.vary(ns, 0.3))


class SharedMachine(Machine):
    """Another process has the device in turns: one kernel in 25 begins 0.2 to 0.6 ms late, though it is queued."""

    def occupy(self, stream: int, ns: int) -> tuple[int, int]:
        """Reserve a stream, now and then after others."""
        if self.random.random() < 0.04:
            self.free[stream] = max(self.free.get(stream, 0), self.host_ns) + self.random.randint(200_000, 600_000)
        return super().occupy(stream, ns)


class LateMachine(Machine):
    """The driver hands launches over in batches: what finds the device idle begins 0.2 to 2 ms late (WDDM, WSL)."""

    def occupy(self, stream: int, ns: int) -> tuple[int, int]:
        """Reserve a stream, late where it is idle."""
        if self.free.get(stream, 0) < self.host_ns:
            self.free[stream] = self.host_ns + self.random.randint(200_000, 2_000_000)
        return super().occupy(stream, ns)


class HandingMachine(Machine):
    """One thing runs at a time, and what another stream waits for is handed over late, as between streams it is."""

    HANDOVER_NS = 16_000
    last = MAIN_STREAM

    def occupy(self, stream: int, ns: int) -> tuple[int, int]:
        """Reserve a stream after all others, late where the last work ran on another one."""
        if stream != self.last:
            self.free[stream] = max(self.free.values(), default=0) + self.HANDOVER_NS
        self.last = stream
        return super().occupy(stream, ns)


@dataclass(frozen=True)
class Job:
    """What is played: `plan` makes the program from a request of that seed; `annotate` marks its steps."""

    plan: Callable[[SimulationRequest], RankPlan]
    iterations: int = 16
    seed: int | str = 301
    machine: type[Machine] = Machine
    annotate: bool = False


def run(job: Job) -> tuple[Machine, list[int]]:
    """Let the job happen; return the machine and each iteration's first kernel."""
    request = SimulationRequest(random=Random(f"{job.seed} plan"), iterations=job.iterations, strength=STRENGTH)
    plan = job.plan(request)
    machine = job.machine(Random(f"{job.seed}"), START_NS, pace=plan.pace, slowness=plan.slowness)
    (firsts,) = record([machine], [plan], job.iterations, annotate=job.annotate)
    return machine, firsts


def play(job: Job) -> Trace:
    """Return what a profiler would have recorded of the job."""
    return read_machine(run(job)[0])


def read_machine(machine: Machine, origin: FileOrigin | None = None) -> Trace:
    """Return what a profiler would have recorded of the machine's work, in a file of that origin."""
    with tempfile.TemporaryDirectory(prefix="deepprof-case-") as scratch:
        path = Path(scratch) / "rank0.json"
        path.write_bytes(msgspec.json.encode(make_document(machine, origin or FileOrigin())))
        return deepprof.read(path)


@cache
def time_iteration(job: Job) -> float:
    """Return the median time of the job's iterations after the third, in nanoseconds: the truth, not a measurement."""
    machine, firsts = run(job)
    starts = [machine.kernels[first][0] for first in firsts]
    return float(np.median([after - begin for begin, after in pairwise(starts)][3:]))


@dataclass(frozen=True)
class Twin:
    """A job and what must be stated of it: `labels`, the best first; `never` and `loops` as `Case` has them.

    `change` leaves of the trace what was recorded; a `single` one is one marked iteration alone. Where `counted`, all
    its iterations are found; where `told`, the user states how many there are.
    """

    job: Job
    labels: tuple[str, ...]
    never: tuple[str, ...] = ()
    loops: tuple[int, int] | None = None
    change: Callable[[Trace], Trace] | None = None
    single: bool = False
    counted: bool = False
    told: bool = False


def make_job(
    plan: Callable[..., RankPlan], iterations: int = 16, *, annotate: bool = False, **choices: float | str
) -> Job:
    """Return a job of that plan."""
    return Job(partial(plan, **choices) if choices else plan, iterations, TWIN_SEED, annotate=annotate)
