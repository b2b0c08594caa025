"""Records that are kept and deserve a word in the accounting, counted the same way for every format."""

from __future__ import annotations

import polars as pl

__all__ = ["flag_events"]


def flag_events(device: pl.DataFrame, host: pl.DataFrame) -> dict[str, int]:
    """Return how many of the sorted device rows have no launch record, overlap their predecessor or last no time."""
    launches = host.filter(pl.col("category") == "runtime")["correlation"].drop_nulls().unique()
    launched = device.filter(pl.col("activity") != "sync")["correlation"].is_in(launches.implode()).fill_null(False)
    kernels = device.filter(pl.col("activity") == "kernel").select(
        zero=pl.col("start_ns") == pl.col("end_ns"),
        overlaps=pl.col("start_ns") < pl.col("end_ns").shift(1).over("device", "stream"),
    )
    counts = {"unlinked": ~launched, "zero-duration": kernels["zero"], "overlapping": kernels["overlaps"]}
    return {flag: total for flag, marks in counts.items() if (total := int(marks.sum() or 0))}
