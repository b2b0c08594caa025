"""Reading a Kineto trace: events per second, CPU time and peak memory beside `json.load` of the same file.

Each reader runs in a process of its own, so that its peak memory is its own. One file is simulated here, so that anyone
gets the same one; another is real, where the real traces are.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from deepprof.simulation import simulate, write

if TYPE_CHECKING:
    from rich.console import Console

MEASURE = """
import json, re, sys, time
start = time.process_time()
events = read(sys.argv[1])
used = time.process_time() - start
# Not ru_maxrss, which a child takes over from its parent.
peak = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
print(json.dumps({"events": events, "cpu_s": used, "peak_mb": peak}))
"""
# What a reader needs is imported before the clock starts, as a long-running program has it.
READERS = {
    "deepprof.read": "import deepprof; import deepprof.collectors.importers.kineto\n"
    "def read(path): return deepprof.read(path).accounting.read\n",
    "deepprof.analyze of it": "import deepprof; from deepprof import analyze, read as load\n"
    "def read(path): trace = load(path); analyze(trace); return trace.accounting.read\n",
    "json.load": "import gzip, json\ndef read(path): return len(json.load(gzip.open(path))['traceEvents'])\n",
}


@dataclass(frozen=True)
class Reading:
    events: int
    cpu_s: float
    peak_mb: float


def measure(code: str, path: Path) -> Reading:
    """Run one reader in a fresh process, three times, and return its fastest run."""
    runs = [
        Reading(
            **json.loads(
                subprocess.run([sys.executable, "-c", code + MEASURE, path], capture_output=True, check=True).stdout
            )
        )
        for _ in range(3)
    ]
    return min(runs, key=lambda r: r.cpu_s)


def find_real_trace() -> Path | None:
    """Return the largest of the real traces, where there are any."""
    root = Path(os.environ.get("DEEPPROF_TRACES", Path(__file__).resolve().parents[1] / "../shared/traces"))
    found = root / "tl-flux-sage" / "profile_trace_rank_0.json.gz"
    return found if found.is_file() else None


def run(console: Console, quick: bool = False) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "healthy.json.gz"
        write(simulate("healthy", iterations=10 if quick else 55), path)
        compare(console, path, "a simulated Kineto trace")
    real = find_real_trace()
    if real is not None and not quick:
        compare(console, real, "a real Kineto trace with Python stacks")


def compare(console: Console, path: Path, what: str) -> None:
    """Print all readers of one file."""
    table = Table("reader", "events", "events/s", "CPU s", "x json.load", "peak MB", "x json.load")
    table.title = f"Reading {what}, {path.stat().st_size / 1e6:.1f} MB gzipped"
    for column in table.columns[1:]:
        column.justify = "right"
    readings = {name: measure(code, path) for name, code in READERS.items()}
    base = readings["json.load"]
    for name, r in readings.items():
        table.add_row(
            name,
            f"{r.events:,}",
            f"{r.events / r.cpu_s:,.0f}",
            f"{r.cpu_s:.2f}",
            f"{r.cpu_s / base.cpu_s:.2f}",
            f"{r.peak_mb:.0f}",
            f"{r.peak_mb / base.peak_mb:.2f}",
        )
    console.print(table)
