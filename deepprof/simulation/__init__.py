"""Simulated training jobs: PyTorch profiler files with a recognized truth, the same bytes for the same seed.

Every capture starts in the tail of an iteration that it did not see and ends in the middle of another one. Training
jobs in eager mode hold a warm-up iteration in which a tuner tries kernels, and a few statistics kernels every tenth
iteration. Except in the three oldest scenarios, the seed also draws the model and the size of what is planted.

`scenarios` names the jobs, `training`, `inference` and the `*_problems` modules define what an iteration does,
`machine` plays it, `capture` makes ranks meet in their collectives.
"""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from deepprof.collectors.errors import UsageError
from deepprof.scenarios import SCENARIOS, Scenario
from deepprof.simulation.capture import record
from deepprof.simulation.collectives import WORLD
from deepprof.simulation.document import BASE_NS, START_NS, FileOrigin, make_document
from deepprof.simulation.machine import Machine
from deepprof.simulation.plan import RankPlan, SimulationRequest
from deepprof.simulation.scenarios import plan_scenario
from deepprof.simulation.steps import COMMUNICATION_STREAM, MAIN_STREAM

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "COMMUNICATION_STREAM",
    "MAIN_STREAM",
    "SCENARIOS",
    "Simulation",
    "name_rank",
    "simulate",
    "simulate_ranks",
    "write",
    "write_ranks",
]

RANKS = range(2, 65)
STRENGTHS = 0.25, 4.0
CLOCK_SKEW_NS = 5_000_000  # between the clocks of two hosts
START_SKEW_NS = 300_000  # between the starts of two ranks' captures


class Simulation(Struct, frozen=True, kw_only=True):
    """A capture and the truth about it.

    `iterations` counts the complete ones, `warmup` how many of the first of them are warm-up. Per complete iteration:
    `kernels` on the main stream; `first_kernels`, the index of its first kernel among the main stream's kernels in
    time order (copies and memsets not counted); `starts_ns` on the trace's absolute clock; `intervals_ns` from the end
    of its last kernel to the first kernel of the next iteration. `finding` is the rule that must fire, if any.

    `slow_iterations` are the indices of those that use several times as long from start to start, `change_at` the
    first iteration with slower kernels, `slow_rank` the rank for which others wait; empty or None where nothing of
    the kind was planted. `clock_offset_ns` is how far this rank's clock is ahead of the first rank's.
    """

    scenario: str
    seed: int
    document: dict[str, Any]
    iterations: int
    warmup: int
    stream: int
    kernels: tuple[int, ...]
    first_kernels: tuple[int, ...]
    starts_ns: tuple[int, ...]
    intervals_ns: tuple[int, ...]
    finding: str | None
    strength: float = 1.0
    rank: int = 0
    ranks: int = 1
    slow_iterations: tuple[int, ...] = ()
    change_at: int | None = None
    slow_rank: int | None = None
    clock_offset_ns: int = 0


def simulate(
    scenario: str, *, iterations: int = 40, seed: int = 0, annotate: bool = False, strength: float = 1.0
) -> Simulation:
    """Simulate a job that PyTorch's profiler watches for `iterations` complete iterations, on one rank.

    `annotate` adds the `ProfilerStep#` ranges that `profiler.step()` writes. `strength` multiplies what is planted:
    0.5 is mild, 2 is strong; healthy jobs do not change with it. Raises `UsageError` for a scenario that does not
    exist or needs several ranks, fewer than one iteration, or a strength outside 0.25 to 4.
    """
    found = _look_up(scenario, iterations, strength)
    if found.ranks == "several":
        raise UsageError(f"scenario {scenario!r} takes several ranks; ask for 2 or more (simulate_ranks, --ranks)")
    request = SimulationRequest(random=_seed_plan(scenario, seed), iterations=iterations, strength=strength)
    plan = plan_scenario(scenario, request)
    random = Random(f"{scenario} {seed}")  # noqa: S311  it must repeat, it guards nothing
    ranks = 1 if found.ranks == "one" else WORLD
    machine = Machine(random, START_NS, pace=plan.pace, slowness=plan.slowness, ranks=ranks)
    (firsts,) = record([machine], [plan], iterations, annotate=annotate)
    return Simulation(**_tell(machine, plan, firsts, FileOrigin(ranks=ranks)), **_label(scenario, seed, strength))


