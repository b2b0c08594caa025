"""Jobs of many ranks, examined by one process and by workers: what Dask costs, and from how many ranks on it pays.

Run by itself: `python -m benchmarks.cluster`. Ranks are copies of a few simulated ones under other numbers, which costs
a reader the same. Each way is a whole command, from its start to its report, so that starting workers counts; reports
must be the same.
"""

from __future__ import annotations

import argparse
import gzip
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console
from rich.table import Table

from deepprof.libraries import count_cpus
from deepprof.simulation import name_rank, simulate_ranks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deepprof.simulation import Simulation

RANKS = (1, 8, 64, 256)
SIMULATED = 8
CLUSTER = ("--cluster", "local")


@dataclass(frozen=True, slots=True)
class Taken:
    """What one command took, processes that it started included, and what it printed."""

    wall_s: float
    cpu_s: float
    report: bytes


def run(console: Console, quick: bool = False) -> None:
    simulated = simulate_ranks("straggler", ranks=SIMULATED, iterations=6 if quick else 20)
    events, most = len(simulated[0].document["traceEvents"]), count_cpus()
    title = f"A job of many ranks, {events:,} events each, on {most} processors"
    table = Table(
        "ranks", "1 process: s", "CPU s", f"--cluster local --jobs {most}: s", "CPU s", "times as fast", title=title
    )
    for ranks in RANKS[:2] if quick else RANKS:
        with tempfile.TemporaryDirectory() as folder:
            write_job(Path(folder), simulated, ranks)
            alone, spread = (take(folder, *way, "--jobs", str(jobs)) for way, jobs in (((), 1), (CLUSTER, most)))
        if alone.report != spread.report:
            raise RuntimeError(f"the reports on {ranks} ranks differ")
        figures = (alone.wall_s, alone.cpu_s, spread.wall_s, spread.cpu_s)
        table.add_row(str(ranks), *(f"{figure:.1f}" for figure in figures), f"{alone.wall_s / spread.wall_s:.2f}")
    console.print(table)


def write_job(folder: Path, simulated: Sequence[Simulation], ranks: int) -> None:
    """Write a job of this many ranks."""
    for rank in range(ranks):
        document = simulated[rank % len(simulated)].document
        numbered = document | {"distributedInfo": document["distributedInfo"] | {"rank": rank, "world_size": ranks}}
        (folder / name_rank(rank)).write_bytes(gzip.compress(msgspec.json.encode(numbered), compresslevel=1))


def take(*arguments: str) -> Taken:
    """Run one diagnosis and return what it needed."""
    start, before = time.perf_counter(), os.times()
    command = [sys.executable, "-m", "deepprof", "diagnose", "--format", "json", *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    wall_s, after = time.perf_counter() - start, os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return Taken(wall_s, cpu_s, done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small inputs: does it run?")
    run(Console(width=120), parser.parse_args().quick)


if __name__ == "__main__":
    main()
