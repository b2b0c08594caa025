"""What contexts in the job cost an iteration, next to nothing, collected operators, and the library's own profiler.

`python -m benchmarks.context_overhead` prints two tables: the time of an iteration, each kind in processes that take
turns, and the memory of a job after few and many iterations. Contexts are collected alone, as on a GPU; on a CPU
operators represent kernels and are sent in any case, which is its own row. The row with 5 % has the default
budget, which leaves iterations out; all others collect every iteration.
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


@dataclass(frozen=True, eq=False, slots=True)
class ContextKind:
    """One way to run a program: its environment, and what else is collected in it."""

    name: str
    settings: dict[str, str] | None = None
    peer: str = "none"
    is_sampled: bool = False


def _collected(mode: str, budget: str = "100") -> dict[str, str]:
    return {"DEEPPROF_CONTEXTS": mode, "DEEPPROF_CONTEXTS_BUDGET": budget, "DEEPPROF_STAND_IN": "0"}


NONE = ContextKind("none")
PYTHON = ContextKind("--contexts python", _collected("python"))
KINDS = (
    NONE,
    ContextKind("operators for kernels", {"DEEPPROF_CONTEXTS": "off"}),
    ContextKind("--contexts operators", _collected("operators")),
    PYTHON,
    ContextKind("--contexts native", _collected("native")),
    ContextKind("--contexts python, 5 %", _collected("python", "5"), is_sampled=True),
    ContextKind("its own profiler, stacks", peer="profiler"),
)
ITERATIONS = {"resnet": 30, "lstm": 300, "transformer": 150, "jax": 60}
SETTLED = 40  # times as many, until iterations are left out as the budget wants it
ROUNDS, FEW, MANY = 3, 100, 4000


@dataclass(frozen=True, slots=True)
class IterationCost:
    """Milliseconds of an iteration, and the resident megabytes at the end."""

    decile_ms: float
    median_ms: float
    mean_ms: float
    resident_mb: float


def measure(listener: Listener, name: str, iterations: int, kind: ContextKind) -> IterationCost:
    """Run a program once and return what it cost."""
    environment = plain_environment()
    if kind.settings is not None:
        environment |= hooked_environment(build("plain").library, listener.path) | kind.settings
    program = "jax_cost.py" if name == "jax" else "contexts_cost.py"
    command = [sys.executable, str(PROGRAMS / program), name, str(iterations), kind.peer]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return IterationCost(*(float(word) for word in done.stdout.split()))


def measure_rounds(listener: Listener, name: str, count: int, rounds: int) -> dict[ContextKind, list[IterationCost]]:
    """Run a program in every way, in turns."""
    found: dict[str, list[IterationCost]] = {kind.name: [] for kind in KINDS}
    for _ in range(rounds):
        for kind in KINDS:
            iterations = count * SETTLED if kind.is_sampled and rounds > 1 else count
            found[kind.name].append(measure(listener, name, iterations, kind))
    return {kind: found[kind.name] for kind in KINDS}


def show_times(console: Console, listener: Listener, rounds: int, iterations: dict[str, int]) -> None:
    """Print the table of times: the best of all rounds."""
    columns = ("first decile, ms", "median, ms", "mean, ms", "to none", "mean to none")
    table = Table("program", "kind", *columns, title="an iteration with contexts")
    for name, count in iterations.items():
        found = measure_rounds(listener, name, count, rounds)
        none = find_best(found[NONE])
        for kind, costs in found.items():
            best = find_best(costs)
            decile = "" if kind.is_sampled else f"{best.decile_ms / none.decile_ms - 1:+.0%}"
            times = (f"{each:.2f}" for each in (best.decile_ms, best.median_ms, best.mean_ms))
            table.add_row(name, kind.name, *times, decile, f"{best.mean_ms / none.mean_ms - 1:+.0%}")
    console.print(table)


def find_best(costs: list[IterationCost]) -> IterationCost:
    """Return the least of every figure."""
    return IterationCost(
        min(cost.decile_ms for cost in costs),
        min(cost.median_ms for cost in costs),
        min(cost.mean_ms for cost in costs),
        min(cost.resident_mb for cost in costs),
    )


def show_memory(console: Console, listener: Listener, counts: tuple[int, ...]) -> None:
    """Print the table of memory."""
    table = Table("kind", *(f"MB at {count:,}" for count in counts), title="memory of the LSTM's job")
    for kind in (NONE, PYTHON):
        costs = [measure(listener, "lstm", count, kind) for count in counts]
        table.add_row(kind.name, *(f"{cost.resident_mb:.1f}" for cost in costs))
    console.print(table)


def run(console: Console, quick: bool) -> None:
    """Print both tables; quickly, with few iterations."""
    with tempfile.TemporaryDirectory() as folder:
        listener = Listener(Path(folder) / "s").start()
        show_times(console, listener, 1 if quick else ROUNDS, {"lstm": 3, "jax": 3} if quick else ITERATIONS)
        show_memory(console, listener, (2, 4) if quick else (FEW, MANY))
        listener.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small inputs: does it run?")
    run(Console(width=110), parser.parse_args().quick)


if __name__ == "__main__":
    main()
