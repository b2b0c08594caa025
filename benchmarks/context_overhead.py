"""What contexts in the job cost an iteration, beside nothing, collected operators, and torch.profiler with stacks.

`python -m benchmarks.context_overhead` prints two tables: the time of an iteration, each kind in processes that take
turns, and the memory of a job after few and many iterations. Sampling is off: the budget is 100 %.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.collectors.live.building import build
from tests.collectors.live.hooked import PROGRAMS, hooked_environment, plain_environment
from tests.collectors.live.listener import Listener

__all__ = ["run"]

COLLECTED = ("--contexts operators", "--contexts python", "--contexts native")
KINDS = ("none", "operators collected", *COLLECTED, "torch.profiler, stacks")
ITERATIONS = {"resnet": 20, "lstm": 150, "transformer": 60}
ROUNDS, FEW, MANY = 3, 100, 4000


@dataclass(frozen=True, slots=True)
class IterationCost:
    """Milliseconds of an iteration, and the resident megabytes at the end."""

    decile_ms: float
    median_ms: float
    resident_mb: float


def measure(listener: Listener, name: str, iterations: int, kind: str) -> IterationCost:
    """Run a program once and return what it cost."""
    peer = "profiler" if kind.startswith("torch") else "none"
    environment = plain_environment()
    if kind not in {"none", "torch.profiler, stacks"}:
        environment |= hooked_environment(build("plain").library, listener.path)
        environment |= {"DEEPPROF_CONTEXTS": kind.rsplit(maxsplit=1)[-1], "DEEPPROF_CONTEXTS_BUDGET": "100"}
    command = [sys.executable, str(PROGRAMS / "contexts_cost.py"), name, str(iterations), peer]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return IterationCost(*(float(word) for word in done.stdout.split()))


def show_times(console: Console, listener: Listener, rounds: int, iterations: dict[str, int]) -> None:
    """Print the table of times: the best first decile and the best median of all rounds."""
    table = Table("program", "kind", "first decile, ms", "median, ms", "to none", title="an iteration with contexts")
    for name, count in iterations.items():
        found: dict[str, list[IterationCost]] = {kind: [] for kind in KINDS}
        for _ in range(rounds):
            for kind in KINDS:
                found[kind].append(measure(listener, name, count, kind))
        least = min(cost.decile_ms for cost in found["none"])
        for kind, costs in found.items():
            decile, median = min(cost.decile_ms for cost in costs), min(cost.median_ms for cost in costs)
            table.add_row(name, kind, f"{decile:.2f}", f"{median:.2f}", f"{decile / least - 1:+.0%}")
    console.print(table)


def show_memory(console: Console, listener: Listener, counts: tuple[int, ...]) -> None:
    """Print the table of memory."""
    table = Table("kind", *(f"MB at {count:,}" for count in counts), title="memory of the LSTM's job")
    for kind in ("none", "--contexts python"):
        costs = [measure(listener, "lstm", count, kind) for count in counts]
        table.add_row(kind, *(f"{cost.resident_mb:.1f}" for cost in costs))
    console.print(table)


def run(console: Console, quick: bool) -> None:
    """Print both tables; quickly, with few iterations."""
    with tempfile.TemporaryDirectory() as folder:
        listener = Listener(Path(folder) / "s").start()
        show_times(console, listener, 1 if quick else ROUNDS, {"lstm": 3} if quick else ITERATIONS)
        show_memory(console, listener, (2, 4) if quick else (FEW, MANY))
        listener.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small inputs: does it run?")
    run(Console(width=110), parser.parse_args().quick)


if __name__ == "__main__":
    main()
