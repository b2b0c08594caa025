"""The wire's speed: a trace cut into batches, a batch checked at the daemon's door, batches put together again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from benchmarks.kernels import kernels_and_copies
from deepprof.live.wire import TraceAssembly, WireLimits, check_batch, count_records, cut, make_end, make_hello

RECORDS = 8192
BATCHES = 64


@dataclass(frozen=True)
class Row:
    what: str
    ns_per_record: float

    def cells(self) -> tuple[str, str, str]:
        return self.what, f"{self.ns_per_record:,.1f}", f"{1e3 / self.ns_per_record:,.1f}"


def best_ns(work: Callable[[], object], records: int) -> float:
    """The best of five runs, per record, of processor time."""
    times = []
    for _ in range(5):
        begin = time.process_time_ns()
        work()
        times.append(time.process_time_ns() - begin)
    return min(times) / records


def run(console: Console, quick: bool = False) -> None:
    table = Table("batches of 8,192 records", "CPU ns per record", "M records/s", title="The wire, one core")
    for row in rows(8 if quick else BATCHES):
        table.add_row(*row.cells())
    console.print(table)


def rows(batches: int = BATCHES) -> list[Row]:
    """What each way costs for batches of 8,192 records."""
    trace, limits = kernels_and_copies(4 * batches, 2045), WireLimits()
    messages, total = list(cut(trace)), trace.accounting.kept

    def put_together() -> None:
        assembly = TraceAssembly(make_hello(trace, "job"))
        for message in messages:
            assembly.add_batch(message)
        assembly.add_end(make_end(trace))
        assembly.trace()

    ways: dict[str, Callable[[], object]] = {
        "cut into batches": lambda: [None for _ in cut(trace)],
        "check at the door": lambda: [check_batch(message, limits, len(trace.names)) for message in messages],
        "count without looking": lambda: [count_records(message, limits) for message in messages],
        "put together again": put_together,
    }
    return [Row(what, best_ns(work, total)) for what, work in ways.items()]
