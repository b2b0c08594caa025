"""A part of a trace: the records that overlap a range of time; all others are counted as dropped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import polars as pl
from msgspec.structs import replace

from deepprof.collectors.importers.flags import flag_events
from deepprof.collectors.trace import RECORD_TABLES, Accounting, Trace

OUT_OF_RANGE = "out-of-range"
# Joined by the row number in `event`.
SIDE_TABLES = {
    "collectives": "device_events",
    "launch_shapes": "device_events",
    "operands": "host_events",
    "event_stacks": "device_events",
    "event_instructions": "device_events",
    "allocations": "memory_events",
    "accesses": "device_events",
}
# Record tables whose rows have one time, `time_ns`: a window of contexts counts where it begins.
POINTS = ("memory_events", "segments", "failed_allocations", "context_sums")
ROW, PLACE = "row", "place"
Range = tuple[int | None, int | None]  # start and end in ns; None: open


def cut(trace: Trace, start_ns: int | None = None, end_ns: int | None = None) -> Trace:
    """Return the part of `trace` that overlaps `start_ns` ≤ t < `end_ns`; the rest is dropped as `out-of-range`.

    An annotation that was never closed lasts for ever. Names keep their ids. Only the flags that can be found from the
    part alone are kept.
    """

    def scan(table: str, row: str | None = None) -> pl.LazyFrame:
        rows: pl.DataFrame = getattr(trace, table)
        return (rows.with_row_index(row) if row else rows).lazy()

    tables = cut_tables(scan, (start_ns, end_ns))
    return replace(trace, accounting=account_part(trace.accounting, tables), **tables)


class _Scan(Protocol):
    """A function that returns a table as a lazy frame, with row numbers in the column `row` if one is named."""

    def __call__(self, table: str, row: str | None = None) -> pl.LazyFrame:
        """Return the table."""
        ...


def cut_tables(scan: _Scan, within: Range) -> dict[str, pl.DataFrame]:
    """Return the record tables that `scan` returns, cut to the range, and the side tables that go with them."""
    numbered = {
        table: scan(table, ROW if table in SIDE_TABLES.values() else None).filter(*_overlap(table, within)).collect()
        for table in RECORD_TABLES
    }
    sides = {side: join_again(scan(side).collect(), numbered[of]) for side, of in SIDE_TABLES.items()}
    return {table: rows.drop(ROW, strict=False) for table, rows in numbered.items()} | sides


def join_again(side: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of a side table that belong to `rows`, with their new row numbers."""
    places = rows.select(pl.col(ROW).cast(pl.UInt32)).with_row_index(PLACE)
    joined = side.join(places, left_on="event", right_on=ROW, how="inner", maintain_order="left")
    return joined.with_columns(event=pl.col(PLACE).cast(pl.UInt32)).drop(PLACE)


def _overlap(table: str, within: Range) -> list[pl.Expr]:
    """Return the conditions under which a row of `table` overlaps the range."""
    start, end = within
    time = "time_ns" if table in POINTS else "start_ns"
    last = pl.col("time_ns" if table in POINTS else "end_ns")
    conditions = [] if end is None else [pl.col(time) < end]
    if start is not None:
        conditions.append((last > start) | (pl.col(time) >= start) | last.is_null())
    return conditions


def account_part(whole: Accounting, tables: Mapping[str, pl.DataFrame], reason: str = OUT_OF_RANGE) -> Accounting:
    """Return the accounting of a part with these `tables`, whose other records are dropped for a `reason`.

    Raises `ValueError` for more rows than the whole has.
    """
    kept = sum(tables[table].height for table in RECORD_TABLES)
    if kept == whole.kept:
        return whole
    flags = flag_events(tables["device_events"], tables["host_events"])
    dropped = {**whole.dropped, reason: whole.dropped.get(reason, 0) + whole.kept - kept}
    return Accounting(whole.read, kept, dropped, dict(flags))
