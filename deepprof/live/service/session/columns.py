"""Records as plain arrays, one per column: the parts of the record table's rows that the session keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.trace import ACTIVITIES, COPY_KINDS

Array: TypeAlias = npt.NDArray[Any]
Int64s: TypeAlias = npt.NDArray[np.int64]
Marks: TypeAlias = npt.NDArray[np.bool_]
Columns: TypeAlias = dict[str, Array]  # arrays of one length; `start` is always one of them

FARTHEST_NS = 2**62  # all times are within ± this, so that no difference of two overflows
NOBODY = 2**64 - 1  # the correlation of a record that has none
MOST_NBYTES = 2**40  # of one copy, so that no sum of those held overflows; no device has this much memory
KERNEL, MEMCPY, GRAPH = (ACTIVITIES.index(name) for name in ("kernel", "memcpy", "graph"))
SYNC = ACTIVITIES.index("sync")
COPY = {name: number for number, name in enumerate(COPY_KINDS)}
NO_COPY = 255

DEVICE = {
    "start": np.int64,
    "end": np.int64,
    "device": np.uint16,
    "stream": np.int64,
    "activity": np.uint8,
    "copy": np.uint8,
    "symbol": np.uint32,
    "correlation": np.uint64,
    "nbytes": np.int64,
}
CALLS = {"start": np.int64, "end": np.int64, "correlation": np.uint64, "marks": np.uint8}
RANGES = {"start": np.int64, "end": np.int64, "device": np.int32, "family": np.int32}  # device -1: the host's


def device_columns(rows: pl.DataFrame) -> Columns:
    """Return the device events except waits, with the columns of `DEVICE`."""
    plain = rows.lazy().select(  # in one query: the fixed cost of a table is much of the cost of a batch
        pl.col("device", "stream"),
        start="start_ns",
        end="end_ns",
        activity=pl.col("activity").to_physical(),
        copy=pl.col("copy_kind").to_physical().fill_null(NO_COPY),
        symbol="name_id",
        correlation=pl.col("correlation").fill_null(NOBODY),
        nbytes=pl.col("nbytes").fill_null(0).clip(upper_bound=MOST_NBYTES).cast(pl.Int64),
    )
    table = plain.collect()
    found = {name: table[name].to_numpy() for name in DEVICE}
    waits = found["activity"] == SYNC
    return select(found, ~waits) if waits.any() else found


def values_of(column: pl.Series, absent: int) -> Array:
    """Return a column's values, `absent` where there is none."""
    return (column.fill_null(absent) if column.null_count() else column).to_numpy()


def empty(schema: dict[str, Any]) -> Columns:
    """Return columns without rows."""
    return {name: np.empty(0, dtype) for name, dtype in schema.items()}


def height(columns: Columns) -> int:
    """Return the number of rows."""
    return len(columns["start"])


def select(columns: Columns, which: Array | slice) -> Columns:
    """Return some of the rows."""
    return {name: values[which] for name, values in columns.items()}


def join(parts: Sequence[Columns]) -> Columns:
    """Return the rows of one or more parts, one after the other."""
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
