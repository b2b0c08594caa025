"""Reading traces: events per second, CPU time and peak memory next to what others do with the same file.

A long Kineto trace and a long nsys database are made of real ones, or of simulated ones where there are none; the real
one alone shows what holds for a short trace.
"""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from benchmarks.long_trace import find_trace, repeat_database, repeat_document
from benchmarks.nsys_capture import write_capture
from benchmarks.readers import KINETO, NSYS, SMALL, STORE, Reader, Reading, measure
from deepprof.job.conversion import convert
from deepprof.simulation import simulate, write

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

Readings = dict[str, Reading | str]

EVENTS, ROWS = 1_730_000, 1_500_000
# A real job with collectives on two streams, and one with Python stacks.
TO_REPEAT = ("hta-nccl-parser/nccl_data.json.gz", "tl-resnet-ckpt/resnet_act_checkpoint.json.gz")
WITH_STACKS = "tl-flux-sage/profile_trace_rank_0.json.gz"
DATABASES = ("cs336-zx-2_7B-nvtx/result_2_7B_nvtx.sqlite", "cs336-zx-base/result.sqlite")


def run(console: Console, quick: bool = False) -> None:
    with tempfile.TemporaryDirectory() as folder:
        read_long_trace(console, Path(folder), quick)
        real = find_trace(WITH_STACKS)
        if real is not None and not quick:
            readings = measure_all(KINETO, real)
            console.print(tabulate(readings, f"Reading a real Kineto trace with Python stacks, {describe(real)}"))
        read_long_database(console, Path(folder), quick)


def read_long_trace(console: Console, folder: Path, quick: bool) -> None:
    """Print all readers of one long Kineto trace, and how far from the goals DeepProf is."""
    path, source = folder / "long.json.gz", None if quick else find_trace(*TO_REPEAT)
    what = source.parent.name if source else "a simulated one"
    if source is None:
        source = folder / "healthy.json.gz"
        write(simulate("healthy", iterations=10 if quick else 55), source)
    copies = repeat_document(source, path, 40_000 if quick else EVENTS)
    convert(path, folder / "long.deepprof")
    readings = measure_all(SMALL if quick else KINETO, path, 1 if quick else None)
    readings |= measure_all([STORE], folder / "long.deepprof", 1 if quick else None)
    console.print(tabulate(readings, f"Reading a long Kineto trace: {what} {copies} times, {describe(path)}"))
    for line in compare_with_goals(readings) if not quick else ():
        console.print(line)


def read_long_database(console: Console, folder: Path, quick: bool) -> None:
    """Print all readers of one long nsys database."""
    path, source = folder / "long.sqlite", None if quick else find_trace(*DATABASES)
    what = source.parent.name if source else "a simulated one"
    if source is None:
        source = folder / "short.sqlite"
        write_capture(source, 1000 if quick else 20_000)
    copies = repeat_database(source, path, 10_000 if quick else ROWS)
    readings = measure_all(NSYS, path, 1 if quick else None)
    size = f"{path.stat().st_size / 1e6:.0f} MB"
    console.print(tabulate(readings, f"Reading a long nsys database: {what} {copies} times, {size}", "rows"))
    mine = readings["deepprof.read"]
    if isinstance(mine, Reading) and not quick:
        rate = mine.events / mine.cpu_s
        console.print(verdict("rows/s", rate, "at least 1,000,000", rate >= 1e6))


def measure_all(readers: Sequence[Reader], path: Path, runs: int | None = None) -> Readings:
    """Return what each of `readers` took for `path`, or why it did not read it."""
    return {reader.name: measure(reader, path, runs) for reader in readers}


def describe(path: Path) -> str:
    """Return the size of the gzipped `path`."""
    with gzip.open(path) as file:
        content = sum(len(piece) for piece in iter(lambda: file.read(2**20), b""))
    return f"{content / 1e6:.0f} MB of JSON, {path.stat().st_size / 1e6:.1f} MB gzipped"


def tabulate(readings: Readings, title: str, unit: str = "events") -> Table:
    """Return all readers of one file as a table; ratios are to `deepprof.read`, and speeds of what that has read."""
    base = readings["deepprof.read"]
    if isinstance(base, str):
        raise RuntimeError(f"deepprof.read {base}")
    table = Table("reader", f"{unit}/s", "CPU s", "x deepprof", "peak MB", "x deepprof", title=escape(title))
    table.caption = f"{base.events:,} {unit}"
    for column in table.columns[1:]:
        column.justify = "right"
    for name, reading in readings.items():
        table.add_row(name, *(cells(reading, base) if isinstance(reading, Reading) else [escape(reading)]))
    return table


def cells(reading: Reading, base: Reading) -> list[str]:
    """Return one row's figures."""
    return [
        f"{base.events / reading.cpu_s:,.0f}" if reading.events else "-",
        f"{reading.cpu_s:.2f}",
        f"{reading.cpu_s / base.cpu_s:.2f}",
        f"{reading.peak_mb:.0f}",
        f"{reading.peak_mb / base.peak_mb:.2f}",
    ]


def compare_with_goals(readings: Mapping[str, Reading | str]) -> list[str]:
    """Return one line for every goal that can be judged."""
    mine, hta = readings["deepprof.read"], readings.get("HolisticTraceAnalysis")
    typed = readings.get("msgspec typed decode")
    lines = []
    if isinstance(mine, Reading):
        if isinstance(hta, Reading):
            lines += [
                verdict("CPU speed against HTA", hta.cpu_s / mine.cpu_s, "at least 10 x", hta.cpu_s >= 10 * mine.cpu_s),
                verdict(
                    "memory against HTA", mine.peak_mb / hta.peak_mb, "at most 0.25 x", 4 * mine.peak_mb <= hta.peak_mb
                ),
            ]
        if isinstance(typed, Reading):
            enough = mine.cpu_s <= 1.5 * typed.cpu_s
            lines.append(verdict("CPU time against msgspec", mine.cpu_s / typed.cpu_s, "at most 1.5 x", enough))
        lines.append(verdict("peak MB", mine.peak_mb, "at most 400", mine.peak_mb <= 400))
    return lines


def verdict(what: str, value: float, goal: str, met: bool) -> str:
    """Return whether a goal is met, as a line."""
    return f"Goal, {what}: {goal}. It is {value:,.2f}, which is {'met' if met else 'not met'}."
