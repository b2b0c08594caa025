"""A whole diagnosis next to the import it rests on, and next to what a peer needs to state where the time goes."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from benchmarks.importing import verdict
from benchmarks.long_trace import find_trace
from benchmarks.readers import DIAGNOSES, Reading, measure
from deepprof.simulation import simulate, write

if TYPE_CHECKING:
    from rich.console import Console

# The largest real trace that has iterations, and shorter ones: eager training, collectives, many small kernels.
REAL = (
    "tl-flux-sage/profile_trace_rank_0.json.gz",
    "hta-negqueue/rank0.json.gz",
    "tb-resnet50-nw0/worker0.pt.trace.json.gz",
    "param-linear/linear_kineto.json.gz",
)
RUNS = 3  # of every reader, of which the fastest counts
MAX_IMPORT_RATIO = 2.0  # times the import, for the largest


def run(console: Console, quick: bool = False) -> None:
    found = [path for path in map(find_trace, REAL) if path is not None and not quick]
    with tempfile.TemporaryDirectory() as folder:
        if not found:
            found = [Path(folder) / "input-bound.json.gz"]
            write(simulate("input-bound", iterations=10 if quick else 55), found[0])
        for number, path in enumerate(found):
            compare(console, path, 1 if quick else RUNS, judged=number == 0 and not quick)


def compare(console: Console, path: Path, runs: int, *, judged: bool) -> None:
    """Print one trace's table; `judged` adds whether the goal is met."""
    readings = {reader.name: measure(reader, path, runs) for reader in DIAGNOSES}
    base = readings["deepprof.read"]
    if isinstance(base, str):
        raise RuntimeError(f"deepprof.read {base}")
    title = f"Diagnosing {path.parent.name}, {base.events:,} events"
    table = Table("what", "CPU s", "x import", "peak MB", title=escape(title))
    for name, reading in readings.items():
        if isinstance(reading, Reading):
            table.add_row(name, f"{reading.cpu_s:.2f}", f"{reading.cpu_s / base.cpu_s:.2f}", f"{reading.peak_mb:.0f}")
        else:
            table.add_row(name, escape(reading))
    console.print(table)
    whole = readings["import, analysis and report"]
    if judged and isinstance(whole, Reading):
        ratio = whole.cpu_s / base.cpu_s
        console.print(
            verdict(
                "a whole diagnosis against its import",
                ratio,
                f"at most {MAX_IMPORT_RATIO:g} x",
                ratio <= MAX_IMPORT_RATIO,
            )
        )
