"""Schemas that state what their columns mean, and how tables join: declared once, checked, and printed as a document.

The unit of a number is in its column's name: `_ns`, `nbytes` and `_bytes`, `_ratio`, `_per_s`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

import polars as pl
from msgspec import Struct

Columns = Mapping[str, tuple[pl.DataType, str]]  # data type and meaning
ROW = "(row number)"  # in place of a column: rows of the other table are counted from 0


class TableSchema(pl.Schema):
    """A schema with the meaning of one `row`, and the `meanings` of its columns by name."""

    row: str = ""
    meanings: Mapping[str, str] = {}

    @classmethod
    def of(cls, row: str, columns: Columns) -> Self:
        """Return the schema of columns that are given with their data type and meaning."""
        schema = cls({name: dtype for name, (dtype, _) in columns.items()})
        schema.row, schema.meanings = row, {name: meaning for name, (_, meaning) in columns.items()}
        return schema

    @classmethod
    def side_by_side(cls, row: str, parts: Iterable[TableSchema]) -> Self:
        """Return the schema of tables side by side; of a column that several have, the first one's meaning."""
        columns: dict[str, tuple[pl.DataType, str]] = {}
        for part in parts:
            columns = {name: (dtype, part.meanings[name]) for name, dtype in part.items()} | columns
        order = dict.fromkeys(name for part in parts for name in part)
        return cls.of(row, {name: columns[name] for name in order})


class TableJoin(Struct, frozen=True):
    """Two tables that join: rows of `left` with those of `right` whose columns of the pairs `on` are equal.

    A pair is (column of left, column of right); `ROW` in place of the second is the row's number.
    """

    left: str
    right: str
    on: tuple[tuple[str, str], ...]
    meaning: str
