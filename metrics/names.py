"""Names of events, and coarse ones: variants of one kernel (data type, tile, vector width) under one name."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

BRACKETS = r"<[^<>]*>"  # innermost template arguments; applied until none is left
UNNAMED = "(anonymous namespace)::"  # its brackets open no parameter list
DEPTH = 12  # levels of nested template arguments, the most that real names have
TAIL = r"\(.*$"  # the parameter list
SIZES = r"\d+(x\d+)*"  # tiles, vector widths, versions


def with_names(rows: pl.DataFrame, names: pl.Series) -> pl.DataFrame:
    """Return rows with a `name_id` column with their `name` as well."""
    return rows.with_columns(name=names.gather(rows["name_id"]))


def rows_named(rows: pl.DataFrame, names: pl.Series, pattern: str) -> pl.DataFrame:
    """Return the rows with a `name_id` column whose name contains `pattern`; every name is matched once."""
    return rows.filter(pl.Series(are_named(names, rows["name_id"], pattern))) if rows.height else rows


def are_named(names: pl.Series, name_ids: pl.Series, pattern: str) -> npt.NDArray[np.bool_]:
    """Return which of the names, given by their ids, contain `pattern`; every name is matched once."""
    numbers, found = name_ids.to_numpy(), np.zeros(len(names), np.bool_)
    used = np.flatnonzero(np.bincount(numbers, minlength=len(names)))
    matched = names.gather(used).str.contains(pattern)
    found[used] = (matched.fill_null(value=False) if matched.null_count() else matched).to_numpy()
    named: npt.NDArray[np.bool_] = found[numbers]
    return named


def coarse_ids(names: pl.Series) -> pl.Series:
    """Return for every name id the id of the first name that is the same except for template arguments and numbers."""
    coarse = pl.col("name").fill_null("").str.replace_all(UNNAMED, "", literal=True)
    for _ in range(DEPTH):
        coarse = coarse.str.replace_all(BRACKETS, "")
    coarse = coarse.str.replace(TAIL, "").str.replace_all(SIZES, "#")
    table = names.to_frame("name").select(coarse=coarse).with_row_index("name_id")
    return table.select(pl.col("name_id").min().over("coarse"))["name_id"]
