"""Counts of dropped and flagged records, made where this happens and the same way for every format.

`Accounting` compares these counts with the records read, so that a record lost without a count is detected.
"""

from __future__ import annotations

from collections import Counter

import polars as pl
from msgspec import Struct, field

# 16 TiB: more than any machine can copy at once, and half a million of them still add up within int64.
NBYTES_LIMIT = 2**44


class Tally(Struct, frozen=True):
    """Counts of records by reason: `dropped` ones are in no table, `flagged` ones are kept and need a note."""

    dropped: Counter[str] = field(default_factory=Counter)
    flagged: Counter[str] = field(default_factory=Counter)

    def keep(self, rows: pl.DataFrame, condition: pl.Expr, reason: str) -> pl.DataFrame:
        """Return the rows that meet `condition`; the others are dropped for `reason`."""
        meets = rows.select(condition.fill_null(False)).to_series()
        if meets.all():  # nearly always true; then no copy is made
            return rows
        self.dropped[reason] += len(meets) - int(meets.sum())
        return rows.filter(meets)

    def bound_nbytes(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return `rows` with null for an `nbytes` that is negative or beyond `NBYTES_LIMIT`, so that sums cannot wrap.

        Such rows are flagged as `invalid-bytes`.
        """
        sound = pl.col("nbytes").is_between(0, NBYTES_LIMIT)
        if wrong := int(rows.select((~sound).sum()).item() or 0):
            self.flagged["invalid-bytes"] += wrong
        return rows.with_columns(nbytes=pl.when(sound).then("nbytes"))


def flag_events(device: pl.DataFrame, host: pl.DataFrame) -> Counter[str]:
    """Return how many of the sorted device rows have no launch record, overlap their predecessor or have no length."""
    calls = host.select("category", "correlation").filter(pl.col("category") == "runtime")
    launches = calls["correlation"].drop_nulls().unique()
    launched = device.filter(pl.col("activity") != "sync")["correlation"].is_in(launches.implode()).fill_null(False)
    places = device.select("activity", "device", "context", "stream", "start_ns", "end_ns")
    kernels = places.filter(pl.col("activity") == "kernel").select(
        zero=pl.col("start_ns") == pl.col("end_ns"),
        overlaps=pl.col("start_ns") < pl.col("end_ns").shift(1).over("device", "context", "stream"),
    )
    counts = {"unlinked": ~launched, "zero-duration": kernels["zero"], "overlapping": kernels["overlaps"]}
    return +Counter({flag: int(marks.sum() or 0) for flag, marks in counts.items()})
