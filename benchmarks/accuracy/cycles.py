"""Whether what comes back every this many iterations was seen, and called by its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.accuracy.tables import Better, Table
from benchmarks.accuracy.truth import Cycle, Made
from deepprof.mining import MinedLoop

MIN_CYCLE_TIMES = 3  # times that a cycle must have come back in whole iterations to be requested
KINDS = ("evaluation", "checkpoint", "statistics")


@dataclass(frozen=True)
class Seen:
    """One true cycle: whether one of that distance was found, and whether under its name."""

    kind: str
    found: bool
    named: bool


def see(made: Made, loops: Sequence[MinedLoop]) -> tuple[tuple[Seen, ...], int]:
    """Return which of the true cycles were found, and how many were found that are not true.

    Only jobs of a single loop are asked, by the found loop nearest to it: with more of them, a cycle of the whole job
    is none of every loop.
    """
    if len(made.truths) != 1 or not loops:
        return tuple(Seen(c.kind, found=False, named=False) for c in asked(made)), 0
    nearest = min(loops, key=lambda loop: abs(loop.period - made.truths[0].period))
    found = [(cycle.every, cycle.kind) for cycle in nearest.cycles]
    distances = {cycle.every for cycle in made.cycles}
    return tuple(seen(cycle, found) for cycle in asked(made)), sum(every not in distances for every, _ in found)


def asked(made: Made) -> list[Cycle]:
    """Return the cycles that a capture shows often enough to be requested."""
    times = int(made.truths[0].whole.sum()) if len(made.truths) == 1 else 0
    return [c for c in made.cycles if c.kind in KINDS and MIN_CYCLE_TIMES * c.every <= times]


def seen(cycle: Cycle, found: Sequence[tuple[int, str]]) -> Seen:
    """Return whether a cycle is among those found."""
    kinds = {kind for every, kind in found if every == cycle.every}
    return Seen(cycle.kind, bool(kinds), cycle.kind in kinds)


def table(jobs: str, cycles: Sequence[Seen], strays: int) -> Table:
    """Return one row per kind, and how many were found that are none."""
    columns: dict[str, Better] = {"kind": "key", "true": "same", "found": "more", "named": "more", "untrue": "fewer"}
    by_kind = {kind: [c for c in cycles if c.kind == kind] for kind in KINDS}
    rows = [[kind, *counted(some), "-"] for kind, some in by_kind.items()]
    note = (
        "Of jobs with one loop, by kernels alone: what comes back every so many iterations three times or more, how\n"
        "much of it was found at the right distance, and how much of that under its name; `untrue` are those found at\n"
        "a distance at which nothing comes back."
    )
    return Table(f"Cycles, {jobs}", note, columns, [*rows, ["all", *counted(cycles), str(strays)]])


def counted(cycles: Sequence[Seen]) -> list[str]:
    """Return how many there were, were found, and were named."""
    return [str(len(cycles)), str(sum(c.found for c in cycles)), str(sum(c.named for c in cycles))]
