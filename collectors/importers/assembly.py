"""Assembly of loose columns into a `Trace`: the last part of every importer, the same for every format.

An importer supplies polars frames with the columns that its format has. Here names become ids, absent columns become
null, invalid rows are left out and counted, and the remaining rows are typed, sorted and flagged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from msgspec import Struct, field

from deepprof.collectors.importers.flags import NBYTES_LIMIT, Tally, flag_events
from deepprof.collectors.importers.launch_shapes import SHAPES, launch_shapes
from deepprof.collectors.importers.value_columns import positive
from deepprof.collectors.instructions import EVENT_INSTRUCTIONS
from deepprof.collectors.times import TIME_LIMIT_NS
from deepprof.collectors.trace import (
    ANNOTATIONS,
    DEVICE_EVENTS,
    EVENT_STACKS,
    HOST_EVENTS,
    MEMORY_EVENTS,
    Accounting,
    Trace,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NARROW = {pl.Null(), pl.Int8(), pl.Int16(), pl.Int32(), pl.UInt8(), pl.UInt16(), pl.UInt32()}


class Records(Struct, frozen=True, kw_only=True, eq=False):
    """The frames that an importer has read, with those of the columns of every table in `trace` that the format has.

    `name` (String) replaces `name_id`; `memory` has neither. `start_ns` and `end_ns` (`time_ns`) are integers.
    `activity`, `copy_kind`, `category` and `side` may be plain texts. If a device frame has no `device` or `stream`
    they are 0; its `stack_id` makes rows of EVENT_STACKS, its `instruction` of EVENT_INSTRUCTIONS, and it may have all
    columns of `launch_shapes.SHAPES`; without `activity` its rows are kernels; host rows without `category` are
    "other". `tally` counts the records that the importer has already left out.
    """

    device: pl.DataFrame = field(default_factory=pl.DataFrame)
    host: pl.DataFrame = field(default_factory=pl.DataFrame)
    annotations: pl.DataFrame = field(default_factory=pl.DataFrame)
    memory: pl.DataFrame = field(default_factory=pl.DataFrame)
    tally: Tally = field(default_factory=Tally)


def assemble(path: Path, format: str, records: Records, *, read: int, **header: Any) -> Trace:
    """Return the trace of `records` from `path`; `header` gives the other fields of `Trace` (`clock`, `rank` …).

    Rows without valid times are dropped as `invalid-time`, device rows without a possible device as `invalid-place`,
    memory rows without a valid size as `invalid-bytes`; rows without a name are kept as "unknown" and flagged
    `unnamed`. `read` is the number of records in the file, counted by the importer while it reads them. Raises
    `ValueError` when they are not all kept or counted as dropped, which is a bug.
    """
    tally = records.tally
    loose = (records.device, records.host, records.annotations, records.memory)
    names = _list_names(loose[:3])
    device, host, annotations = (_numbered(rows, names, tally) for rows in loose[:3])
    (device, sides), host = _device_rows(device, tally), _host_rows(host, tally)
    header |= {"launch_shapes": launch_shapes(device), **sides}
    annotations, memory = _annotation_rows(annotations, tally), _memory_rows(records.memory, tally)
    tables = {
        "device_events": device.select(list(DEVICE_EVENTS)),
        "host_events": host,
        "annotations": annotations,
        "memory_events": memory,
    }
    return finish(path, format, tables, tally, read=read, names=names, **header)


def finish(path: Path, format: str, tables: Mapping[str, Any], tally: Tally, *, read: int, **header: Any) -> Trace:
    """Return the trace of finished `tables`, by field of `Trace`, with every record counted and flagged.

    Kineto and nsys call it with their own tables, whose names are numbers already. In `assemble` Kineto's host
    events would be in memory twice (224 MB instead of 176 for 404,000 events), and nsys would use 5 % longer.
    """
    kept = sum(rows.height for rows in tables.values())
    flagged = tally.flagged + flag_events(tables["device_events"], tables["host_events"])
    accounting = Accounting(read, kept, dict(tally.dropped), dict(flagged))
    return Trace(path=str(path), format=format, accounting=accounting, **tables, **header)


def _list_names(frames: tuple[pl.DataFrame, ...]) -> pl.Series:
    """Return the distinct names of `frames` in order of first use, with "unknown" where any has none."""
    columns = [rows["name"].cast(pl.String).fill_null("unknown") for rows in frames if rows.height]
    return pl.concat([pl.Series("name", [], pl.String), *columns]).unique(maintain_order=True).rename("name")


def _numbered(rows: pl.DataFrame, names: pl.Series, tally: Tally) -> pl.DataFrame:
    """Return `rows` with `name_id` in place of `name`."""
    if rows.is_empty():
        return rows
    if unnamed := rows["name"].null_count():
        tally.flagged["unnamed"] += unnamed
    ids = pl.DataFrame({"name": names}).with_row_index("name_id")
    rows = rows.with_columns(pl.col("name").cast(pl.String).fill_null("unknown"))
    return rows.join(ids, on="name", how="left", maintain_order="left").drop("name")


def _device_rows(rows: pl.DataFrame, tally: Tally) -> tuple[pl.DataFrame, dict[str, pl.DataFrame]]:
    """Return `rows` as DEVICE_EVENTS, with the columns of SHAPES if they have them, and tables joined by event.

    Rows that start together are in the order of launch.
    """
    shape = SHAPES if SHAPES.keys() <= set(rows.columns) else {}
    joined = {"event_stacks": EVENT_STACKS, "event_instructions": EVENT_INSTRUCTIONS}
    own = {name: kind for side in joined.values() for name, kind in side.items() if name != "event"}
    schema = pl.Schema({**DEVICE_EVENTS, **shape, **own})
    rows = _completed(rows, schema, {"device": 0, "stream": 0, "activity": "kernel"})
    rows = tally.keep(rows, _sound_times(), "invalid-time")
    placed = pl.col("device").is_between(0, 2**16 - 1) & pl.col("stream").is_not_null()
    rows = tally.keep(rows, placed.fill_null(False), "invalid-place")
    rows = tally.bound_nbytes(rows).with_columns(
        context=pl.when(pl.col("context").is_between(0, 2**32 - 1)).then("context"),
        correlation=positive("correlation"),
        external_id=positive("external_id"),
        graph_node=positive("graph_node"),
    )
    rows = rows.cast(dict(schema))  # type: ignore[arg-type]
    rows = rows.sort("start_ns", "end_ns", "correlation", nulls_last=True, maintain_order=True)
    numbered = rows.select(*own).with_row_index("event")
    sides = {name: numbered.select(list(side)).drop_nulls().cast(dict(side)) for name, side in joined.items()}  # type: ignore[arg-type]
    return rows.drop(*own), sides


def _host_rows(rows: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Return `rows` as HOST_EVENTS."""
    rows = _completed(rows, HOST_EVENTS, {"category": "other"})
    rows = tally.keep(rows, _sound_times(), "invalid-time")
    rows = rows.with_columns(correlation=positive("correlation"), external_id=positive("external_id"))
    return shaped(rows, HOST_EVENTS)


