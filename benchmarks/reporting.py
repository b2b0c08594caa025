"""The page as a file: what writing it needs next to the diagnosis of the same trace, and how large it is."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from benchmarks.importing import EVENTS, TO_REPEAT, verdict
from benchmarks.long_trace import find_trace, repeat_document
from deepprof.simulation import simulate, write

if TYPE_CHECKING:
    from rich.console import Console

SHORT, QUICK = 230_000, 20_000  # events
MAX_SHORT_S, MAX_LONG_S = 3.0, 10.0  # beyond the diagnosis
MAX_SHORT_MIB, MAX_LONG_MIB = 3.0, 8.0
MIB = 1 << 20


@dataclass(frozen=True)
class PageCost:
    """CPU seconds of both commands, and the size of the page."""

    events: int
    diagnose_s: float
    report_s: float
    nbytes: int

    @property
    def extra_s(self) -> float:
        """What the page takes beyond the diagnosis."""
        return self.report_s - self.diagnose_s


def cpu_of(*arguments: str | Path) -> float:
    """Return the CPU seconds of a command and its children, the smaller of two runs."""
    times = []
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "deepprof", *arguments], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


def measure_page(path: Path, events: int) -> PageCost:
    """Return what both commands take for one trace."""
    page = path.with_suffix(".html")
    diagnosed = cpu_of("diagnose", path)
    reported = cpu_of("report", path, "-o", page)
    return PageCost(events, diagnosed, reported, page.stat().st_size)


def run(console: Console, quick: bool = False) -> None:
    """Print a table of a short trace and a long one, and whether the goals are met."""
    with tempfile.TemporaryDirectory() as folder:
        simulated = Path(folder) / "simulated.json.gz"
        write(simulate("healthy", iterations=10 if quick else 55), simulated)
        costs = []
        for events in (QUICK,) if quick else (SHORT, EVENTS):
            path = Path(folder) / f"{events}.json.gz"
            repeat_document((None if quick else find_trace(*TO_REPEAT)) or simulated, path, events)
            costs.append(measure_page(path, events))
    table = Table("events", "diagnose, CPU s", "report, CPU s", "beyond", "page, MiB", title="A page to send")
    for cost in costs:
        times = (cost.diagnose_s, cost.report_s, cost.extra_s)
        table.add_row(f"{cost.events:,}", *(f"{each:.2f}" for each in times), f"{cost.nbytes / MIB:.2f}")
    console.print(table)
    if not quick:
        limits = ((MAX_SHORT_S, MAX_SHORT_MIB), (MAX_LONG_S, MAX_LONG_MIB))
        for cost, (most_s, most_mib) in zip(costs, limits, strict=True):
            console.print(
                verdict(f"CPU s beyond, {cost.events:,}", cost.extra_s, f"at most {most_s:.0f}", cost.extra_s <= most_s)
            )
            size = cost.nbytes / MIB
            console.print(verdict(f"MiB, {cost.events:,}", size, f"at most {most_mib:.0f}", size <= most_mib))
