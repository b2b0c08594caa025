"""What is given to which method of a tool: record tables, filtered, named, and cut into batches of bounded size."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import polars as pl
from msgspec import Struct

from deepprof.collectors.trace import Trace
from deepprof.metrics.names import with_names

BATCH_ROWS = 1 << 17  # of a table at a time


class ToolHook(Struct, frozen=True):
    """A method for batches and the one for single rows: those of `table` whose `column` is one of `values`."""

    batches: str
    each: str
    table: str
    column: str | None = None
    values: tuple[str, ...] = ()

    def select(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that the hook gets."""
        return rows if self.column is None else rows.filter(pl.col(self.column).is_in(self.values))


RECORD_HOOKS = (
    ToolHook("on_kernels", "on_kernel", "device_events", "activity", ("kernel", "graph")),
    ToolHook("on_copies", "on_copy", "device_events", "activity", ("memcpy", "memset")),
    ToolHook("on_synchronisations", "on_synchronisation", "device_events", "activity", ("sync",)),
    ToolHook("on_memory", "on_memory_event", "memory_events"),
    ToolHook("on_operators", "on_operator", "host_events", "category", ("op",)),
    ToolHook("on_calls", "on_call", "host_events", "category", ("runtime",)),
    ToolHook("on_ranges", "on_range", "annotations"),
)


def cut_batches(trace: Trace, hook: ToolHook, batch_rows: int = BATCH_ROWS) -> Iterator[pl.DataFrame]:
    """Yield the records of one rank that `hook` gets, with `rank` and `name`, in frames of at most this many rows."""
    table: pl.DataFrame = getattr(trace, hook.table)
    for part in table.iter_slices(batch_rows):
        rows = hook.select(part)
        if rows.height:
            yield _name_rows(rows, trace)


def _name_rows(rows: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    rank = pl.lit(trace.rank or 0, pl.Int64).alias("rank")
    if "name_id" not in rows.columns:
        return rows.with_columns(rank, pl.lit(None, pl.String).alias("name"))
    return with_names(rows.with_columns(rank), trace.names)


@cache
def _row_type(columns: tuple[str, ...]) -> Any:
    return namedtuple("EventRow", columns)


def read_rows(frame: pl.DataFrame) -> Iterable[Any]:
    """Return the rows of a frame one by one, their columns as attributes."""
    make = _row_type(tuple(frame.columns))._make
    return map(make, zip(*(column.to_list() for column in frame), strict=True))
