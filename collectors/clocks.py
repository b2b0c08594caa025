"""A trace on another clock: every time of the record table moved by one offset."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from deepprof.collectors.importers.assembly import TIME_LIMIT_NS
from deepprof.collectors.trace import RECORD_TABLES, Trace

__all__ = ["TIMES", "UNIX_NS", "fits", "shift", "to_unix"]

TIMES = ("start_ns", "end_ns", "time_ns")
UNIX_NS = 10**17  # 1973: an epoch before it is a recorder's mistake


def shift(trace: Trace, offset_ns: int) -> Trace:
    """Return `trace` with `offset_ns` added to every time; durations and everything else stay.

    Raises `ValueError` when a time would leave ±`TIME_LIMIT_NS`.
    """
    if not offset_ns:
        return trace
    if not fits(trace, offset_ns):
        raise ValueError(f"an offset of {offset_ns} ns takes times beyond {TIME_LIMIT_NS}")
    tables = {table: moved(getattr(trace, table), offset_ns) for table in RECORD_TABLES}
    return replace(trace, **tables)  # type: ignore[arg-type]


def moved(rows: pl.DataFrame, offset_ns: int) -> pl.DataFrame:
    """Return `rows` with `offset_ns` added to their times."""
    return rows.with_columns(pl.col(time) + offset_ns for time in TIMES if time in rows.columns)


def fits(trace: Trace, offset_ns: int) -> bool:
    """Return whether every time of `trace`, moved by `offset_ns`, stays within ±`TIME_LIMIT_NS`."""
    tables = [getattr(trace, table) for table in RECORD_TABLES]
    columns = [rows[time] for rows in tables for time in TIMES if time in rows.columns]
    ends = [int(end) for column in columns for end in (column.min(), column.max()) if end is not None]
    return all(abs(end + offset_ns) <= TIME_LIMIT_NS for end in ends)


def to_unix(trace: Trace) -> Trace | None:
    """Return `trace` on the unix clock; None where its recorder wrote no epoch that can be one.

    A trace without a record is on any clock.
    """
    if trace.clock == "unix":
        return trace
    if not trace.accounting.kept:
        return replace(trace, clock="unix", epoch_ns=None)
    epoch = trace.epoch_ns
    if epoch is None or not UNIX_NS < epoch < TIME_LIMIT_NS or not fits(trace, epoch):
        return None
    return replace(shift(trace, epoch), clock="unix", epoch_ns=None)
