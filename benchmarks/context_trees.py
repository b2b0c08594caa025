"""The calling context tree of a trace: its cost beside the import that it rests on, and beside a peer's call stacks."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.importing import EVENTS, TO_REPEAT, WITH_STACKS, measure_all, tabulate, verdict
from benchmarks.long_trace import find_trace, repeat_document
from benchmarks.readers import CONTEXTS, Reading
from deepprof.simulation import simulate, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from benchmarks.importing import Readings

SHORT = "param-linear/linear_kineto.json.gz"  # 62,000 events as HTA counts them; its call graph reads few others
MAX_IMPORTS, MAX_MB, MAX_SHORT_S = 1.5, 600.0, 0.3


def run(console: Console, quick: bool = False) -> None:
    """Print a table for a short trace, one with Python functions, and a long one."""
    with tempfile.TemporaryDirectory() as folder:
        simulated, long = Path(folder) / "simulated.json.gz", Path(folder) / "long.json.gz"
        write(simulate("healthy", iterations=10 if quick else 55), simulated)
        real = [] if quick else [path for path in map(find_trace, (SHORT, WITH_STACKS)) if path is not None]
        for number, path in enumerate(real or [simulated]):
            readings = measure_all(CONTEXTS, path, 1 if quick else None)
            console.print(tabulate(readings, f"Calling contexts of {path.parent.name}"))
            for line in _judge_short(readings) if number == 0 and not quick else ():
                console.print(line)
        if not quick:
            repeat_document(find_trace(*TO_REPEAT) or simulated, long, EVENTS)
            readings = measure_all(CONTEXTS, long)
            console.print(tabulate(readings, "Calling contexts of a long trace"))
            for line in _judge_long(readings):
                console.print(line)


def _judge_short(readings: Readings) -> Iterator[str]:
    """Yield whether the goal for a short trace is met."""
    tree = readings["its calling contexts alone"]
    if isinstance(tree, Reading):
        yield verdict("CPU s for 60,000 events", tree.cpu_s, f"at most {MAX_SHORT_S}", tree.cpu_s <= MAX_SHORT_S)


def _judge_long(readings: Readings) -> Iterator[str]:
    """Yield whether the goals for a long trace are met."""
    tree, base = readings["its calling contexts alone"], readings["deepprof.read"]
    if isinstance(tree, Reading) and isinstance(base, Reading):
        ratio = tree.cpu_s / base.cpu_s
        yield verdict("CPU against the import", ratio, f"at most {MAX_IMPORTS} x", ratio <= MAX_IMPORTS)
        yield verdict("peak MB", tree.peak_mb, f"at most {MAX_MB:.0f}", tree.peak_mb <= MAX_MB)
