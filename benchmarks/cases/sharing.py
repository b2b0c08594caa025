"""Two jobs on one device: who loses to whom, and twins of theirs in which no one does.

The traces carry what nsys records of a device, so that no one has to state that it is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from msgspec.structs import replace

import deepprof
from benchmarks.cases.case import HEALTHY, Case
from benchmarks.cases.simulated import strip
from deepprof.collectors.trace import Process, Trace
from deepprof.simulation import write
from deepprof.simulation.kernels import BLOCK_FORWARD
from deepprof.simulation.plan import RankPlan, SimulationRequest
from deepprof.simulation.scenarios import plan_scenario
from deepprof.simulation.sharing import JOBS, Manner, SharingMember, on_one_stream, play_together
from deepprof.simulation.steps import Pause, Step

__all__ = ["PAIRS", "SECTION", "Pair", "cases", "load_pair"]

SECTION = "Two jobs on one device"
SEED, ITERATIONS = 501, 12
MS = 1_000_000
TINY_PAUSE_NS = 12 * MS  # between the 0.1 ms that the tiny job computes
DEVICE = "GPU-00000000"


@dataclass(frozen=True)
class Pair:
    """Two programs, `JOBS`, scenarios or `tiny`; the second starts `late_ns` after the first and does `second` rounds.

    `lasts`: each goes on until the other is done. `together`: they are on one device, and the trace reports it;
    `bare`: there are no launch records. `unseen`: the second was not recorded.
    """

    programs: tuple[str, str]
    manner: Manner = "in turn"
    late_ns: int = 0
    second: int = ITERATIONS
    lasts: bool = True
    together: bool = True
    bare: bool = False
    unseen: bool = False


PAIRS: dict[str, tuple[Pair, tuple[str, ...]]] = {
    "two that compute": (Pair(("compute", "compute")), ("shared-device",)),
    "two that compute, one of them late": (Pair(("compute", "compute"), late_ns=150 * MS), ("shared-device",)),
    "two that copy": (Pair(("io", "io")), ("shared-device",)),
    "one computes and one copies": (Pair(("compute", "io")), ("shared-device", "copy-bound")),
    "two that compute at once": (Pair(("compute", "compute"), "at once", 150 * MS), ("shared-device",)),
    "two that compute, one of them recorded": (Pair(("compute", "compute"), unseen=True), ("unseen-work",)),
    "no launch records": (Pair(("compute", "compute"), late_ns=150 * MS, bare=True), ("shared-device",)),
    # They wait for each other in truth: for something that the traces do not show, and not for the other rank.
    "devices that the traces tell apart": (Pair(("compute", "compute"), together=False), ("unseen-work",)),
    "one after the other": (Pair(("compute", "compute"), late_ns=400 * MS, lasts=False), (HEALTHY,)),
    "the other hardly works": (Pair(("compute", "tiny"), second=40), (HEALTHY,)),
    "the other works once": (Pair(("compute", "compute"), second=1, lasts=False), (HEALTHY,)),
    "slow input beside a tiny job": (Pair(("input-bound", "tiny"), second=40), ("input-bound",)),
    "waits beside a tiny job": (Pair(("sync-bound", "tiny"), second=40), ("sync-bound",)),
}


NEVER = {HEALTHY: ("shared-device", "unseen-work"), "unseen-work": ("shared-device",)}


def cases() -> Iterator[Case]:
    """Yield a case per pair."""
    for name, (pair, (label, *also)) in PAIRS.items():
        never = NEVER.get(label, ())
        yield Case(SECTION, name, label, partial(load_pair, pair), tuple(also), never)


def load_pair(pair: Pair, scratch: Path) -> list[Trace]:
    """Let two programs run, write their files as profilers would, and read them."""
    first, second = (make_plan(program) for program in pair.programs)
    members = [
        SharingMember(plan=first, iterations=ITERATIONS, lasts=pair.lasts),
        SharingMember(plan=second, iterations=pair.second, start_ns=pair.late_ns, lasts=pair.lasts),
    ]
    for rank, run in enumerate(play_together(members, f"{SEED} {pair.programs}", pair.manner)):
        write(run.simulation, scratch / f"rank{rank}.json")
    traces = deepprof.read_job(scratch)[: 1 if pair.unseen else 2]
    kept = [strip(trace) for trace in traces] if pair.bare else traces
    return [
        replace(
            trace, processes=(Process(1000 + rank, devices=((0, DEVICE if pair.together else f"{DEVICE}-{rank}"),)),)
        )
        for rank, trace in enumerate(kept)
    ]


def make_plan(program: str) -> RankPlan:
    """Return a program of the study, of a scenario, or one that hardly needs the device."""
    if program == "tiny":
        return RankPlan(build=build_tiny, warmup=0)
    if program in JOBS:
        return on_one_stream(JOBS[program].plan(SEED))
    random = Random(f"{program} {SEED}")
    return on_one_stream(plan_scenario(program, SimulationRequest(random=random, iterations=ITERATIONS, strength=1.0)))


def build_tiny(index: int) -> Iterator[Step]:
    """Yield a few kernels, which nothing repeats, and a long pause: someone tries things out."""
    random = Random(f"tiny {index}")
    yield from random.choices(BLOCK_FORWARD, k=random.randint(1, 4))
    yield Pause(TINY_PAUSE_NS)
