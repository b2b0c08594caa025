"""Stretches of 2 MiB of device memory over time: when kernels access them, as counted (PASTA's hotness).

PASTA shows how often kernels access each block of 2 MiB over time, and finds bands that stay hot (to prefetch and pin)
and short bursts (to evict). Here accesses are those of a recording of `deepprof accesses`, whose times are not those of
the program: kernels ran one after the other. So time is counted in kernels: windows have equally many of a device.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from deepprof.collectors.table_schema import TableSchema
from deepprof.collectors.trace import Trace
from deepprof.metrics.memory.address_bands import BAND_NBYTES, LONG, MAX_ROWS, SHORT

I64, RATIO = pl.Int64(), pl.Float64()
HEATS = ("steady", "burst", "mixed")
COUNTS = ("reads", "read_nbytes", "writes", "write_nbytes")
MAX_COUNT = 1 << 44  # of one block by one kernel: a stored table may state anything, and sums are to fit
ACCESSED_BANDS = TableSchema.of(
    "One stretch of 2 MiB of a device's memory that kernels access, as counted.",
    {
        "device": (pl.Int32(), "the number of the device"),
        "address": (pl.UInt64(), "where it begins"),
        "kernels": (I64, "launches of kernels that access it"),
        "windows": (I64, "stretches of time in which it is accessed"),
        "windows_ratio": (RATIO, "that over all"),
        "reads": (I64, "accesses that read, one for each thread"),
        "read_nbytes": (I64, "what they read"),
        "writes": (I64, "accesses that write"),
        "write_nbytes": (I64, "what they write"),
        "heat": (pl.Enum(HEATS), "by the windows in which it is accessed: `steady`, `burst` or `mixed`"),
        "kernel": (pl.String(), "the kernel that moves most bytes of it"),
    },
)
ACCESS_WINDOWS = TableSchema.of(
    "One stretch of 2 MiB during one stretch of time in which kernels access it.",
    {
        "device": (pl.Int32(), "the number of the device"),
        "address": (pl.UInt64(), "where the stretch of memory begins"),
        "window": (I64, "the number of the stretch of time, from 0"),
        "accessed_nbytes": (I64, "what is read and written"),
    },
)


class AccessBands(Struct, frozen=True, eq=False):
    """Stretches of 2 MiB: `bands` has the schema `ACCESSED_BANDS`, `windows` has `ACCESS_WINDOWS`.

    `unplaced_nbytes` were accessed in blocks for which the recording had no room.
    """

    bands: pl.DataFrame
    windows: pl.DataFrame
    unplaced_nbytes: int


def read_accesses(trace: Trace) -> pl.DataFrame:
    """Return the rows of `accesses` with sizes and counts as Int64, none above `MAX_COUNT`, 0 where they are null."""
    numbers = pl.col("nbytes", *COUNTS).clip(upper_bound=MAX_COUNT).cast(I64).fill_null(0)
    return trace.accesses.with_columns(numbers)


def measure_access_bands(trace: Trace, windows: int) -> AccessBands:
    """Return what kernels access of every section of 2 MiB, by device and address.

    Steady: accessed in at least `LONG` of the windows. Burst: in `SHORT` of them at most. A device with fewer kernels
    than `windows` has a window for each.
    """
    rows = _place_accesses(trace, windows)
    unplaced = rows.filter(pl.col("address").is_null()).select(pl.sum("read_nbytes", "write_nbytes")).row(0)
    placed = rows.drop_nulls("address")
    placed = placed.with_columns(address=pl.col("address") // BAND_NBYTES * BAND_NBYTES)
    moved = (pl.col("read_nbytes") + pl.col("write_nbytes")).sum()
    key = ("device", "address")
    over_time = placed.group_by(*key, "window").agg(accessed_nbytes=moved).sort(*key, "window")
    most = placed.group_by(*key, "kernel").agg(moved=moved).sort("moved", "kernel", descending=[True, False])
    owners = most.unique(key, keep="first", maintain_order=True).drop("moved")
    sums = placed.group_by(key).agg(
        pl.col("event").n_unique().alias("kernels"),
        pl.col("window").n_unique().alias("windows"),
        (pl.col("window").n_unique() / pl.col("of_windows").first()).alias("windows_ratio"),
        pl.col(COUNTS).sum(),
    )
    share = pl.col("windows_ratio")
    heat = pl.when(share >= LONG).then(pl.lit("steady")).when(share <= SHORT).then(pl.lit("burst"))
    bands = sums.with_columns(heat.otherwise(pl.lit("mixed")).alias("heat")).join(owners, on=key, how="left")
    return AccessBands(
        bands.sort(key).select(list(ACCESSED_BANDS)).cast(dict(ACCESSED_BANDS)),  # type: ignore[arg-type]
        over_time.head(MAX_ROWS).cast(dict(ACCESS_WINDOWS)),  # type: ignore[arg-type]
        sum(unplaced),
    )


def _place_accesses(trace: Trace, windows: int) -> pl.DataFrame:
    """Return the rows of `accesses` with `device`, `kernel`, `window`, and how many windows its device has."""
    kernels = trace.device_events.select("device", "name_id", "activity").with_row_index("event")
    kernels = kernels.filter(pl.col("activity") == "kernel").with_columns(
        pl.col("device").cast(pl.Int32), kernel=trace.names.gather(kernels["name_id"]).cast(pl.String)
    )
    many = pl.len().over("device")
    of_windows = pl.min_horizontal(many, windows).cast(I64)
    place = pl.int_range(pl.len()).over("device").cast(I64)
    timed = kernels.with_columns(of_windows=of_windows, window=place * of_windows // many)
    return read_accesses(trace).join(timed, on="event", how="inner")
