"""The command line as a user waits for it: wall time of whole processes, the best of five."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from deepprof.simulation import simulate, write

if TYPE_CHECKING:
    from rich.console import Console


def wall_s(*arguments: str | Path) -> float:
    """Return the best of five wall times of one command."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return min(times)


def run(console: Console, quick: bool = False) -> None:
    table = Table("command", "wall s", "x python")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "healthy.json.gz"
        simulation = simulate("healthy", iterations=10 if quick else 55)
        write(simulation, path)
        events = len(simulation.document["traceEvents"])
        commands: dict[str, tuple[str | Path, ...]] = {
            "python -c pass": ("-c", "pass"),
            "import polars": ("-c", "import polars"),
            "deepprof --help": ("-m", "deepprof", "--help"),
            f"deepprof diagnose, {events:,} events": ("-m", "deepprof", "diagnose", path),
        }
        base = 0.0
        for name, arguments in commands.items():
            taken = wall_s(*arguments)
            base = base or taken
            table.add_row(name, f"{taken:.2f}", f"{taken / base:.1f}")
    console.print(table)
