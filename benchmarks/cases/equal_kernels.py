"""Ranks with kernels of equal launch shapes: one on a slower device, one with more work, and none of both.

The simulator draws a grid for every call; here a kernel has the same one in every call and on every rank, as in a job.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import polars as pl
from msgspec.structs import replace

from benchmarks.cases.case import HEALTHY, Case
from benchmarks.cases.played import TWIN_SEED
from benchmarks.cases.simulated import load_ranks
from deepprof.collectors.trace import Trace
from deepprof.simulation import simulate_ranks

__all__ = ["cases", "give_grids", "load_equal"]

ITERATIONS = 10
MORE = 1.3  # times as many blocks on the rank that has more work
COUNTS = (2, 8)


def cases(section: str) -> Iterator[Case]:
    """Yield the cases of jobs of two and of eight ranks."""
    for ranks in COUNTS:
        for name, scenario, more, label, never in (
            ("one device slower", "straggler", 1.0, "slower-device", ()),
            ("one with more work", "straggler", MORE, "straggler", ("slower-device",)),
            ("equal devices", "ranks-healthy", 1.0, HEALTHY, ("slower-device", "straggler")),
        ):
            load = partial(load_equal, scenario, ranks, more)
            yield Case(section, f"{ranks} ranks, equal kernels, {name}", label, load, never=never)


def load_equal(scenario: str, ranks: int, more: float, scratch: Path) -> list[Trace]:
    """Return the traces of a job; the slow rank, if there is one, launches `more` times as many blocks."""
    slow = simulate_ranks(scenario, ranks=ranks, iterations=1, seed=TWIN_SEED)[0].slow_rank
    traces = load_ranks(scenario, TWIN_SEED, ranks, ITERATIONS, scratch)
    return [give_grids(trace, more if trace.rank == slow else 1.0) for trace in traces]


def give_grids(trace: Trace, more: float = 1.0) -> Trace:
    """Return the trace with a grid for every name of a kernel, `more` times as large."""
    names = trace.names.gather(trace.device_events["name_id"].gather(trace.launch_shapes["event"]))
    grid = (16 * more * names.str.len_chars()).cast(pl.UInt64).alias("grid")
    return replace(trace, launch_shapes=trace.launch_shapes.with_columns(grid))
