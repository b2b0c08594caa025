"""What the code that reads nsys' tables asks of the thing that holds them, be it a database or a directory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import polars as pl

__all__ = ["NsysDatabase"]


class NsysDatabase(Protocol):
    """The tables of one capture; every method raises `TraceError` when they are damaged."""

    @property
    def tables(self) -> frozenset[str]:
        """Return the names of the tables."""
        ...

    @property
    def views(self) -> frozenset[str]:
        """Return the names of what looks like a table and is none."""
        ...

    def integers(self, table: str, columns: Mapping[str, int | None]) -> pl.DataFrame:
        """Return `columns` of `table` as Int64, each with the value that stands in for a column that it lacks."""
        ...

    def texts(self, table: str, column: str) -> pl.Series:
        """Return `column` of `table` as String, all null when the table lacks it."""
        ...

    def has_values(self, table: str, column: str) -> bool:
        """Return whether any row of `table` has a value in `column`."""
        ...
