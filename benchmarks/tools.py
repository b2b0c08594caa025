"""Tools on the records of a trace: batches against single events."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import polars as pl
from rich.table import Table

from benchmarks.importing import verdict
from benchmarks.kernels import kernels_and_copies
from deepprof.tools import Tool, find_tool
from deepprof.tools import run as run_tool

if TYPE_CHECKING:
    from rich.console import Console

    from deepprof.collectors.trace import Trace

KERNELS, REPEATS = 1000, 3
MIN_BATCH_PER_S, MIN_SINGLE_PER_S = 20e6, 1e6


class BusyTime(Tool):
    """Add up the time of all kernels, frame by frame."""

    def begin(self) -> None:
        self.time_ns = 0

    def on_kernels(self, frame: pl.DataFrame) -> None:
        self.time_ns += int((frame["end_ns"] - frame["start_ns"]).sum())

    def report(self) -> dict[str, int]:
        return {"time_ns": self.time_ns}


class BusyTimeEach(BusyTime):
    """Add up the time of all kernels, one by one."""

    on_kernels = Tool.on_kernels

    def on_kernel(self, event) -> None:
        self.time_ns += event.end_ns - event.start_ns


def _print_table(console: Console, trace: Trace) -> tuple[float, float]:
    """Print the table, and return events per second of batches and of single events."""
    kernels = trace.device_events.filter(pl.col("activity") == "kernel").height
    tools = (("frames (a sum)", BusyTime), ("frames (kernel-frequency)", find_tool("kernel-frequency")))
    tools += (("single events (a sum)", BusyTimeEach),)
    rates = [kernels / min(_measure(kind(), trace) for _ in range(REPEATS)) for _, kind in tools]
    table = Table("a tool that takes", "M events/s", title=f"Tools on {kernels:,} kernels")
    for (name, _), rate in zip(tools, rates, strict=True):
        table.add_row(name, f"{rate / 1e6:,.1f}")
    console.print(table)
    return rates[0], rates[-1]


def run(console: Console, quick: bool = False) -> None:
    """Print how many events per second tools get."""
    batch, single = _print_table(console, kernels_and_copies(50 if quick else 2000, KERNELS))
    if not quick:
        console.print(verdict("M events/s in frames", batch / 1e6, "at least 20", batch >= MIN_BATCH_PER_S))
        console.print(verdict("M single events/s", single / 1e6, "at least 1", single >= MIN_SINGLE_PER_S))


def _measure(tool: Tool, trace: Trace) -> float:
    """Return the seconds of one run."""
    begin = time.perf_counter()
    run_tool(tool, trace)
    return time.perf_counter() - begin
