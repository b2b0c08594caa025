"""Twins: a job that shows what real traces once got wrong, beside one that only looks like it.

Each stands for a principle, and is made by the simulator alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random

from benchmarks.cases import defects, habits
from benchmarks.cases.case import HEALTHY, Case
from benchmarks.cases.disturbances import drop_calls
from benchmarks.cases.dressing import dress, mark_step
from benchmarks.cases.lookalikes import plan_patient_host
from benchmarks.cases.played import HandingMachine, Job, LateMachine, play, read_machine
from benchmarks.cases.simulated import load_ranks
from deepprof.collectors.trace import Trace
from deepprof.simulation.document import START_NS
from deepprof.simulation.machine import Machine
from deepprof.simulation.plan import RankPlan, SimulationRequest
from deepprof.simulation.steps import MAIN_STREAM, Close, Open

__all__ = ["SECTION", "TWINS", "cases"]

SECTION = "Twins"
SEED = 501
RANKS = 8
ONE = (1, 1)  # loop, no more and no fewer
NONE = (0, 0)


@dataclass(frozen=True)
class Twin:
    """A job and what must be said of it: `labels`, the best first; `never` and `loops` as `Case` has them.

    `change` leaves of the trace what was recorded; a `single` one is one marked iteration alone. Where `counted`, all
    its iterations are found; where `told`, the user says how many there are.
    """

    job: Job
    labels: tuple[str, ...]
    never: tuple[str, ...] = ()
    loops: tuple[int, int] | None = None
    change: Callable[[Trace], Trace] | None = None
    single: bool = False
    counted: bool = False
    told: bool = False


def make(plan: Callable[..., RankPlan], iterations: int = 16, *, annotate: bool = False, **choices: float | str) -> Job:
    """Return a job of that plan."""
    return Job(partial(plan, **choices) if choices else plan, iterations, SEED, annotate=annotate)


BLAMES = ("launch-bound", "allocator-bound", "host-bound", "input-bound")
UPDATES = make(defects.plan_updates_inside, 1)
GROWING = make(habits.plan_kept_losses, 120, annotate=True, kept=True)
STEADY = make(habits.plan_kept_losses, 120, annotate=True, kept=False)
TENSORFLOW = partial(dress, flavour="tensorflow")


def forget_device(trace: Trace) -> Trace:
    """Return the trace as a machine without a GPU would have written it."""
    return replace(trace, devices=trace.devices.clear())


def mark_dressed(trace: Trace) -> Trace:
    """Return the trace as TensorFlow's profiler writes one step: its own names, and the device's line `Steps`."""
    return mark_step(dress(trace, "tensorflow"))


TWINS = {
    "one step with updates in its backward pass, marked": Twin(
        UPDATES, (HEALTHY,), loops=NONE, change=mark_dressed, single=True
    ),
    "one step with updates in its backward pass": Twin(UPDATES, (HEALTHY,), loops=NONE, change=TENSORFLOW, single=True),
    "8 steps with updates in their backward pass": Twin(
        make(defects.plan_updates_inside, 8), (HEALTHY,), loops=ONE, change=TENSORFLOW
    ),
    "losses keep their graphs, marked": Twin(GROWING, ("graph-growth",), loops=ONE, counted=True),
    "losses keep their graphs, only the optimizer marked": Twin(
        make(habits.plan_kept_losses, 40, kept=True), ("graph-growth",), loops=ONE, counted=True
    ),
    "losses keep their graphs, told how often": Twin(
        GROWING, ("graph-growth",), ("capture-incomplete",), ONE, counted=True, told=True
    ),
    "no loss keeps its graph, marked": Twin(STEADY, (HEALTHY,), loops=ONE, counted=True),
    "no loss keeps its graph, told how often": Twin(STEADY, (HEALTHY,), loops=ONE, counted=True, told=True),
    "40 forward passes": Twin(make(habits.plan_forward_passes, 40), (HEALTHY,), loops=ONE, counted=True),
    "one forward pass": Twin(make(habits.plan_forward_passes, 1), (HEALTHY,), loops=NONE, single=True),
    "a CPU that slows down": Twin(
        make(habits.plan_on_host, 30, slower=True), ("drift",), loops=ONE, change=forget_device
    ),
    "a CPU that is taken away at times": Twin(
        make(habits.plan_on_host, 30, slower=False), (HEALTHY,), ("drift",), ONE, forget_device
    ),
    "late batches in 16 of 30": Twin(
        make(defects.plan_late_batches, 30, hidden=False), ("input-bound",), ("graph-growth", "drift")
    ),
    "late batches in 16 of 30, hidden": Twin(make(defects.plan_late_batches, 30, hidden=True), (HEALTHY,)),
    "slow iterations allocate": Twin(make(defects.plan_allocating, 28, share=0.4), ("allocator-bound",)),
    "the first two allocate": Twin(make(defects.plan_allocating, 28, share=0.0), (HEALTHY,), ("allocator-bound",)),
    "loading takes longer every time": Twin(
        make(defects.plan_slower_loader, 30, named=True), ("input-bound",), ("graph-growth",)
    ),
    "unnamed work takes longer every time": Twin(
        make(defects.plan_slower_loader, 30, named=False), ("graph-growth",), ("input-bound",)
    ),
    "collectives fill the host's gaps": Twin(
        make(defects.plan_filled_gap, filled=True), ("communication-bound",), ("host-bound",), change=drop_calls
    ),
    "the host's gaps are empty": Twin(
        make(defects.plan_filled_gap, filled=False), ("host-bound",), ("communication-bound",), change=drop_calls
    ),
    "one launch loads code": Twin(make(defects.plan_loads_code, 8, call="cudaLaunchKernel", at=3), (HEALTHY,), BLAMES),
    "one launch of four marked steps loads code": Twin(
        make(defects.plan_loads_code, 4, annotate=True, call="cudaLaunchKernel", at=2), (HEALTHY,), BLAMES
    ),
    "one marked step's first launch loads code": Twin(
        make(defects.plan_loads_code, 1, call="cudaLaunchKernel", at=1), (HEALTHY,), BLAMES, NONE, single=True
    ),
    "one marked step's first free starts a library": Twin(
        make(defects.plan_loads_code, 1, call="cudaFree", at=1), (HEALTHY,), BLAMES, NONE, single=True
    ),
    "every launch is slow": Twin(make(defects.plan_eager, 8), ("launch-bound",), BLAMES[1:]),
    "the host is silent": Twin(make(defects.plan_silence), ("host-bound",), ("launch-bound", "allocator-bound")),
    "three marked steps, launching": Twin(make(defects.plan_eager, 3, annotate=True), ("launch-bound",), loops=ONE),
    "three marked steps, computing": Twin(make(plan_patient_host, 3, annotate=True), (HEALTHY,), loops=ONE),
    "one marked step, launching": Twin(make(defects.plan_eager, 1), ("launch-bound",), single=True),
    "one marked step, computing": Twin(make(plan_patient_host, 1), (HEALTHY,), loops=NONE, single=True),
    "copies within the device": Twin(make(defects.plan_device_copies, hidden=False), ("device-copies",)),
    "copies within the device, in front of late launches": Twin(
        make(defects.plan_masked_copies), (HEALTHY, "launch-bound")
    ),
    "copies within the device, hidden": Twin(make(defects.plan_device_copies, hidden=True), (HEALTHY,)),
    "kernels wait for copies on another stream": Twin(
        Job(partial(defects.plan_handed_over, stream=defects.EXTRA_STREAM), 16, SEED, HandingMachine),
        ("dependency-bound",),
        ("sync-bound", "host-bound", "device-copies"),
    ),
    "kernels wait for copies on their own stream": Twin(
        Job(partial(defects.plan_handed_over, stream=MAIN_STREAM), 16, SEED, HandingMachine),
        (HEALTHY,),
        ("dependency-bound",),
    ),
    "serial reductions": Twin(make(defects.plan_serial_reductions, 10, count=200), ("communication-bound",)),
    "no reductions": Twin(make(defects.plan_serial_reductions, 10, count=0), (HEALTHY,)),
    "queued work starts late": Twin(
        Job(plan_patient_host, 16, SEED, LateMachine), (HEALTHY, "sync-bound"), ("capture-incomplete", "launch-bound")
    ),
    "queued work starts at once": Twin(make(plan_patient_host), (HEALTHY,), ("capture-incomplete",)),
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
        load = partial(load_ranks, scenario, SEED, RANKS, 10)
        yield Case(SECTION, f"{RANKS} ranks, {name}", label, load)


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
