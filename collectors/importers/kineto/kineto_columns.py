"""The source of the tables of a Kineto trace, and the operations that these tables share."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from deepprof.collectors.importers.flags import Tally
from deepprof.collectors.importers.kineto.header import KinetoClock
from deepprof.collectors.importers.kineto.kinds import FRAMEWORK_RANGE, OLD_ANNOTATION
from deepprof.collectors.importers.kineto.rows import EventColumns
from deepprof.collectors.importers.value_columns import positive
from deepprof.collectors.trace import DEVICE_EVENTS

TIME_LIMIT_US = 4 * 10**15  # the year 2096: keeps every sum inside int64
COPY_KINDS = (  # a copy's name contains its direction, in one of two spellings
    ("HtoD", "htod|hosttodevice"),
    ("DtoH", "dtoh|devicetohost"),
    ("DtoD", "dtod|devicetodevice"),
    ("PtoP", "ptop|peertopeer"),
    ("HtoH", "htoh|hosttohost"),
)


class KinetoColumns(Struct, frozen=True, eq=False):
    """The raw columns, which making the tables consumes, the clock, and the traits of names (`name_traits`)."""

    columns: EventColumns
    clock: KinetoClock
    traits: pl.DataFrame

    @property
    def tally(self) -> Tally:
        """The counts of rows that are left out."""
        return self.columns.tally


def name_traits(names: pl.Series) -> pl.DataFrame:
    """Return the traits of names, one row per name: `range` (an old range), `framework`, `copy_kind`."""
    name = pl.col("name")
    kinds = [pl.when(name.str.contains(f"(?i){words}")).then(pl.lit(kind)) for kind, words in COPY_KINDS]
    return pl.DataFrame({"name": names}).select(
        range=name.str.contains(OLD_ANNOTATION),
        framework=name.str.contains(FRAMEWORK_RANGE),
        copy_kind=pl.coalesce(kinds).cast(DEVICE_EVENTS["copy_kind"]),
    )


def trait(values: pl.Series) -> pl.Expr:
    """Return the value of every row's name, from `values` by name id."""
    return pl.lit(values).gather(pl.col("name_id"))


def timed(rows: pl.DataFrame, source: KinetoColumns) -> pl.DataFrame:
    """Return the rows whose times are valid, with `start_ns` and `end_ns` for `ts` and `dur`.

    Whole microseconds and their fraction are scaled separately: one product of both would lose nanoseconds.
    """
    sound = pl.col("ts").is_between(-TIME_LIMIT_US, TIME_LIMIT_US) & pl.col("dur").is_between(0, TIME_LIMIT_US / 40)
    rows = source.tally.keep(rows, sound, "invalid-time")
    rows = rows.with_columns(start_ns=_nanoseconds("ts") + source.clock.base_ns)
    return rows.with_columns(end_ns=pl.col("start_ns") + _nanoseconds("dur")).drop("ts", "dur")


def _nanoseconds(column: str) -> pl.Expr:
    """Return the float microseconds in `column` as Int64 nanoseconds."""
    whole = pl.col(column).floor()
    return whole.cast(pl.Int64) * 1000 + ((pl.col(column) - whole) * 1000).round().cast(pl.Int64)


def device_number(column: str) -> pl.Expr:
    """Return `column` where it can be a device's number, null elsewhere."""
    return pl.when(pl.col(column).is_between(0, 2**16 - 1)).then(column)


def external_id() -> pl.Expr:
    """Return the external id, in either of its spellings."""
    return pl.coalesce(positive("external_id"), positive("old_external_id"))
