"""Lists of decoded JSON values turned into columns: all at once if they have the expected type, else one by one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

TRAILING_INTEGER = re.compile(r"(-?[0-9]{1,20})\s*$")  # "7", "stream 7"
GROUPED = r"^[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?$"  # "1,234,567.8"
INT64 = 2**63
UINT64 = 2**64


class NameTable(dict[str, int]):
    """Names in order of first use: `names[text]` is the id of `text`, a new one when it has none yet."""

    def __missing__(self, name: str) -> int:
        self[name] = len(self)
        return len(self) - 1

    def ids(self, values: Sequence[str]) -> pl.Series:
        """Return the UInt32 ids of `values`."""
        return pl.Series(list(map(self.__getitem__, values)), dtype=pl.UInt32)

    def series(self) -> pl.Series:
        """Return the String names, indexed by id."""
        return pl.Series("name", list(self), dtype=pl.String)


def integers(values: Sequence[Any]) -> pl.Series:
    """Return `values` as Int64; null for those that are no integers. Ints beyond int64 keep their low 64 bits."""
    try:
        return (
            _texts_to_integers(values) if values and isinstance(values[0], str) else pl.Series(values, dtype=pl.Int64)
        )
    except (TypeError, OverflowError):
        return pl.Series([_signed(parse_integer(value)) for value in values], dtype=pl.Int64)


def unsigned(values: Sequence[Any]) -> pl.Series:
    """Return `values` as UInt64; null for those that are no integers in that range."""
    try:
        return pl.Series(values, dtype=pl.UInt64)
    except (TypeError, OverflowError):
        parsed = [parse_integer(value) for value in values]
        return pl.Series([v if v is not None and 0 <= v < UINT64 else None for v in parsed], dtype=pl.UInt64)


def numbers(values: Sequence[Any]) -> npt.NDArray[np.float64]:
    """Return one float64 for each of `values`; NaN for those that are no numbers."""
    try:
        column = np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        column = np.empty(0)
    if column.shape == (len(values),):
        return column
    return np.array([_parse_number(value) for value in values], dtype=np.float64)


def texts(values: Sequence[Any]) -> pl.Series:
    """Return `values` as String; null for those that are no texts."""
    try:
        return pl.Series(values, dtype=pl.String)
    except TypeError:
        return pl.Series([value if isinstance(value, str) else None for value in values], dtype=pl.String)


def positive(column: str) -> pl.Expr:
    """Return the integers in `column` as UInt64, null where they are not above zero: writers use 0 for "none"."""
    return pl.when(pl.col(column) > 0).then(pl.col(column)).cast(pl.UInt64)


def _texts_to_integers(values: Sequence[Any]) -> pl.Series:
    """Return the integer at the end of every text, as Int64.

    Raises `TypeError` when not all are texts, `OverflowError` for an integer beyond int64.
    """
    found = pl.Series(values, dtype=pl.String).str.extract(TRAILING_INTEGER.pattern)
    column = found.cast(pl.Int64, strict=False)
    if column.null_count() > found.null_count():
        raise OverflowError
    return column


def parse_integer(value: Any) -> int | None:
    """Return the integer in `value`: a number without fraction, or a text that ends in digits."""
    match value:
        case int():
            return int(value)
        case float() if value.is_integer():
            return int(value)
        case str() if found := TRAILING_INTEGER.search(value):
            return int(found[1])
    return None


def _parse_number(value: Any) -> float:
    """Return `value` as a float, NaN when it is no number."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return np.nan


def _signed(value: int | None) -> int | None:
    """Return `value` wrapped into int64, as the C++ that wrote it as unsigned would read it; null beyond 64 bits."""
    if value is None or not -INT64 <= value < UINT64:
        return None
    return value - UINT64 if value >= INT64 else value