def _annotation_rows(rows: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Return `rows` as ANNOTATIONS; the end may be null, for a range that was never closed."""
    rows = _completed(rows, ANNOTATIONS, {"side": "host", "framework": False})
    rows = tally.keep(rows, _sound_times(open_end=True), "invalid-time")
    device = pl.when(pl.col("device").is_between(0, 2**16 - 1)).then("device")
    return shaped(rows.with_columns(device=device), ANNOTATIONS)


def _memory_rows(rows: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Return `rows` as MEMORY_EVENTS."""
    rows = _completed(rows, MEMORY_EVENTS, {})
    timed = pl.col("time_ns").is_between(-TIME_LIMIT_NS, TIME_LIMIT_NS).fill_null(False)
    rows = tally.keep(rows, timed, "invalid-time")
    sound = pl.col("nbytes").is_between(-NBYTES_LIMIT, NBYTES_LIMIT).fill_null(False)
    return shaped(tally.keep(rows, sound, "invalid-bytes"), MEMORY_EVENTS)


def _completed(rows: pl.DataFrame, schema: pl.Schema, defaults: dict[str, Any]) -> pl.DataFrame:
    """Return the columns of `schema` from `rows`, absent ones with their default or null; types are set later."""
    absent = [pl.lit(defaults.get(name)).alias(name) for name in schema if name not in rows.columns]
    if not rows.columns:
        return pl.DataFrame(schema=schema)
    rows = rows.with_columns(absent).select(list(schema))
    narrow = [name for name, kind in rows.schema.items() if kind in NARROW and schema[name].is_integer()]
    return rows.with_columns(pl.col(narrow).cast(pl.Int64))  # a narrow type cannot be compared with the limits


def shaped(rows: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """Return the columns of `schema` in its types, sorted by the first; null for values that do not fit their type."""
    return rows.select(list(schema)).cast(dict(schema), strict=False).sort(next(iter(schema)), maintain_order=True)  # type: ignore[arg-type]


def _sound_times(*, open_end: bool = False) -> pl.Expr:
    """Return whether a row has valid times; with `open_end` the end may be null."""
    limits = (-TIME_LIMIT_NS, TIME_LIMIT_NS)
    end = pl.col("end_ns").is_between(*limits) & (pl.col("end_ns") >= pl.col("start_ns"))
    return pl.col("start_ns").is_between(*limits).fill_null(False) & end.fill_null(open_end)
