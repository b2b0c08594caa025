"""Blocks of memory: each allocation with the release of the same address, in O(n log n) on columns."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from msgspec import Struct

from deepprof.collectors.table_schema import TableSchema

I64, U32 = pl.Int64(), pl.UInt32()

BLOCKS = TableSchema.of(
    "One block of memory, from its allocation to its release.",
    {
        "begin_ns": (I64, "when it was allocated; null: before the recording"),
        "end_ns": (I64, "when it was released, or its address allocated anew; null: not in the recording"),
        "process": (I64, "the id of its process"),
        "device": (pl.Int32(), "the number of its device, -1 for memory of the host"),
        "address": (pl.UInt64(), "where it lies"),
        "nbytes": (I64, "its size"),
        "allocation": (U32, "the row of `memory_events` that allocated it; null: before the recording"),
        "release": (U32, "the row that released it; null: none was recorded"),
    },
)
PLACE = ("process", "device", "address")


class MemoryBlocks(Struct, frozen=True, eq=False):
    """The blocks of one trace in the order of their allocations (`BLOCKS`), those from before the recording first.

    `left_out` counts the events of which no block could be made, by reason; `lost_releases` the blocks whose address
    was allocated again although no release was recorded.
    """

    table: pl.DataFrame
    left_out: Mapping[str, int]
    lost_releases: int


def pair_blocks(events: pl.DataFrame, device: int | None = None) -> MemoryBlocks:
    """Return the blocks of a table `MEMORY_EVENTS`, only those of `device` if that is given.

    A release is that of the last allocation at its address, of the same process and device. The first event at an
    address is the release of a block from before the recording, whose size the release states; a release after a
    release has no block (`released-twice`), nor have events without an address, a size or a device.
    """
    numbered = events.with_row_index("event")
    chosen = numbered if device is None else numbered.filter(device=device)
    rows = _in_places(chosen)
    allocated = pl.col("nbytes") > 0
    follows = pl.col("place") == pl.col("place").shift(1)
    paired = rows.with_columns(
        allocated=allocated,
        first=~follows.fill_null(value=False),
        again=(follows & ~allocated & ~allocated.shift(1)).fill_null(value=False),
        next_ns=pl.col("time_ns").shift(-1),
        next_row=pl.when(~allocated.shift(-1)).then(pl.col("event").shift(-1)),
        ends=(pl.col("place") == pl.col("place").shift(-1)).fill_null(value=False),
    )
    made = paired.filter("allocated").with_columns(
        begin_ns="time_ns",
        end_ns=pl.when("ends").then("next_ns"),
        allocation="event",
        release=pl.when("ends").then("next_row"),
    )
    before = paired.filter(~pl.col("allocated"), "first").with_columns(
        begin_ns=pl.lit(None, I64), end_ns="time_ns", nbytes=-pl.col("nbytes"), allocation=None, release="event"
    )
    blocks = pl.concat([_shape(before), _shape(made)]).sort("allocation", "release", nulls_last=False)
    lost = blocks.filter(pl.col("end_ns").is_not_null() & pl.col("release").is_null()).height
    return MemoryBlocks(blocks, _count_left_out(chosen, paired), lost)


def _in_places(events: pl.DataFrame) -> pl.DataFrame:
    """Return the events of which blocks are made, place by place in the order of time; `place` numbers the places."""
    usable = _is_sized() & pl.col("address").is_not_null() & pl.col("device").is_not_null()
    rows = events.filter(usable).sort(*PLACE, "event", nulls_last=False)
    moved = pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift(1)) for name in PLACE)
    return rows.with_columns(place=moved.cum_sum())


def _is_sized() -> pl.Expr:
    """Return whether an event allocates or releases anything."""
    return pl.col("nbytes").is_not_null() & (pl.col("nbytes") != 0)


def _shape(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows with the columns of `BLOCKS`."""
    return rows.select(list(BLOCKS)).cast(dict(BLOCKS))  # type: ignore[arg-type]


def _count_left_out(events: pl.DataFrame, paired: pl.DataFrame) -> dict[str, int]:
    sized = events.filter(_is_sized())
    found = {
        "without-size": events.height - sized.height,
        "without-place": sized.height - paired.height,
        "released-twice": int(paired["again"].sum()),
    }
    return {reason: count for reason, count in found.items() if count}


def find_alive(row: int, time_ns: int) -> pl.Expr:
    """Return which blocks of a table `BLOCKS` hold memory after the event in `row`, at `time_ns`, of their trace."""
    begun = pl.col("allocation").is_null() | (pl.col("allocation") <= row)
    lasts = pl.col("end_ns").is_null() | (pl.col("end_ns") > time_ns)
    return begun & pl.when(pl.col("release").is_not_null()).then(pl.col("release") > row).otherwise(lasts)


def holds_at(time_ns: int) -> pl.Expr:
    """Return which blocks of a table `BLOCKS` hold memory at a time, after all events of that time."""
    begun = pl.col("begin_ns").is_null() | (pl.col("begin_ns") <= time_ns)
    return begun & (pl.col("end_ns").is_null() | (pl.col("end_ns") > time_ns))
