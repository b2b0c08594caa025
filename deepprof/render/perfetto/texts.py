"""Columns to JSON text, as expressions: no event becomes a Python object on its way into the file."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

Int64s = npt.NDArray[np.int64]


def microseconds(ns: Int64s) -> pl.Series:
    """Return non-negative nanoseconds as the text of microseconds with three decimals.

    Readers multiply the double by 1000, and many truncate the product (517.805 becomes 517804 ns). Where that loses a
    nanosecond, and with it perhaps the nesting, a fourth decimal raises the number above the edge.
    """
    lost = np.trunc(ns / 1000 * 1000).astype(np.int64) < ns  # polars multiplies by 0.001 instead, which is not the same
    parts = pl.DataFrame({"whole": ns // 1000, "rest": ns % 1000, "more": np.where(lost, "1", "")})
    decimals = pl.col("rest").cast(pl.String).str.zfill(3)
    return parts.select(pl.concat_str(pl.col("whole").cast(pl.String), pl.lit("."), decimals, "more")).to_series()


def slice_text(process: int, category: pl.Expr, args: Mapping[str, pl.Expr]) -> pl.Expr:
    """Return complete events ("X") of rows with `tid`, and `ts`, `dur` and `name` as JSON text."""
    return pl.concat_str(
        pl.lit(f'{{"ph":"X","pid":{process},"tid":'),
        pl.col("tid").cast(pl.String),
        pl.lit(',"ts":'),
        pl.col("ts"),
        pl.lit(',"dur":'),
        pl.col("dur"),
        pl.lit(',"cat":"'),
        category.cast(pl.String),
        pl.lit('","name":'),
        pl.col("name"),
        pl.lit(',"args":{'),
        _arguments(args),
        pl.lit("}}"),
    ).alias("text")


def _arguments(args: Mapping[str, pl.Expr]) -> pl.Expr:
    """Return the members of an object, without those whose value is null."""
    members = [pl.concat_str(pl.lit(f'"{key}":'), value) for key, value in args.items()]
    return pl.concat_str(members, separator=",", ignore_nulls=True) if members else pl.lit("")


def counter_text(process: int) -> pl.Expr:
    """Return counter events of rows with `ts` and `name` as JSON text, and `value`."""
    return pl.concat_str(
        pl.lit(f'{{"ph":"C","pid":{process},"ts":'),
        pl.col("ts"),
        pl.lit(',"name":'),
        pl.col("name"),
        pl.lit(',"args":{"value":'),
        pl.col("value").cast(pl.String),
        pl.lit("}}"),
    ).alias("text")


def arrow_text(phase: str, process: int, end: str) -> pl.Expr:
    """Return the start ("s") or the end ("f") of arrows: rows with `id`, and `tid` and `ts` of `end`."""
    return pl.concat_str(
        pl.lit(f'{{"ph":"{phase}","bp":"e","cat":"launch","name":"launch","pid":{process},"tid":'),
        pl.col(f"{end}_tid").cast(pl.String),
        pl.lit(',"id":'),
        pl.col("id").cast(pl.String),
        pl.lit(',"ts":'),
        pl.col(f"{end}_ts"),
        pl.lit("}"),
    ).alias("text")
