"""A tail of an RPD file with played clocks, and rows to write into the file."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from deepprof.live.agent.notices import NoticeLog
from deepprof.live.agent.rpd.rpd_source import RpdSource
from tests.collectors.rpd_database import call, op

from .receiving import FakeRank, Opening, TurningClock

SECOND = 10**9
BOOT_NS, UNIX_NS = 500 * SECOND, 1_700_000_000 * SECOND  # now, as the played clocks state
STRINGS = ("", "gemm", "relu", "KernelExecution", "hipLaunchKernel", "UserMarker", "iteration 1", "CopyHostToDevice")
EMPTY, GEMM, RELU, KERNEL, LAUNCH, MARKER, ITERATION, COPY = range(1, 9)


def insert(path: Path, table: str, *rows: dict[str, Any]) -> None:
    """Write rows as the tracer does, in one transaction."""
    with sqlite3.connect(path) as connection:
        for row in rows:
            names = ", ".join(f'"{name}"' for name in row)
            connection.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(row))})", (*row.values(),))
    connection.close()


def launch(path: Path, key: int, start: int, name: int = GEMM, stream: str = "0x0") -> None:
    """A call that launches a kernel 1 µs later, `start` in ns."""
    insert(path, "rocpd_api", call(key, LAUNCH, start=start, end=start + 500))
    insert(path, "rocpd_kernelapi", {"api_ptr_id": key, "stream": stream, "kernelName_id": name})
    insert(path, "rocpd_op", op(start + 1000, KERNEL, name, id=key))
    insert(path, "rocpd_api_ops", {"id": key, "api_id": key, "op_id": key})


class Tail:
    """A source with played clocks, of which every look is one call."""

    def __init__(self, path: Path, **changes: Any) -> None:
        self.clock, self.ranks, self.lines = TurningClock(), Opening(), []
        changes = {"clock": self.clock, "unix_ns": lambda: UNIX_NS, "since_boot_ns": lambda: BOOT_NS} | changes
        self.source = RpdSource(path, "job", self.ranks, NoticeLog(self.lines.append), **changes)

    async def look(self, seconds: float = 0.0) -> float:
        self.clock.now += seconds
        return await self.source.attempt()

    async def end(self) -> FakeRank:
        self.source.stop()
        await self.source.run()
        return self.ranks[0]


def play(path: Path, moves: Callable[[Tail], Any], **changes: Any) -> Tail:
    """Return a tail after `moves` and its end."""
    tail = Tail(path, **changes)

    async def run() -> None:
        await moves(tail)
        await tail.end()

    asyncio.run(run())
    return tail


def show(rows: pl.DataFrame, begin: int) -> list[tuple[Any, ...]]:
    """Device events as they compare, times from `begin`."""
    columns = ("start_ns", "end_ns", "device", "stream", "activity", "name", "correlation", "nbytes", "copy_kind")
    moved = rows.with_columns(pl.col("start_ns") - begin, pl.col("end_ns") - begin)
    return sorted(moved.select(columns).rows(), key=str)


def with_names(trace) -> pl.DataFrame:
    return trace.device_events.with_columns(name=trace.names.gather(trace.device_events["name_id"].to_numpy()))
