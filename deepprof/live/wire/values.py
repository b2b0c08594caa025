"""Checks of the values in a batch's tables: times, sizes, order, and references between tables."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from deepprof.collectors.context_nodes import find_fault
from deepprof.collectors.importers.flags import NBYTES_LIMIT
from deepprof.collectors.times import TIME_LIMIT_NS
from deepprof.collectors.trace import CONTEXT_NODES, CONTEXT_SUMS, TABLES, check_table, empty_table
from deepprof.live.wire.errors import WireError
from deepprof.live.wire.sent_tables import SENT_SIDES

LIMITS = {
    "start_ns": TIME_LIMIT_NS,
    "end_ns": TIME_LIMIT_NS,
    "time_ns": TIME_LIMIT_NS,
    "nbytes": NBYTES_LIMIT,
}  # of a value's absolute amount: sums and differences stay inside int64
OPEN_ENDED = "annotations"  # the table whose ranges may never have been closed


def check_values(field: str, table: str, tables: Mapping[str, pl.DataFrame], names: int) -> None:
    """Raise `WireError` unless the rows of `table` are possible in a trace that has `names` names.

    `field` is the table's place in the message; `tables` are those of the batch.
    """
    rows = tables[table]
    try:
        check_table(table, rows, TABLES[table], names)
    except ValueError as error:
        raise WireError(field, str(error)) from error
    for column in LIMITS.keys() & rows.schema.keys():
        _check_amounts(f"{field}.{column}", rows[column], LIMITS[column])
    if "end_ns" in rows.schema:
        _check_ends(f"{field}.end_ns", table, rows)
    if table in SENT_SIDES:
        _check_events(f"{field}.event", rows["event"], tables.get(SENT_SIDES[table]))
    if table == "context_nodes" or (table == "context_sums" and "context_nodes" not in tables):
        _check_contexts(field, tables)


def _check_amounts(field: str, values: pl.Series, limit: int) -> None:
    """Raise `WireError` for a value beyond ± `limit`."""
    for extreme in (values.min(), values.max()):
        if isinstance(extreme, int) and not -limit <= extreme <= limit:
            raise WireError(field, f"{extreme} is beyond {limit}")


def _check_ends(field: str, table: str, rows: pl.DataFrame) -> None:
    """Raise `WireError` for ends that are missing or come before their start."""
    missing = rows["end_ns"].null_count()
    if missing and table != OPEN_ENDED:
        raise WireError(field, f"{missing} rows have none")
    backward = int((rows["end_ns"] < rows["start_ns"]).sum())
    if backward:
        raise WireError(field, f"{backward} rows end before they start")


def _check_events(field: str, events: pl.Series, rows: pl.DataFrame | None) -> None:
    """Raise `WireError` unless every event is a row of the table that it refers to; the last event is the greatest."""
    height = rows.height if rows is not None else 0
    last = events.max()
    if events.null_count() or not isinstance(last, int) or last >= height:
        raise WireError(field, f"refers to a row beyond the {height} of this batch")


def _check_contexts(field: str, tables: Mapping[str, pl.DataFrame]) -> None:
    """Raise `WireError` unless the batch's contexts are a tree that has all contexts of its sums."""
    nodes, sums = tables.get("context_nodes"), tables.get("context_sums")
    fault = find_fault(
        empty_table(CONTEXT_NODES) if nodes is None else nodes, empty_table(CONTEXT_SUMS) if sums is None else sums
    )
    if fault:
        raise WireError(field, fault)
