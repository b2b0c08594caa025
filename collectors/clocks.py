"""Moving a trace to another clock: one offset is added to every time of the record table."""

from __future__ import annotations

from typing import Literal

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from deepprof.collectors.times import EARLIEST_UNIX_NS, TIME_LIMIT_NS
from deepprof.collectors.trace import RECORD_TABLES, Trace

TIMES = ("start_ns", "end_ns", "time_ns")


def shift(trace: Trace, offset_ns: int) -> Trace:
    """Return `trace` with `offset_ns` added to every time; durations and all other values stay the same.

    Raises `ValueError` when a time would leave ±`TIME_LIMIT_NS`.
    """
    if not offset_ns:
        return trace
    if not fits(trace, offset_ns):
        raise ValueError(f"an offset of {offset_ns} ns takes times beyond {TIME_LIMIT_NS}")
    tables = {table: _moved(getattr(trace, table), offset_ns) for table in RECORD_TABLES}
    breaks_ns = tuple(time + offset_ns for time in trace.breaks_ns)
    return replace(trace, breaks_ns=breaks_ns, **tables)


def _moved(rows: pl.DataFrame, offset_ns: int) -> pl.DataFrame:
    """Return `rows` with `offset_ns` added to their times."""
    return rows.with_columns(pl.col(time) + offset_ns for time in TIMES if time in rows.columns)


def fits(trace: Trace, offset_ns: int) -> bool:
    """Return whether every time of `trace`, moved by `offset_ns`, stays within ±`TIME_LIMIT_NS`."""
    return within_limit(extremes(trace), offset_ns)


def extremes(trace: Trace) -> tuple[int, int] | None:
    """Return the first and the last of all times of `trace`; None if it has no times."""
    tables = [getattr(trace, table) for table in RECORD_TABLES]
    columns = [rows[time] for rows in tables for time in TIMES if time in rows.columns]
    ends = [int(end) for column in columns for end in (column.min(), column.max()) if end is not None]
    return (min(ends), max(ends)) if ends else None


def within_limit(times: tuple[int, int] | None, offset_ns: int) -> bool:
    """Return whether both `times`, moved by `offset_ns`, stay within ±`TIME_LIMIT_NS`; True for None."""
    return times is None or all(abs(time + offset_ns) <= TIME_LIMIT_NS for time in times)


class TraceClock(Struct, frozen=True):
    """What is known of a trace's clock; `times` are the first and the last of all times, None without any record."""

    clock: Literal["unix", "session"]
    epoch_ns: int | None
    times: tuple[int, int] | None

    @property
    def lead_ns(self) -> int | None:
        """The offset from the trace's times to unix time; None if its recorder wrote no usable epoch.

        It is 0 for a trace without records, which fits any clock.
        """
        if self.clock == "unix" or self.times is None:
            return 0
        known = self.epoch_ns is not None and EARLIEST_UNIX_NS < self.epoch_ns < TIME_LIMIT_NS
        return self.epoch_ns if known and within_limit(self.times, self.epoch_ns or 0) else None

    def on_unix(self) -> TraceClock:
        """Return the clock of the same trace on unix time; `lead_ns` must not be None."""
        return self if self.clock == "unix" else TraceClock("unix", None, _moved_times(self.times, self.lead_ns or 0))


def _moved_times(times: tuple[int, int] | None, offset_ns: int) -> tuple[int, int] | None:
    """Return the two times with `offset_ns` added."""
    return None if times is None else (times[0] + offset_ns, times[1] + offset_ns)


def read_clock(trace: Trace) -> TraceClock:
    """Return the data on the clock of `trace`."""
    return TraceClock(trace.clock, trace.epoch_ns, extremes(trace))


def to_unix(trace: Trace) -> Trace | None:
    """Return `trace` on the unix clock; None if its recorder wrote no usable epoch."""
    lead = read_clock(trace).lead_ns
    if trace.clock == "unix" or lead is None:
        return trace if trace.clock == "unix" else None
    return replace(shift(trace, lead), clock="unix", epoch_ns=None)
