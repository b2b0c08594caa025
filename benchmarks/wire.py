"""The wire's speed: a trace cut into batches, a batch checked at the daemon's door, batches put together again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

from deepprof.collectors.trace import ACTIVITIES, DEVICE_EVENTS, Accounting, Trace
from deepprof.wire import Assembly, Limits, check_batch, count_records, cut, make_end, make_hello

RECORDS = 8192
BATCHES = 64


@dataclass(frozen=True)
class Row:
    what: str
    ns_per_record: float

    def cells(self) -> tuple[str, str, str]:
        return self.what, f"{self.ns_per_record:,.1f}", f"{1e3 / self.ns_per_record:,.1f}"


def kernels_only(records: int) -> Trace:
    """A trace of kernels on one stream, as a collector of the driver's records makes it."""
    starts = np.cumsum(np.random.default_rng(7).integers(1_000, 20_000, records))
    columns = {
        "start_ns": starts,
        "end_ns": starts + 900,
        "device": np.zeros(records, np.uint16),
        "context": np.ones(records, np.uint32),
        "stream": np.full(records, 7, np.int64),
        "activity": pl.Series(["kernel"], dtype=pl.Enum(ACTIVITIES)).new_from_index(0, records),
        "name_id": (np.arange(records) % 700).astype(np.uint32),
        "correlation": np.arange(records, dtype=np.uint64),
    }
    missing = {column: pl.Series([None], dtype=kind) for column, kind in DEVICE_EVENTS.items() if column not in columns}
    rows = pl.DataFrame(columns | {column: value.new_from_index(0, records) for column, value in missing.items()})
    names = pl.Series("name", [f"void kernel_{i}<float, 128, 32>(float const*, float*)" for i in range(700)])
    return Trace(
        path="made up", format="made up", names=names, accounting=Accounting(records, records), device_events=rows
    )


def best_ns(work: Callable[[], object], records: int) -> float:
    """The best of five runs, per record, of processor time."""
    times = []
    for _ in range(5):
        begin = time.process_time_ns()
        work()
        times.append(time.process_time_ns() - begin)
    return min(times) / records


def run(console: Console, quick: bool = False) -> None:
    table = Table("batches of 8,192 kernels", "CPU ns per record", "M records/s", title="The wire, one core")
    for row in rows(8 if quick else BATCHES):
        table.add_row(*row.cells())
    console.print(table)


def rows(batches: int = BATCHES) -> list[Row]:
    """What each way costs for batches of 8,192 kernels."""
    trace, limits = kernels_only(RECORDS * batches), Limits()
    messages, total = list(cut(trace)), trace.accounting.kept

    def put_together() -> None:
        assembly = Assembly(make_hello(trace, "job"))
        for message in messages:
            assembly.add_batch(message)
        assembly.add_end(make_end(trace))
        assembly.trace()

    ways: dict[str, Callable[[], object]] = {
        "cut into batches": lambda: [None for _ in cut(trace)],
        "check at the door": lambda: [check_batch(message, limits, 700) for message in messages],
        "count without looking": lambda: [count_records(message, limits) for message in messages],
        "put together again": put_together,
    }
    return [Row(what, best_ns(work, total)) for what, work in ways.items()]
