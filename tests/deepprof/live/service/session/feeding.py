"""Traces as a session gets them: cut into batches, sent over the wire, taken one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from deepprof.collectors.trace import DEVICE_EVENTS, Accounting, Trace
from deepprof.live.service.session import RankSession, SessionEvent, SessionOutput
from deepprof.live.wire import CheckedRecords, WireLimits, check_batch, cut

LIMITS = WireLimits()
EVERYTHING = 65_536


def batches_of(trace: Trace, records: int = 8192) -> Iterator[CheckedRecords]:
    names = 0
    for message in cut(trace, records=records):
        batch = check_batch(message, LIMITS, names)
        names = max(names, batch.first_name + len(batch.names))
        yield batch


class Outcome:
    """All that a session gave."""

    def __init__(self) -> None:
        self.tables: list[pl.DataFrame] = []
        self.events: list[SessionEvent] = []

    def add(self, given: SessionOutput) -> None:
        self.tables.append(given.iterations)
        self.events.extend(given.events)

    @property
    def rows(self) -> pl.DataFrame:
        return pl.concat(self.tables).sort("device", "index")


def feed(
    session: RankSession,
    batches: Iterable[CheckedRecords],
    advances: Callable[[int], bool] = lambda _: True,
    *,
    ends: bool = True,
) -> Outcome:
    """Give batches to a session, have it advance where `advances` reports it, and end."""
    outcome = Outcome()
    for number, batch in enumerate(batches):
        session.take(batch)
        if advances(number):
            outcome.add(session.advance())
    if ends:
        session.end()
    outcome.add(session.advance())
    return outcome


TABLES = ("device_events", "host_events", "annotations", "memory_events")


def cut_at(trace: Trace, bounds: Iterable[int]) -> list[CheckedRecords]:
    """Cut a trace's records, in the order of time, before those with these numbers."""
    tables = {name: getattr(trace, name) for name in TABLES}
    times = np.concatenate([rows.to_series(0).to_numpy() for rows in tables.values()])
    order = np.argsort(times, kind="stable")
    table = np.repeat(np.arange(len(TABLES)), [rows.height for rows in tables.values()])[order]
    edges = sorted({0, len(times), *(bound for bound in bounds if bound < len(times))})
    taken, batches = [0] * len(TABLES), []
    for first, end in pairwise(edges):
        parts = {}
        for number, name in enumerate(TABLES):
            count = int((table[first:end] == number).sum())
            if count:
                parts[name] = tables[name][taken[number] : taken[number] + count]
            taken[number] += count
        until = int(times[order[end]]) if end < len(times) else int(times[order[-1]]) + 1
        names = tuple(trace.names) if first == 0 else ()
        batches.append(CheckedRecords(first, end - first, parts, names, 0, until))
    return batches


def device_rows(**columns: Any) -> pl.DataFrame:
    """Return device events of device 0 from the columns that matter; kernels unless stated otherwise."""
    count = len(columns["start_ns"])
    given: dict[str, Any] = {"device": 0, "context": 0, "stream": 7, "activity": "kernel"} | columns
    series = [
        pl.Series(name, given[name] if np.ndim(given[name]) else [given[name]] * count) if name in given
        else pl.Series(name, [None] * count)
        for name in DEVICE_EVENTS
    ]  # fmt: skip
    return pl.DataFrame(series).cast(dict(DEVICE_EVENTS))  # type: ignore[arg-type]


def make_trace(device_events: pl.DataFrame, names: int, more: Sequence[str] = (), **tables: pl.DataFrame) -> Trace:
    """Return a trace of names k0, k1 …, and more."""
    rows = {"device_events": device_events.sort("start_ns", maintain_order=True)} | tables
    kept = sum(table.height for name, table in rows.items() if name in TABLES)
    texts = pl.Series("names", [*(f"k{i}" for i in range(names)), *more], dtype=pl.String)
    return Trace(path="", format="", names=texts, accounting=Accounting(kept, kept), **rows)


def play(symbols: Sequence[int], *, at: int = 0, pitch: int = 1_000, lasts: int = 900, **place: Any) -> pl.DataFrame:
    """Return kernels one after the other."""
    start = at + pitch * np.arange(len(symbols), dtype=np.int64)
    return device_rows(start_ns=start, end_ns=start + lasts, name_id=np.asarray(symbols), **place)
