"""Stretches of 2 MiB of device memory over time: how long they hold something, and what for.

PASTA shows how often kernels access each block of 2 MiB over time, and finds bands that stay hot (to prefetch and pin)
and short bursts (to evict). A trace has no accesses. What is known is when memory was allocated and released: a block
cannot be used outside of its lifetime, so what is alive only in bursts is used only in bursts; what is alive all the
time may be used rarely nevertheless. So the classes here are by lifetime of allocations, which bounds the use from
above; hotness by access is not measured.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from deepprof.collectors.table_schema import TableSchema

BAND_NBYTES = 1 << 21  # the granularity of large pages, and of managed memory's migrations at most
I64, RATIO, TEXT = pl.Int64(), pl.Float64(), pl.String()
LIFETIMES = ("long-lived", "burst", "mixed")
ADDRESS_BANDS = TableSchema.of(
    "One stretch of 2 MiB of a device's memory, from the first allocation in it on.",
    {
        "device": (pl.Int32(), "the number of the device, -1 for memory of the host"),
        "address": (pl.UInt64(), "where it begins"),
        "blocks": (I64, "allocations that lie in it, or in part"),
        "alive_ratio": (RATIO, "the share of the recording during which anything in it is allocated"),
        "longest_ns": (I64, "the longest time without a pause during which anything in it is allocated"),
        "periods": (I64, "how many such times there are"),
        "held_ratio": (RATIO, "the mean share of its bytes that are allocated, over the recording"),
        "lifetime": (pl.Enum(LIFETIMES), "by lifetime of allocations: `long-lived`, `burst` or `mixed`"),
        "operator": (TEXT, "the operator that allocated most bytes in it; null: not known"),
    },
)
BAND_WINDOWS = TableSchema.of(
    "One stretch of 2 MiB during one stretch of time; where nothing is allocated there is no row.",
    {
        "device": (pl.Int32(), "the number of the device, -1 for memory of the host"),
        "address": (pl.UInt64(), "where the stretch of memory begins"),
        "window": (I64, "the number of the stretch of time, from 0"),
        "held_nbytes": (I64, "bytes of it that are allocated at some time in the window, at most all"),
    },
)
LONG = 0.8  # of the recording: what is alive for so long at a section is long-lived
SHORT = 0.2  # of the recording at a section: what is never alive for longer is a burst
MAX_ROWS = 1 << 22  # pieces of allocations in sections of 2 MiB, and rows over time, that are examined
MAX_NBYTES = 1 << 62


class AddressBands(Struct, frozen=True, eq=False):
    """Stretches of 2 MiB: `bands` has the schema `ADDRESS_BANDS`, `windows` has `BAND_WINDOWS`.

    `window_ns` is the length of a window, `left_out` counts blocks without a place, or beyond `MAX_ROWS`.
    """

    bands: pl.DataFrame
    windows: pl.DataFrame
    window_ns: int
    left_out: int


def measure_bands(blocks: pl.DataFrame, span_ns: tuple[int, int], windows: int) -> AddressBands:
    """Return what a table `BLOCKS` contains of every section of 2 MiB over `span_ns`, the time of the recording.

    `windows` sections of time are distinguished, fewer where there would be more than `MAX_ROWS` rows. A column
    `operator` of `blocks` states who allocated.
    """
    pieces, left_out = cut_bands(blocks, span_ns)
    bands = classify_bands(pieces, span_ns)
    many = max(1, min(windows, MAX_ROWS // max(1, bands.height)))
    return AddressBands(bands, spread_over_windows(pieces, span_ns, many), _length_of(span_ns, many), left_out)


def _length_of(span_ns: tuple[int, int], windows: int) -> int:
    """Return how long each of `windows` is that together cover the span."""
    return max(1, -(-(span_ns[1] - span_ns[0]) // windows))


def cut_bands(blocks: pl.DataFrame, span_ns: tuple[int, int]) -> tuple[pl.DataFrame, int]:
    """Return the pieces of a table `BLOCKS` in every section of 2 MiB, and how many blocks were left out.

    The columns are `device`, `address` (of the section), `piece_nbytes`, `begin_ns` and `end_ns` within `span_ns`, and
    `operator` if `blocks` has it. Left out are blocks without an address or a size, and the last ones once there are
    `MAX_ROWS` pieces. What was not released in the recording lasts until its end, what was there before from its begin.
    """
    first, last = span_ns
    address = pl.col("address")
    sized = blocks.filter(address.is_not_null() & (pl.col("nbytes") > 0))
    # Hostile addresses and sizes may reach beyond 2**63: numbers of bands do not.
    begin_band = (address // BAND_NBYTES).cast(I64)
    reach = pl.col("nbytes").clip(upper_bound=MAX_NBYTES) - 1 + (address % BAND_NBYTES).cast(I64)
    spread = sized.with_columns(first_band=begin_band, bands=reach // BAND_NBYTES + 1)
    kept = spread.filter(pl.col("bands") <= MAX_ROWS).filter(pl.col("bands").cum_sum() <= MAX_ROWS)
    pieces = kept.with_columns(band=pl.int_ranges("bands")).explode("band")
    start_in = (pl.col("address") % BAND_NBYTES).cast(I64)
    from_nbytes = pl.max_horizontal(start_in - pl.col("band") * BAND_NBYTES, 0)
    until_nbytes = pl.min_horizontal(start_in + pl.col("nbytes") - pl.col("band") * BAND_NBYTES, BAND_NBYTES)
    operator = pl.col("operator") if "operator" in blocks.columns else pl.lit(None, TEXT).alias("operator")
    rows = pieces.select(
        "device",
        ((pl.col("first_band") + pl.col("band")).cast(pl.UInt64) * BAND_NBYTES).alias("address"),
        (until_nbytes - from_nbytes).alias("piece_nbytes"),
        pl.col("begin_ns").fill_null(first).clip(first, last),
        pl.col("end_ns").fill_null(last).clip(first, last),
        operator,
    )
    return rows, blocks.height - kept.height


def classify_bands(pieces: pl.DataFrame, span_ns: tuple[int, int]) -> pl.DataFrame:
    """Return each section of 2 MiB of `cut_bands` with its class, by device and address, as a table `ADDRESS_BANDS`.

    Long-lived: alive for `LONG` of the recording at a section. Burst: never for more than `SHORT` of it at a section;
    what was allocated once, late, and is there at the end may live long, and is mixed.
    """
    length = max(1, span_ns[1] - span_ns[0])
    key = ("device", "address")
    ordered = pieces.sort(*key, "begin_ns", "end_ns", maintain_order=True)
    reach = pl.col("end_ns").cum_max().shift(1).over(key)
    periods = ordered.with_columns(period=(pl.col("begin_ns") > reach).fill_null(value=True).cum_sum().over(key))
    alive = periods.group_by(*key, "period", maintain_order=True).agg(
        alive_ns=pl.col("end_ns").max() - pl.col("begin_ns").min(), until_ns=pl.col("end_ns").max()
    )
    times = alive.group_by(key, maintain_order=True).agg(
        alive_ratio=pl.col("alive_ns").sum() / length,
        longest_ns=pl.col("alive_ns").max(),
        periods=pl.len(),
        open=(pl.len() == 1) & (pl.col("until_ns").max() >= span_ns[1]),
    )
    held = (pl.col("piece_nbytes") * (pl.col("end_ns") - pl.col("begin_ns")).cast(RATIO)).sum()
    sums = ordered.group_by(key, maintain_order=True).agg(blocks=pl.len(), held_ratio=held / length / BAND_NBYTES)
    found = times.join(sums, on=key, how="left", maintain_order="left")
    found = found.join(_find_operators(ordered), on=key, how="left", maintain_order="left")
    share = pl.col("longest_ns") / length
    kind = (
        pl.when(share >= LONG).then(pl.lit("long-lived")).when((share <= SHORT) & ~pl.col("open")).then(pl.lit("burst"))
    )
    classed = found.with_columns(kind.otherwise(pl.lit("mixed")).alias("lifetime"))
    return classed.select(list(ADDRESS_BANDS)).cast(dict(ADDRESS_BANDS))  # type: ignore[arg-type]


def _find_operators(pieces: pl.DataFrame) -> pl.DataFrame:
    """Return for every section the operator that allocated most bytes in it."""
    key = ("device", "address")
    sums = pieces.drop_nulls("operator").group_by(*key, "operator").agg(pl.col("piece_nbytes").sum())
    most = sums.sort("piece_nbytes", "operator", descending=[True, False])
    return most.unique(key, keep="first", maintain_order=True).select(*key, "operator")


def spread_over_windows(pieces: pl.DataFrame, span_ns: tuple[int, int], windows: int) -> pl.DataFrame:
    """Return what of every section of 2 MiB is allocated in each of `windows` equal sections of time (`BAND_WINDOWS`).

    Pieces that are in the same bytes one after the other within a window count together, at most all of the section.
    """
    length = _length_of(span_ns, windows)
    first, last = ((pl.col(name) - span_ns[0]) // length for name in ("begin_ns", "end_ns"))
    end_within = pl.when((pl.col("end_ns") - span_ns[0]) % length == 0).then(last - 1).otherwise(last)
    until = pl.max_horizontal(pl.min_horizontal(end_within, windows - 1), first)
    # An allocation changes what a window contains where it begins and after where it ends: as many rows as pieces.
    begins = pieces.select("device", "address", window=first, change="piece_nbytes")
    ends = pieces.select("device", "address", window=until + 1, change=-pl.col("piece_nbytes"))
    key = ("device", "address")
    changes = pl.concat([begins, ends]).group_by(*key, "window").agg(pl.col("change").sum()).sort(*key, "window")
    held = changes.with_columns(
        held=pl.col("change").cum_sum().over(key), until=pl.col("window").shift(-1).over(key).fill_null(windows)
    )
    runs = held.filter((pl.col("held") > 0) & (pl.col("window") < windows))
    rows = runs.with_columns(window=pl.int_ranges("window", "until")).explode("window")
    found = rows.select(*key, "window", held_nbytes=pl.col("held").clip(upper_bound=BAND_NBYTES))
    return found.cast(dict(BAND_WINDOWS))  # type: ignore[arg-type]
