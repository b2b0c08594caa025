"""Raw Kineto columns of operators, runtime calls and Python functions made into HOST_EVENTS.

They are most of a trace. So each column is made separately, and its raw column is released: there are never two
tables of them in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from msgspec import Struct, field

from deepprof.collectors.importers.kineto.json_texts import FIRST, read_string
from deepprof.collectors.importers.kineto.kinds import HOST_KINDS
from deepprof.collectors.importers.kineto.kineto_columns import KinetoColumns, external_id, timed, trait
from deepprof.collectors.importers.value_columns import positive
from deepprof.collectors.trace import HOST_EVENTS, OPERANDS, STACKS, empty_table

if TYPE_CHECKING:
    import numpy.typing as npt

    Numbers = npt.NDArray[np.uint32]

RAW = {"process": "pid", "thread": "tid"}  # columns that have another name in the file


class HostTables(Struct, frozen=True, eq=False):
    """HOST_EVENTS, and the STACKS and OPERANDS of its rows."""

    events: pl.DataFrame = field(default_factory=lambda: empty_table(HOST_EVENTS))
    stacks: pl.DataFrame = field(default_factory=lambda: empty_table(STACKS))
    operands: pl.DataFrame = field(default_factory=lambda: empty_table(OPERANDS))


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
    return _add_texts(source, pl.DataFrame(columns), rows, order)


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


def _add_texts(
    source: KinetoColumns, events: pl.DataFrame, rows: dict[str, pl.DataFrame], order: pl.Series
) -> HostTables:
    """Return the host tables for `events`, with the operands and call stacks of operators where these were read."""
    if "op" not in rows:
        return HostTables(events)
    found = _Operators(source, rows["op"]["at"].to_numpy(), _find_operators(rows, order))
    return HostTables(*found.add_stacks(events), operands=found.operands())


def _find_operators(rows: dict[str, pl.DataFrame], order: pl.Series) -> Numbers:
    places = np.empty(len(order), np.uint32)
    places[order.to_numpy()] = np.arange(len(order), dtype=np.uint32)
    first = sum(found.height for kind, found in rows.items() if HOST_KINDS.index(kind) < HOST_KINDS.index("op"))
    return places[first : first + rows["op"].height]


class _Operators(Struct, frozen=True):
    """The operators that became rows: `at`, the position of every among its kind, and `event`, its row."""

    source: KinetoColumns
    at: Numbers
    event: Numbers

    def numbers(self, column: str) -> Numbers:
        """Return the number of the text of every operator in a column; 0 for all where the column was not read."""
        columns = self.source.columns
        if not columns.has("op", column):
            return np.zeros(len(self.at), np.uint32)
        return columns.take("op", column).to_numpy()[self.at]

    def operands(self) -> pl.DataFrame:
        """Return OPERANDS of the operators that have shapes, types or values."""
        columns = {name: self.numbers(name) for name in ("dims", "old_dims", "dtypes", "values", "strides")}
        old = columns.pop("old_dims")
        columns["dims"] = np.where(columns["dims"] < FIRST, old, columns["dims"])
        some = np.flatnonzero(np.any([columns[name] >= FIRST for name in ("dims", "dtypes", "values")], axis=0))
        if not len(some):
            return empty_table(OPERANDS)
        kept, texts = some[np.argsort(self.event[some])], self.source.columns.json.table()
        found = {name: texts.gather(pl.Series(numbers[kept])) for name, numbers in columns.items()}
        return pl.DataFrame({"event": self.event[kept], **found}).select(list(OPERANDS)).cast(dict(OPERANDS))  # type: ignore[arg-type]

    def add_stacks(self, events: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return `events` with the `stack_id` of the operators that have a call stack, and STACKS in order of use."""
        numbers = self.numbers("stack")
        texts = self.source.columns.json.convert(numbers, read_string, pl.String())
        found = pl.DataFrame({"event": self.event, "frames": texts}).filter(pl.col("frames") != "").sort("event")
        stacks = found.unique("frames", maintain_order=True).select("frames").with_row_index("stack_id")
        if stacks.is_empty():
            return events, empty_table(STACKS)
        places = found.join(stacks, on="frames", how="left", maintain_order="left")
        ids = np.full(events.height, stacks.height, np.uint32)
        ids[places["event"].to_numpy()] = places["stack_id"].to_numpy()
        has = pl.Series(ids < stacks.height)
        return events.with_columns(pl.when(has).then(pl.Series(ids)).alias("stack_id")), stacks