def simulate_ranks(  # noqa: PLR0913  options by name
    scenario: str,
    *,
    ranks: int = 4,
    iterations: int = 40,
    seed: int = 0,
    annotate: bool = False,
    strength: float = 1.0,
) -> tuple[Simulation, ...]:
    """Simulate a job of several ranks; return one capture per rank, in order, each on its own host's clock.

    Raises `UsageError` for what `simulate` does, for a scenario without collectives, or not 2 to 64 ranks.
    """
    found = _look_up(scenario, iterations, strength)
    if found.ranks == "one":
        raise UsageError(f"scenario {scenario!r} runs on one rank; leave the ranks out (simulate, no --ranks)")
    if ranks not in RANKS:
        raise UsageError(f"{ranks} ranks cannot be simulated; ask for {RANKS[0]} to {RANKS[-1]}")
    plans = [
        plan_scenario(
            scenario,
            SimulationRequest(
                random=_seed_plan(scenario, seed), iterations=iterations, strength=strength, rank=n, ranks=ranks
            ),
        )
        for n in range(ranks)
    ]
    machines = [_start_rank(scenario, seed, n, plan, ranks) for n, plan in enumerate(plans)]
    firsts = record(machines, plans, iterations, annotate=annotate)
    skew = Random(f"{scenario} {seed} clocks")  # noqa: S311
    offsets = [0, *(skew.randint(-CLOCK_SKEW_NS, CLOCK_SKEW_NS) for _ in range(ranks - 1))]
    return tuple(
        Simulation(**_tell(*job, FileOrigin(n, ranks, BASE_NS + offsets[n])), **_label(scenario, seed, strength))
        for n, job in enumerate(zip(machines, plans, firsts, strict=True))
    )


def _look_up(scenario: str, iterations: int, strength: float) -> Scenario:
    """Return a scenario; raises `UsageError` for an unknown one, no iteration, or a strength out of range."""
    if scenario not in SCENARIOS:
        raise UsageError(f"no scenario {scenario!r}; choose from {', '.join(SCENARIOS)}")
    if iterations < 1:
        raise UsageError(f"{iterations} iterations cannot be simulated; ask for at least 1")
    if not STRENGTHS[0] <= strength <= STRENGTHS[1]:
        raise UsageError(f"strength {strength} cannot be simulated; ask for {STRENGTHS[0]} to {STRENGTHS[1]:g}")
    return SCENARIOS[scenario]


def _seed_plan(scenario: str, seed: int) -> Random:
    """Return the random source of the plans; every rank gets its own copy, and so the same numbers."""
    return Random(f"{scenario} {seed} plan")  # noqa: S311


def _start_rank(scenario: str, seed: int, rank: int, plan: RankPlan, ranks: int) -> Machine:
    """Return one rank's machine; no two captures begin at quite the same time."""
    random = Random(f"{scenario} {seed} rank {rank}")  # noqa: S311
    start_ns = START_NS + random.randint(0, START_SKEW_NS)
    return Machine(random, start_ns, pace=plan.pace, slowness=plan.slowness, ranks=ranks)


def _label(scenario: str, seed: int, strength: float) -> dict[str, Any]:
    finding = SCENARIOS[scenario].finding
    return {"scenario": scenario, "seed": seed, "strength": strength, "finding": finding}


def _tell(machine: Machine, plan: RankPlan, firsts: Sequence[int], place: FileOrigin) -> dict[str, Any]:
    starts = [machine.kernels[i][0] for i in firsts]
    return {
        "document": make_document(machine, place),
        "iterations": len(firsts) - 1,
        "warmup": plan.warmup,
        "stream": MAIN_STREAM,
        "kernels": tuple(after - first for first, after in pairwise(firsts)),
        "first_kernels": tuple(firsts[:-1]),
        "starts_ns": tuple(place.base_ns + start for start in starts[:-1]),
        "intervals_ns": tuple(machine.kernels[i][0] - machine.kernels[i - 1][1] for i in firsts[1:]),
        "rank": place.rank,
        "ranks": place.ranks,
        "slow_iterations": plan.slow_iterations,
        "change_at": plan.change_at,
        "slow_rank": plan.slow_rank,
        "clock_offset_ns": place.base_ns - BASE_NS,
    }


def write(simulation: Simulation, path: str | Path) -> None:
    """Write the capture to `path`, compressed unless its name ends in `.json`. Raises `OSError`."""
    import msgspec

    from deepprof.files import write_file

    content = msgspec.json.encode(simulation.document)
    if Path(path).suffix != ".json":
        content = gzip.compress(content, compresslevel=6, mtime=0)  # without a time, the same bytes every day
    write_file(path, content)


def name_rank(rank: int) -> str:
    """Return the name of a rank's file."""
    return f"rank{rank}.json.gz"


def write_ranks(simulations: Sequence[Simulation], directory: str | Path) -> list[Path]:
    """Write one compressed file per rank into `directory`, which is made where it is missing; return their paths.

    Raises `OSError`.
    """
    folder = Path(directory)
    folder.mkdir(exist_ok=True)
    paths = [folder / name_rank(each.rank) for each in simulations]
    for each, path in zip(simulations, paths, strict=True):
        write(each, path)
    return paths
