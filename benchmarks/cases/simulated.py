"""Simulated jobs: every scenario at several strengths, short captures, and captures without the host's side.

The seeds were fixed before the rules were tuned; tuning used others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

import deepprof
from benchmarks.cases.case import HEALTHY, Case
from deepprof.collectors.trace import ANNOTATIONS, HOST_EVENTS, Accounting, Trace, empty_table
from deepprof.simulation import SCENARIOS, Simulation, simulate, simulate_ranks, write

__all__ = ["cases", "load_ranks", "load_simulated", "strip"]

FULL = ((101, 0.5), (102, 1.0), (103, 2.0), (104, 1.0))  # seed, strength
ITERATIONS, SHORT = 24, 6
SHORT_SEED, BARE_SEED, RANKS = 105, 106, 4
UNSEEN = ("graph-growth", "memory-growth", "starvation", "drift")  # by six iterations
# What kernels alone can show of every scenario; the others have no label there. The rest of the host's mistakes look
# like a host that is late between iterations, of which nothing but that can be stated.
BARE = {
    "healthy": (HEALTHY,),
    "copy-bound": ("copy-bound",),
    "communication-bound": ("communication-bound",),
    "input-fixed": (HEALTHY,),
    "accumulation": (HEALTHY,),
    "inference": (HEALTHY,),
    "input-bound": ("host-bound",),
    "logging": ("host-bound",),
    "graph-growth": ("graph-growth",),
    "drift": ("drift",),
    "sync-bound": (HEALTHY,),
    "launch-bound": (HEALTHY,),
}


# What is as true of a scenario: its small kernels are those of an optimizer in single operators.
ALSO = {"small-kernels": ("unfused-optimizer",)}


def cases() -> Iterator[Case]:
    """Yield all simulated cases."""
    for scenario, made in SCENARIOS.items():
        label = made.finding or HEALTHY
        for seed, strength in FULL:
            load = partial(load_simulated, scenario, seed, strength, ITERATIONS)
            yield Case(
                "Simulated jobs", f"{scenario}, seed {seed}, strength {strength}", label, load, ALSO.get(scenario, ())
            )
        if scenario in UNSEEN:
            continue
        short = partial(load_simulated, scenario, SHORT_SEED, 1.0, SHORT)
        yield Case("Short captures", f"{scenario}, {SHORT} iterations", label, short, ALSO.get(scenario, ()))
    for scenario, (label, *also) in BARE.items():
        load = partial(load_bare, scenario, BARE_SEED, 1.0, ITERATIONS)
        yield Case("Kernels alone", scenario, label, load, tuple(also))


def load_simulated(scenario: str, seed: int, strength: float, iterations: int, scratch: Path) -> list[Trace]:
    """Simulate the scenario, write its files as a profiler would, and read them."""
    if SCENARIOS[scenario].ranks == "several":
        made = simulate_ranks(scenario, ranks=RANKS, iterations=iterations, seed=seed, strength=strength)
    else:
        made = (simulate(scenario, iterations=iterations, seed=seed, strength=strength),)
    return read_written(made, scratch)


def load_ranks(scenario: str, seed: int, ranks: int, iterations: int, scratch: Path) -> list[Trace]:
    """Do the same for this many ranks of a scenario."""
    return read_written(simulate_ranks(scenario, ranks=ranks, iterations=iterations, seed=seed), scratch)


def read_written(made: Sequence[Simulation], scratch: Path) -> list[Trace]:
    """Write the files of the ranks, and read them."""
    traces = []
    for number, each in enumerate(made):
        path = scratch / f"rank{number}.json"
        write(each, path)
        traces.append(deepprof.read(path))
        path.unlink()
    return traces


def load_bare(scenario: str, seed: int, strength: float, iterations: int, scratch: Path) -> list[Trace]:
    """Return the same without runtime calls, operators and ranges."""
    return [strip(trace) for trace in load_simulated(scenario, seed, strength, iterations, scratch)]


def strip(trace: Trace) -> Trace:
    """Return the trace with its device events alone."""
    left = trace.device_events.height + trace.memory_events.height
    return replace(
        trace,
        host_events=empty_table(HOST_EVENTS),
        annotations=empty_table(ANNOTATIONS),
        operands=trace.operands.clear(),
        stacks=trace.stacks.clear(),
        accounting=Accounting(left, left),
    )
