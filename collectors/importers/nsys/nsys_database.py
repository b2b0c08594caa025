"""The interface through which nsys' tables are read, from a database or from a directory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import polars as pl


class NsysDatabase(Protocol):
    """The tables of one capture; every method raises `TraceError` when they are damaged."""

    @property
    def tables(self) -> frozenset[str]:
        """Return the names of the tables."""
        ...

    @property
    def views(self) -> frozenset[str]:
        """Return the names of the views, which look like tables."""
        ...

    def integers(self, table: str, columns: Mapping[str, int | None]) -> pl.DataFrame:
        """Return `columns` of `table` as Int64; each name maps to the default value of a column that it lacks."""
        ...

    def texts(self, table: str, column: str) -> pl.Series:
        """Return `column` of `table` as String, all null when the table lacks it."""
        ...

    def has_values(self, table: str, column: str) -> bool:
        """Return whether any row of `table` has a value in `column`."""
        ...
