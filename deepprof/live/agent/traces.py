"""Gives whole traces to a rank: moved to Unix time, under the rank's own names, in pieces by time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec.structs import replace

from deepprof.collectors.clocks import shift, to_unix
from deepprof.collectors.errors import TraceError
from deepprof.collectors.trace import Trace
from deepprof.live.agent.pieces import Tables, count_records, cut_tables
from deepprof.live.wire.sent_tables import SENT_RECORDS, as_sent

EARLIEST = -(2**62)
RECORDS = 1 << 16  # given at once: between two pieces the agent does its other work
Ids = npt.NDArray[np.uint32]


class RankReceiver(Protocol):
    """An object that takes the records of one rank; `deepprof.live.agent.rank_spool.RankSpool` is one."""

    def name_ids(self, texts: Sequence[str]) -> Ids:
        """Return the rank's ids of names; new names get new ids."""
        ...

    def send(self, tables: Tables, until_ns: int) -> object:
        """Take sorted tables of records; none that comes later starts before `until_ns`, Unix ns."""
        ...

    def gap(self, reason: str, lost: int = 0) -> object:
        """Note that records are missing here."""
        ...

    def end(self, dropped: Mapping[str, int] | None = None) -> object:
        """Note that nothing follows, and which records were read and not sent, by reason."""
        ...


@dataclass(frozen=True, slots=True)
class TraceReceipt:
    """What became of a trace: records given to the rank, those too late for it, and the watermark now, Unix ns.

    `unsent` are the records that are never sent (`deepprof.live.wire.sent_tables`).
    """

    records: int
    late: int
    until_ns: int
    unsent: int = 0


async def send_trace(
    rank: RankReceiver,
    trace: Trace,
    *,
    watermark_ns: int = EARLIEST,
    until_ns: int | None = None,
    offset_ns: int | None = None,
) -> TraceReceipt:
    """Give a trace's records to `rank` in the order of time.

    Records that start before `watermark_ns`, the watermark so far, are late and left out. `until_ns` is the watermark
    at the end, by default 1 ns past the last start. `offset_ns` moves a session clock to Unix time if the trace does
    not state its offset. Operands, launch shapes and call stacks are left out: ids of stacks are valid in one trace
    only. Raises `TraceError` for a trace whose clock is unknown.
    """
    whole = _on_unix(trace, offset_ns)
    trace = as_sent(whole)
    tables, late = _leave_late(trace, watermark_ns)
    records = count_records(tables)
    ending = max(watermark_ns, _last_start(tables) + 1 if until_ns is None else until_ns)
    if records or ending > watermark_ns:
        renamed = _rename(rank, tables, trace.names)
        for piece, border_ns in cut_tables(renamed, ending, RECORDS):
            rank.send(piece, border_ns)
            await asyncio.sleep(0)
    return TraceReceipt(records, late, ending, whole.accounting.kept - trace.accounting.kept)


def _on_unix(trace: Trace, offset_ns: int | None) -> Trace:
    """Return the trace on Unix time. Raises `TraceError` if the offset is unknown."""
    moved = to_unix(trace)
    if moved is not None:
        return moved
    if offset_ns is None:
        raise TraceError(trace.path, "its times count from a moment that it does not name", "send it as a file")
    try:
        return replace(shift(trace, offset_ns), clock="unix")
    except ValueError as error:
        raise TraceError(trace.path, f"its times are impossible ({error})", "record it again") from error


def _leave_late(trace: Trace, watermark_ns: int) -> tuple[dict[str, pl.DataFrame], int]:
    """Return the tables from `watermark_ns` on, without those that have no rows, and how many records came before."""
    skipped = {t: _first_row(getattr(trace, t), watermark_ns) for t in SENT_RECORDS}
    tables = {t: getattr(trace, t)[rows:] for t, rows in skipped.items()}
    if "host_events" in tables:
        tables["host_events"] = tables["host_events"].with_columns(stack_id=pl.lit(None, pl.UInt32))
    first = skipped["device_events"]
    details = trace.collectives.filter(pl.col("event") >= first)
    tables["collectives"] = details.with_columns((pl.col("event") - first).cast(pl.UInt32))
    tables["devices"] = trace.devices
    return {t: rows for t, rows in tables.items() if rows.height}, sum(skipped.values())


def _first_row(rows: pl.DataFrame, time_ns: int) -> int:
    """Return the number of the first row that starts at `time_ns` or later."""
    return int(np.searchsorted(rows.to_series(0).to_numpy(), time_ns))


def _last_start(tables: Tables) -> int:
    """Return the last start of all records, Unix ns."""
    columns = (rows.to_series(0) for table, rows in tables.items() if table in SENT_RECORDS)
    lasts: list[Any] = [column[-1] for column in columns]
    return max(lasts, default=EARLIEST - 1)


def _rename(rank: RankReceiver, tables: Tables, names: pl.Series) -> Tables:
    """Return the tables with the rank's own ids; it gets only names that a record uses."""
    named = [table for table, rows in tables.items() if "name_id" in rows.columns]
    if not named:
        return tables
    used = np.unique(np.concatenate([tables[table]["name_id"].unique().to_numpy() for table in named]))
    ids = np.zeros(len(names), np.uint32)
    ids[used] = rank.name_ids(names.gather(used).to_list())
    own = {t: pl.Series("name_id", ids[tables[t]["name_id"].to_numpy()], pl.UInt32) for t in named}
    return {t: rows.with_columns(own[t]) if t in own else rows for t, rows in tables.items()}
