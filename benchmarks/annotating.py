"""Stages, layers and sections of a long trace: what annotating it costs, and how few boxes are left to read.

Next to it are the figures of Hotline's paper (Table 1) for its largest trace; they are of another machine.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from benchmarks.importing import TO_REPEAT, verdict
from benchmarks.long_trace import find_trace, repeat_document
from benchmarks.readers import ANNOTATED, Reading, measure
from deepprof.simulation import simulate, write

if TYPE_CHECKING:
    from rich.console import Console

EVENTS = 941_489  # of the paper's largest trace, an RNN-T on four GPUs
PAPER_S = 224.0
MAX_CPU_S, MAX_MB = 10.0, 1_000.0


def run(console: Console, quick: bool = False) -> None:
    """Print what annotating a long trace takes after its import, and what it leaves of an iteration."""
    with tempfile.TemporaryDirectory() as folder:
        short, long = Path(folder) / "short.json.gz", Path(folder) / "long.json.gz"
        write(simulate("healthy", iterations=10 if quick else 55), short)
        repeat_document(find_trace(*TO_REPEAT) or short, long, 20_000 if quick else EVENTS)
        _compare(console, long, judged=not quick)


def _compare(console: Console, path: Path, *, judged: bool) -> None:
    """Print the table of one trace."""
    readings = {reader.name: measure(reader, path, 1) for reader in ANNOTATED}
    base, whole = readings["deepprof.read"], readings["stages, layers and sections"]
    if not isinstance(base, Reading) or not isinstance(whole, Reading):
        raise RuntimeError(f"{base}, {whole}")
    table = Table("what", "CPU s", "peak MB", title=f"Annotating {base.events:,} events")
    table.add_row("import", f"{base.cpu_s:.2f}", f"{base.peak_mb:.0f}")
    table.add_row("its stages, layers and sections alone", f"{whole.cpu_s:.2f}", f"{whole.peak_mb:.0f}")
    table.add_row(f"Hotline's paper, {EVENTS:,} events, wall time", f"{PAPER_S:.0f}", "-")
    console.print(table)
    console.print(f"a typical iteration: {whole.events:,} annotations")
    if judged:
        console.print(verdict("CPU s", whole.cpu_s, f"at most {MAX_CPU_S:.0f}", whole.cpu_s <= MAX_CPU_S))
        console.print(verdict("peak MB", whole.peak_mb, f"at most {MAX_MB:.0f}", whole.peak_mb <= MAX_MB))
