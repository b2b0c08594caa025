"""Hard cases: disturbed traces whose verdict stays, jobs with two mistakes, and healthy jobs that look ill.

The simulated ones have their own seeds; the verdict of a mixture is the mistake whose removal saves most, which a
test checks by simulating the job without it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path

from benchmarks.cases import additions, disturbances, lookalikes, real
from benchmarks.cases.case import HEALTHY, Case
from benchmarks.cases.mixtures import Mistakes
from benchmarks.cases.played import Job, NoisyMachine, SharedMachine, play
from benchmarks.cases.simulated import load_simulated
from deepprof.collectors.trace import Trace
from deepprof.simulation import SCENARIOS

__all__ = ["DISTURBANCES", "LOOKALIKES", "MIXTURES", "cases", "disturbed", "mixture_job"]

SIMULATED, REAL = "Hard cases", "Hard cases, real traces"
SEED, ITERATIONS = 201, 14
MS = 1_000_000
Disturb = Callable[[Trace], Trace]
DISTURBANCES: dict[str, Disturb] = {
    "device clock 20 µs behind": partial(disturbances.move_device_clock, offset_ns=-20_000),
    "device clock 1 ms behind": partial(disturbances.move_device_clock, offset_ns=-MS),
    "device clock 5 ms behind": partial(disturbances.move_device_clock, offset_ns=-5 * MS),
    "device clock 50 µs ahead": partial(disturbances.move_device_clock, offset_ns=50_000),
    "device clock 2 ms ahead": partial(disturbances.move_device_clock, offset_ns=2 * MS),
    "whole microseconds": disturbances.round_times,
    "a fifth of the launches lost": partial(disturbances.drop_launches, share=0.2),
    "no operators": disturbances.drop_operators,
    "no ranges": disturbances.drop_ranges,
    "nsys names": partial(disturbances.rename, pattern=r"^(cuda\w+)$", value="${1}_v7000"),
    "hip names": partial(disturbances.rename, pattern=r"^cuda", value="hip"),
    "watchdog": additions.add_watchdog,
    "another process": additions.add_process,
    "helper threads": additions.add_helpers,
    "Python frames": additions.add_frames,
    "buffer flushes on a thread": additions.add_flushes,
    "side stream": additions.add_side_stream,
    "overlapping kernels": disturbances.overlap_kernels,
    "bent time": partial(disturbances.bend_time, share=0.3),
    "stalls": partial(disturbances.stall_host, count=3, longest_ns=8 * MS),
    "first third lost": partial(disturbances.cut_part, first=0.36, last=1),
    "last third lost": partial(disturbances.cut_part, first=0, last=0.64),
}
BASES = ("healthy", "input-bound", "sync-bound", "launch-bound", "allocator-bound", "copy-bound", "logging")
REAL_BASES = ("tb-resnet50-nw0", "tb-resnet50-nw4", "param-linear", "tl-resnet-ckpt", "hta-nccl-parser")
# Pairs that were wrong once, next to two simulated jobs and a real one per disturbance.
ONCE_WRONG = (
    ("sync-bound", "device clock 2 ms ahead"),
    ("launch-bound", "device clock 50 µs ahead"),
    ("allocator-bound", "device clock 2 ms ahead"),
    ("logging", "device clock 5 ms behind"),
    ("param-linear", "device clock 2 ms ahead"),
    ("hta-nccl-parser", "device clock 2 ms ahead"),
    ("tb-resnet50-nw0", "side stream"),
)
# What cannot be seen any more once it is disturbed: without ranges nothing says that data is loaded, and two iterations
# that are left state nothing.
INSTEAD = {
    ("input-bound", "no ranges"): ("host-bound",),
    ("tb-resnet50-nw0", "no ranges"): ("input-bound", "host-bound"),
    ("tl-resnet-ckpt", "first third lost"): ("communication-bound", HEALTHY),
    ("hta-nccl-parser", "first third lost"): (HEALTHY,),
    ("hta-nccl-parser", "last third lost"): (HEALTHY,),
}
SHORT_CAPTURES = (("input-bound", 3), ("sync-bound", 4), ("launch-bound", 3), ("recompilation", 3), ("recapture", 4))
MIXTURES: tuple[tuple[Mistakes, tuple[str, ...]], ...] = (
    (Mistakes(data=0.3, logs=0.1), ("input-bound",)),
    (Mistakes(data=0.3, reads=0.1), ("input-bound",)),
    (Mistakes(data=0.12, reads=0.35), ("sync-bound",)),
    (Mistakes(data=0.1, copies=0.3), ("copy-bound",)),
    (Mistakes(data=0.35, copies=0.12), ("input-bound",)),
    (Mistakes(data=0.1, wires=0.35), ("communication-bound",)),
    (Mistakes(data=0.3, wires=0.3), ("communication-bound", "input-bound")),
    (Mistakes(data=0.3, memory=0.05), ("input-bound",)),
    (Mistakes(memory=0.3, logs=0.1), ("allocator-bound",)),
    (Mistakes(memory=0.1, reads=0.3), ("sync-bound",)),
    (Mistakes(logs=0.3, reads=0.12), ("host-bound",)),
    (Mistakes(copies=0.25, logs=0.25), ("host-bound", "copy-bound")),
    (Mistakes(copies=0.12, reads=0.3), ("sync-bound",)),
    (Mistakes(wires=0.3, reads=0.12), ("communication-bound",)),
    (Mistakes(wires=0.12, logs=0.35), ("host-bound",)),
    (Mistakes(memory=0.1, copies=0.3), ("copy-bound",)),
    (Mistakes(data=0.25, tiny=0.15), ("input-bound",)),
    (Mistakes(copies=0.25, growth=0.5), ("graph-growth",)),
    (Mistakes(copies=0.5), ("copy-bound",)),
)
MIXTURE_SEED = 401
# A job, its labels, and what may not be stated of it.
LOOKALIKES: dict[str, tuple[Job, tuple[str, ...], tuple[str, ...]]] = {
    "loader hidden behind computation": (Job(lookalikes.plan_hidden_loader), (HEALTHY,), ("input-bound",)),
    "host waits at every end": (Job(lookalikes.plan_patient_host), (HEALTHY,), ("sync-bound",)),
    "copies hidden behind computation": (Job(lookalikes.plan_hidden_copies), (HEALTHY,), ("copy-bound",)),
    "slow start": (Job(lookalikes.plan_slow_start, 20), (HEALTHY,), ("drift", "slow-iterations")),
    "long first iteration": (Job(lookalikes.plan_long_first), (HEALTHY,), ()),
    "checkpoints": (Job(lookalikes.plan_checkpoints, 34), (HEALTHY,), ()),
    "evaluation": (Job(lookalikes.plan_evaluation, 22), (HEALTHY,), ()),
    "system noise": (Job(lookalikes.plan_noise, 20), (HEALTHY,), ()),
    "profiler's flushes": (Job(lookalikes.plan_flushes, 18), (HEALTHY,), ()),
    "tiny kernels in the optimizer": (Job(lookalikes.plan_tiny_optimizer), (HEALTHY,), ("small-kernels",)),
    "shared device": (Job(lookalikes.plan_patient_host, machine=SharedMachine), (HEALTHY,), ()),
    "noisy kernels": (Job(lookalikes.plan_patient_host, machine=NoisyMachine), (HEALTHY,), ()),
    "input and accumulation": (Job(lookalikes.plan_accumulated_input, 6), ("input-bound",), ()),
    "requests": (Job(lookalikes.plan_requests, 24), ("host-bound", "input-bound"), ()),
}


def cases() -> Iterator[Case]:
    """Yield all hard cases."""
    for name, (job, (label, *also), never) in LOOKALIKES.items():
        yield Case(SIMULATED, name, label, partial(load_job, job), tuple(also), never)
    for number, (mistakes, (label, *also)) in enumerate(MIXTURES):
        yield Case(SIMULATED, describe(mistakes), label, partial(load_job, mixture_job(number)), tuple(also))
    for scenario, iterations in SHORT_CAPTURES:
        load = partial(load_simulated, scenario, SEED, 1.0, iterations)
        yield Case(SIMULATED, f"{scenario}, {iterations} iterations", SCENARIOS[scenario].finding or HEALTHY, load)
    drawn = [
        (bases[(number + shift) % len(bases)], name)
        for number, name in enumerate(DISTURBANCES)
        for bases, shift in ((BASES, 0), (BASES, 3), (REAL_BASES, 0))
    ]
    for pair in dict.fromkeys((*drawn, *ONCE_WRONG)):
        yield disturbed(*pair)


def disturbed(base: str, name: str) -> Case:
    """Return the case of a scenario or a real trace that is disturbed."""
    made = (SCENARIOS[base].finding or HEALTHY,) if base in SCENARIOS else real.LABELS[base]
    label, *also = INSTEAD.get((base, name), made)
    load = partial(load_disturbed, base, name)
    return Case(SIMULATED if base in SCENARIOS else REAL, f"{base}, {name}", label, load, tuple(also))


def mixture_job(number: int) -> Job:
    """Return the job of a mixture; each has its own model."""
    return Job(MIXTURES[number][0].plan, seed=MIXTURE_SEED + number)


def describe(mistakes: Mistakes) -> str:
    """Return a mixture's name: its mistakes with their size."""
    return " and ".join(f"{name} {share:.0%}" for name, share in asdict(mistakes).items() if share)


def load_job(job: Job, _: Path) -> list[Trace]:
    """Play a job."""
    return [play(job)]


def load_disturbed(base: str, disturbance: str, _: Path) -> list[Trace]:
    """Return a scenario's or a real trace, disturbed."""
    return [DISTURBANCES[disturbance](trace) for trace in load_base(base)]


@cache
def load_base(base: str) -> tuple[Trace, ...]:
    """Return the traces that are disturbed in several ways."""
    with tempfile.TemporaryDirectory(prefix="deepprof-case-") as scratch:
        if base in SCENARIOS:
            return tuple(load_simulated(base, SEED, 1.0, ITERATIONS, Path(scratch)))
        return tuple(real.load(real.TRACES / base, Path(scratch)))
