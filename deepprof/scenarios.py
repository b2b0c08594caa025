"""The scenarios of simulated jobs by name, apart from `deepprof.simulation`, which `--help` must not load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario: what is wrong in it, and the `finding` of the rule that must fire, if any.

    `ranks`: "one" runs alone, "several" makes sense only with others, "any" does both. `most` iterations of all ranks
    fit a machine's memory. A twin `beside` the one before it in the table is described on the same line.
    """

    wrong: str
    finding: str | None = None
    ranks: str = "one"
    most: int = 5_000
    beside: bool = False


SCENARIOS: Mapping[str, Scenario] = MappingProxyType(
    {
        "healthy": Scenario(wrong="nothing: the GPU is busy throughout"),
        "graph-growth": Scenario(
            wrong="every iteration adds operations to the graph, the host needs longer before the next one",
            finding="graph-growth",
        ),
        "copy-bound": Scenario(
            wrong="an oversized copy to the GPU fills the time between two iterations", finding="copy-bound"
        ),
        "input-bound": Scenario(wrong="the main thread makes every batch itself", finding="input-bound"),
        "input-fixed": Scenario(wrong="worker processes do", beside=True),
        "launch-bound": Scenario(
            wrong="kernels are shorter than the host needs to launch them", finding="launch-bound", most=1_500
        ),
        "small-kernels": Scenario(
            wrong="a graph of thousands of kernels of a few microseconds", finding="small-kernels", most=1_000
        ),
        "sync-bound": Scenario(
            wrong="values are read back after every layer and gradient", finding="sync-bound", most=2_500
        ),
        "allocator-bound": Scenario(
            wrong="memory goes back to the driver and is asked for again in every iteration", finding="allocator-bound"
        ),
        "logging": Scenario(wrong="the host writes logs between two iterations", finding="host-bound"),
        "starvation": Scenario(wrong="now and then a batch is late", finding="slow-iterations"),
        "drift": Scenario(wrong="from some iteration on all kernels are slower", finding="drift"),
        "memory-growth": Scenario(wrong="memory that no iteration gives back", finding="memory-growth"),
        "recompilation": Scenario(wrong="every iteration compiles its model", finding="graph-growth"),
        "recapture": Scenario(wrong="captures a graph", finding="graph-growth", beside=True),
        "accumulation": Scenario(wrong="nothing: four micro-batches per iteration", most=1_000),
        "inference": Scenario(wrong="nothing: tokens are decoded"),
        "inference-launch-bound": Scenario(wrong="one launch after the other", finding="launch-bound", beside=True),
        "communication-bound": Scenario(
            wrong="gradients are reduced when nothing hides it", finding="communication-bound", ranks="any"
        ),
        "communication-hidden": Scenario(wrong="behind kernels", ranks="any", beside=True),
        "straggler": Scenario(
            wrong="of several ranks (--ranks) one lets the others wait", finding="straggler", ranks="several"
        ),
        "ranks-healthy": Scenario(wrong="none does", ranks="several", beside=True),
    }
)


def describe_scenarios() -> Iterator[str]:
    """Yield a line for every scenario, with the twins next to it."""
    line = ""
    for name, each in SCENARIOS.items():
        if line and not each.beside:
            yield line
        line = f"{line}; {name}: {each.wrong}" if each.beside else f"{name:23} {each.wrong}"
    yield line
