"""The rows of a trace, from what the allocator did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from deepprof.collectors.importers.torch_snapshot.history import AllocatorHistory
from deepprof.collectors.importers.torch_snapshot.snapshot_stacks import StackGroups
from deepprof.collectors.trace import (
    ALLOCATIONS,
    DEVICES,
    FAILED_ALLOCATIONS,
    MEMORY_EVENTS,
    SEGMENTS,
)


def write_rows(groups: StackGroups, history: AllocatorHistory, *, details: bool) -> Mapping[str, pl.DataFrame]:
    """Return the tables of a trace by name; without `details` the call stacks of failures alone."""
    memory, failed = history.memory, history.failed
    many = memory.height if details else 0
    stacks, ids = groups.number(pl.concat([memory["stack"].head(many), failed["stack"]]))
    of_memory, of_failed = ids.head(many) if details else None, ids.slice(many)
    beside = memory.select("stream", stack_id=pl.lit(of_memory)).with_row_index("event")
    return {
        "memory_events": _shape(memory.rename({"addr": "address"}), MEMORY_EVENTS),
        "segments": _shape(history.segments.rename({"addr": "address"}), SEGMENTS),
        "failed_allocations": _shape(
            failed.with_columns(nbytes="size", free_nbytes=_unsigned("device_free"), stack_id=pl.lit(of_failed)),
            FAILED_ALLOCATIONS,
        ),
        "allocations": _shape(beside if details else beside.clear(), ALLOCATIONS),
        "devices": _list_devices(history),
        "stacks": stacks,
    }


def _list_devices(history: AllocatorHistory) -> pl.DataFrame:
    """Return DEVICES: those that have memory."""
    places = pl.concat([rows["device"] for rows in (history.memory, history.segments, history.failed)])
    return _shape(pl.DataFrame({"device": places.unique().sort()}), DEVICES)


def _unsigned(column: str) -> pl.Expr:
    """Return the numbers of a column, null where they are below zero."""
    return pl.when(pl.col(column) >= 0).then(pl.col(column))


def _shape(rows: pl.DataFrame, schema: Mapping[str, Any]) -> pl.DataFrame:
    """Return the rows with the columns of a schema; those that they lack are null. Addresses keep their 64 bits."""
    absent = [pl.lit(None).alias(column) for column in schema if column not in rows.columns]
    known = rows.with_columns(absent).select(list(schema))
    if "address" in schema:
        known = known.with_columns(pl.col("address").reinterpret(signed=False))
    return known.cast(dict(schema))  # type: ignore[arg-type]
