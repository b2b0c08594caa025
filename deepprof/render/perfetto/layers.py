"""A layer: one table of slices on named tracks, and how its columns are written to the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import polars as pl
from msgspec import Struct, field

SLICES = pl.Schema({"track": pl.UInt32(), "start_ns": pl.Int64(), "end_ns": pl.Int64(), "name_id": pl.UInt32()})


class SliceLayer(Struct, frozen=True, eq=False):
    """Slices of one process.

    `rows` has the columns of `SLICES` and those that `category` and `args` use: `track` is the number of a label in
    `tracks`, `name_id` that of a name in `names`, and a slice without an end is a mark. An argument is an expression of
    JSON text; where it is null the slice has no such argument.
    """

    tracks: Sequence[str]
    rows: pl.DataFrame
    names: pl.Series
    category: pl.Expr
    args: Mapping[str, pl.Expr] = field(default_factory=dict)


def as_text(values: pl.Series) -> pl.Series:
    """Return each text as JSON; a missing one is empty."""
    texts = [msgspec.json.encode(value).decode() for value in values.fill_null("")]
    return pl.Series(values.name, texts, dtype=pl.String)


def number(column: str, *, unless: int | None = None) -> pl.Expr:
    """Return an argument from a column of numbers or truth values, absent where it is null, `unless` or not finite."""
    value = pl.col(column)
    wanted = value.cast(pl.Float64).is_finite() if unless is None else value != unless
    return pl.when(wanted).then(value.cast(pl.String))


def word(column: str) -> pl.Expr:
    """Return an argument from a column of DeepProf's own words, which need no escape."""
    return pl.concat_str(pl.lit('"'), pl.col(column).cast(pl.String), pl.lit('"')).alias(column)
