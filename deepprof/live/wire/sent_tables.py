"""The tables that are sent; the others stay in files and stores, and their records are counted as not sent."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import polars as pl
from msgspec.structs import replace

from deepprof.collectors.time_range import SIDE_TABLES
from deepprof.collectors.trace import RECORD_TABLES, TABLES, Accounting, Trace

LOCAL_TABLES = ("segments", "failed_allocations", "allocations", "accesses", "instructions", "event_instructions")
SENT_TABLES: Mapping[str, pl.Schema] = MappingProxyType({t: s for t, s in TABLES.items() if t not in LOCAL_TABLES})
SENT_RECORDS = tuple(table for table in RECORD_TABLES if table in SENT_TABLES)
SENT_SIDES: Mapping[str, str] = MappingProxyType({s: of for s, of in SIDE_TABLES.items() if s in SENT_TABLES})
NOT_SENT = "not-sent"


def as_sent(trace: Trace) -> Trace:
    """Return the trace without rows of `LOCAL_TABLES`; records among them are dropped as `not-sent`."""
    local = {table: getattr(trace, table) for table in LOCAL_TABLES}
    if not any(rows.height for rows in local.values()):
        return trace
    lost = sum(rows.height for table, rows in local.items() if table in RECORD_TABLES)
    counts = trace.accounting
    dropped = {**counts.dropped, NOT_SENT: counts.dropped.get(NOT_SENT, 0) + lost} if lost else counts.dropped
    bare = {table: rows.clear() for table, rows in local.items()}
    return replace(trace, accounting=Accounting(counts.read, counts.kept - lost, dropped, counts.flagged), **bare)
