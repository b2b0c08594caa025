"""Raw Kineto columns of operators, runtime calls and Python functions made into HOST_EVENTS.

They are most of a trace. So each column is made separately, and its raw column is released: there are never two
tables of them in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from deepprof.collectors.importers.kineto.kinds import HOST_KINDS
from deepprof.collectors.importers.kineto.kineto_columns import KinetoColumns, external_id, timed, trait
from deepprof.collectors.importers.value_columns import positive
from deepprof.collectors.trace import HOST_EVENTS, OPERANDS, STACKS, empty_table

if TYPE_CHECKING:
    import numpy.typing as npt

RAW = {"process": "pid", "thread": "tid"}  # columns that have another name in the file


@dataclass(frozen=True, slots=True)
class HostTables:
    """HOST_EVENTS, and the OPERANDS and STACKS of its rows."""

    events: pl.DataFrame = field(default_factory=lambda: empty_table(HOST_EVENTS))
    operands: pl.DataFrame = field(default_factory=lambda: empty_table(OPERANDS))
    stacks: pl.DataFrame = field(default_factory=lambda: empty_table(STACKS))


def host_tables(source: KinetoColumns) -> HostTables:
    """Return the host tables of `source`, and consume its columns; old ranges among the operators are left out."""
    rows = {kind: _select_rows(source, kind) for kind in HOST_KINDS if source.columns.heights[kind]}
    if not rows:
        return HostTables()
    starts = np.concatenate([found["start_ns"].to_numpy() for found in rows.values()])
    order = pl.Series(np.argsort(starts, kind="stable").astype(np.uint32))
    columns = {}
    for column, dtype in HOST_EVENTS.items():
        whole = pl.concat([_host_column(source, kind, found, column).cast(dtype) for kind, found in rows.items()])
        columns[column] = whole.gather(order) if whole.null_count() < len(whole) else whole
    return _add_details(source, pl.DataFrame(columns), rows, order)


def _select_rows(source: KinetoColumns, kind: str) -> pl.DataFrame:
    """Return `start_ns` and `end_ns` of the events of `kind` that become rows, and `at`, the position of each."""
    columns = source.columns
    rows = pl.DataFrame({"ts": columns.take(kind, "ts"), "dur": columns.take(kind, "dur")}).with_row_index("at")
    if kind == "op":
        old_range = columns.peek(kind, "name_id").to_frame().select(trait(source.traits["range"]))
        rows = rows.filter(~old_range.to_series())
    return timed(rows, source)


def _host_column(source: KinetoColumns, kind: str, rows: pl.DataFrame, column: str) -> pl.Series:
    """Return a column of HOST_EVENTS for the `rows` of one kind."""
    if column in rows.columns:
        return rows[column]
    if column == "category":
        return pl.Series([kind], dtype=HOST_EVENTS["category"]).new_from_index(0, rows.height)
    raw = _raw_column(source, kind, column)
    if raw is None:
        return pl.repeat(None, rows.height, dtype=HOST_EVENTS[column], eager=True)
    return raw if len(raw) == rows.height else raw.gather(rows["at"])


def _raw_column(source: KinetoColumns, kind: str, column: str) -> pl.Series | None:
    """Return a column for all events of `kind`, or None where this kind has none."""
    columns = source.columns
    if column == "external_id" and columns.has(kind, "old_external_id"):
        both = pl.DataFrame([columns.take(kind, "external_id"), columns.take(kind, "old_external_id")])
        return both.select(external_id()).to_series()
    raw = RAW.get(column, column)
    if not columns.has(kind, raw):
        return None
    values = columns.take(kind, raw)
    ids = column in {"correlation", "external_id"}
    return values.to_frame().select(positive(raw)).to_series() if ids else values


def _add_details(
    source: KinetoColumns, events: pl.DataFrame, rows: dict[str, pl.DataFrame], order: pl.Series
) -> HostTables:
    """Return the host tables for `events`, with the details of operators where some were read."""
    details = source.columns.extra_rows("op")
    if details.is_empty() or "dims" not in details.columns:
        return HostTables(events)
    places = np.empty(len(order), np.uint32)
    places[order.to_numpy()] = np.arange(len(order), dtype=np.uint32)
    first = sum(found.height for kind, found in rows.items() if HOST_KINDS.index(kind) < HOST_KINDS.index("op"))
    ops = (
        rows["op"]
        .select(position=pl.col("at").cast(pl.Int64))
        .with_columns(event=pl.Series(places[first : first + rows["op"].height]))
    )
    found = details.join(ops, on="position").sort("event")
    found = found.with_columns(dims=pl.coalesce("dims", "old_dims"), stack_id=_number_stacks(found["stack"]))
    return HostTables(_with_stacks(events, found), operands(found), stacks(found))


def _with_stacks(events: pl.DataFrame, details: pl.DataFrame) -> pl.DataFrame:
    """Return `events` with the `stack_id` of those that have one."""
    known = details.drop_nulls("stack_id")
    column = np.zeros(events.height, np.uint32)
    has: npt.NDArray[np.bool_] = np.zeros(events.height, np.bool_)
    column[known["event"].to_numpy()] = known["stack_id"].to_numpy()
    has[known["event"].to_numpy()] = True
    return events.with_columns(pl.when(pl.Series(has)).then(pl.Series(column)).alias("stack_id"))


def operands(details: pl.DataFrame) -> pl.DataFrame:
    """Return OPERANDS of the operators that have shapes, types or values."""
    rows = details.filter(pl.any_horizontal(pl.col("dims", "dtypes", "values").is_not_null()))
    return rows.select(list(OPERANDS)).cast(dict(OPERANDS))  # type: ignore[arg-type]


def stacks(details: pl.DataFrame) -> pl.DataFrame:
    """Return STACKS of the operators that have one, ordered by id."""
    rows = details.drop_nulls("stack_id").select("stack_id", frames="stack")
    return rows.unique("stack_id").sort("stack_id")


def _number_stacks(texts: pl.Series) -> pl.Series:
    """Return an id for each distinct non-empty text, in order of first use."""
    texts = texts.replace({"": None})
    distinct = texts.drop_nulls().unique(maintain_order=True)
    return texts.replace_strict(distinct, range(len(distinct)), default=None, return_dtype=pl.UInt32)
