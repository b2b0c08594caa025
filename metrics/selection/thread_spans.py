"""Stretches of time on threads, or on streams: which rows are in them, and which overlap them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

Bools = npt.NDArray[np.bool_]

THREAD = ("process", "thread")
NO_NUMBER = -1  # of a process or thread that is not recorded: nulls would not join
FOREVER = (1 << 63) - 1  # when a range ends that was never closed


def merge_spans(rows: pl.DataFrame, by: Sequence[str] = THREAD) -> pl.DataFrame:
    """Return the time that rows cover on each thread as disjoint spans: `by`, `start_ns` and `end_ns`, sorted by start.

    Spans that touch are one. A row without an end lasts for ever, one without length covers nothing.
    """
    known = _read_times(rows, by).filter(pl.col("end_ns") > pl.col("start_ns")).sort(*by, "start_ns")
    reach = pl.col("end_ns").cum_max().shift(1).over(by)
    begins = (pl.col("start_ns") > reach).fill_null(value=True)
    spans = known.group_by(*by, span=begins.cum_sum(), maintain_order=True)
    merged = spans.agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    return merged.drop("span").sort("start_ns", maintain_order=True)


def lie_in(rows: pl.DataFrame, spans: pl.DataFrame, by: Sequence[str] = THREAD) -> Bools:
    """Return which rows begin in a span of their thread, but for those that begin with it and end after it."""
    known = _read_times(rows, by).with_row_index("row").sort("start_ns", maintain_order=True)
    around = spans.select(*by, "start_ns", begin="start_ns", until="end_ns").sort("start_ns")
    found = known.join_asof(around, on="start_ns", by=list(by), check_sortedness=False)
    start, begin, until = (pl.col(name) for name in ("start_ns", "begin", "until"))
    inside = (start < until) & ((start > begin) | (pl.col("end_ns") <= until))
    return _mark(rows.height, found.filter(inside))


def overlap(rows: pl.DataFrame, spans: pl.DataFrame, by: Sequence[str] = THREAD) -> Bools:
    """Return which rows overlap a span of their thread; a row without length has that of a nanosecond."""
    last = pl.max_horizontal("end_ns", pl.col("start_ns") + 1) - 1
    known = _read_times(rows, by).with_row_index("row").with_columns(last=last).sort("last")
    around = spans.select(*by, last="start_ns", until="end_ns").sort("last")
    found = known.join_asof(around, on="last", by=list(by), check_sortedness=False)
    return _mark(rows.height, found.filter(pl.col("until") > pl.col("start_ns")))


def _read_times(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return the thread and the times of rows, or of rows of one time, without nulls."""
    start = "time_ns" if "time_ns" in rows.columns else "start_ns"
    end = pl.col(start if start == "time_ns" else "end_ns").fill_null(FOREVER)
    keys = [pl.col(name).cast(pl.Int64).fill_null(NO_NUMBER).alias(name) for name in by]
    return rows.select(*keys, pl.col(start).alias("start_ns"), end.alias("end_ns"))


def _mark(many: int, found: pl.DataFrame) -> Bools:
    marks = np.zeros(many, np.bool_)
    marks[found["row"].to_numpy()] = True
    return marks
