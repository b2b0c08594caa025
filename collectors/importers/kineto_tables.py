"""Raw Kineto columns made into the tables of a `Trace`.

Every function takes a `Source`. Rows whose time, device or stream makes no sense are left out and counted there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from deepprof.collectors.importers.columns import positive
from deepprof.collectors.importers.flags import NBYTES_LIMIT, Tally
from deepprof.collectors.importers.kineto_header import Clock
from deepprof.collectors.importers.kineto_kinds import DEVICE_KINDS, FRAMEWORK_RANGE, HOST_KINDS, OLD_ANNOTATION
from deepprof.collectors.trace import (
    ANNOTATIONS,
    COLLECTIVES,
    DEVICE_EVENTS,
    HOST_EVENTS,
    MEMORY_EVENTS,
    OPERANDS,
    STACKS,
    empty_table,
)

__all__ = [
    "Source",
    "annotation_rows",
    "collectives",
    "device_rows",
    "host_rows",
    "memory_rows",
    "name_traits",
    "operands",
    "stacks",
]

MEMORY_MARK = "[memory]"
PROFILER_MARK = r"^(?:Iteration Start|Record Window End)"
TIME_LIMIT_US = 4 * 10**15  # the year 2096: keeps every sum inside int64
COPY_KINDS = (  # a copy's name says where from and where to, in one of two spellings
    ("HtoD", "htod|hosttodevice"),
    ("DtoH", "dtoh|devicetohost"),
    ("DtoD", "dtod|devicetodevice"),
    ("PtoP", "ptop|peertopeer"),
    ("HtoH", "htoh|hosttohost"),
)


@dataclass(frozen=True, slots=True)
class Source:
    """The frames of `EventColumns`, the clock, what names tell (`name_traits`), and where drops are counted."""

    frames: Mapping[str, pl.DataFrame]
    clock: Clock
    traits: pl.DataFrame
    tally: Tally


def name_traits(names: pl.Series) -> pl.DataFrame:
    """Return what names tell, one row per name: `range` (an old range), `framework`, `copy_kind`."""
    name = pl.col("name")
    kinds = [pl.when(name.str.contains(f"(?i){words}")).then(pl.lit(kind)) for kind, words in COPY_KINDS]
    return pl.DataFrame({"name": names}).select(
        range=name.str.contains(OLD_ANNOTATION),
        framework=name.str.contains(FRAMEWORK_RANGE),
        copy_kind=pl.coalesce(kinds).cast(DEVICE_EVENTS["copy_kind"]),
    )


def device_rows(source: Source) -> pl.DataFrame:
    """Return kernels, copies, memsets and synchronisations as DEVICE_EVENTS, and the arguments of collectives.

    A missing device or stream is taken from `pid` and `tid`. Rows that start together are sorted by end and
    correlation, which is the order of launch where a clock of whole microseconds hides it.
    """
    frames = source.frames
    parts = [frames[kind].with_columns(activity=pl.lit(kind)) for kind in DEVICE_KINDS if kind in frames]
    if not parts:
        return empty_table(DEVICE_EVENTS)
    rows = timed(pl.concat(parts, how="diagonal"), source).with_columns(
        device=pl.coalesce(device_number("device"), device_number("pid")),
        stream=pl.coalesce("stream", "tid"),
        context=pl.when(pl.col("context").is_between(0, 2**32 - 1)).then("context"),
        external_id=external_id(),
        correlation=positive("correlation"),
        graph_node=positive("graph_node"),
        copy_kind=pl.when(pl.col("activity") == "memcpy").then(trait(source.traits["copy_kind"])),
    )
    placed = pl.col("device").is_not_null() & pl.col("stream").is_not_null()
    rows = source.tally.bound_nbytes(source.tally.keep(rows, placed, "invalid-place")).cast(DEVICE_EVENTS)
    return rows.sort("start_ns", "end_ns", "correlation", nulls_last=True, maintain_order=True)


def host_rows(source: Source) -> pl.DataFrame:
    """Return operators, runtime calls, Python functions and overhead as HOST_EVENTS, sorted, and their details."""
    parts = [
        source.frames[kind].with_columns(pl.lit(kind).cast(HOST_EVENTS["category"]).alias("category"))
        for kind in HOST_KINDS
        if kind in source.frames
    ]
    if not parts:
        return empty_table(HOST_EVENTS)
    rows = pl.concat(parts, how="diagonal").filter((pl.col("category") != "op") | ~trait(source.traits["range"]))
    rows = timed(rows, source)  # now: the old ranges left out are counted among the annotations
    absent = {"correlation", "external_id", "old_external_id", *HOST_EVENTS, "stack"} - set(rows.columns)
    rows = rows.with_columns(pl.lit(None).alias(column) for column in absent).with_columns(
        process="pid", thread="tid", correlation=positive("correlation"), external_id=external_id()
    )
    rows = rows.with_columns(stack_id=number_stacks(rows["stack"].cast(pl.String)))
    return rows.cast(HOST_EVENTS).sort("start_ns", maintain_order=True)


def annotation_rows(source: Source) -> pl.DataFrame:
    """Return the ranges of both sides as ANNOTATIONS."""
    parts = [rows for rows in (host_ranges(source), device_ranges(source)) if rows.height]
    if not parts:
        return empty_table(ANNOTATIONS)
    rows = timed(pl.concat(parts, how="diagonal"), source).with_columns(
        domain=pl.lit(None, pl.String), framework=trait(source.traits["framework"])
    )
    return shaped(rows, ANNOTATIONS)


def host_ranges(source: Source) -> pl.DataFrame:
    """Return the ranges written on host threads, those in the operators' category included."""
    frames = source.frames
    columns = ["ts", "dur", "pid", "tid", "name_id"]
    ranges = [frames["host annotation"].select(columns)] if "host annotation" in frames else []
    if "op" in frames:
        ranges.append(frames["op"].filter(trait(source.traits["range"])).select(columns))
    if not ranges:
        return pl.DataFrame()
    nowhere = pl.lit(None, pl.Int64)
    return pl.concat(ranges).with_columns(
        side=pl.lit("host"), process="pid", thread="tid", device=nowhere, stream=nowhere
    )


def device_ranges(source: Source) -> pl.DataFrame:
    """Return the ranges that Kineto projects onto streams."""
    if "device annotation" not in source.frames:
        return pl.DataFrame()
    return source.frames["device annotation"].with_columns(
        side=pl.lit("device"),
        process=pl.lit(None, pl.Int64),
        thread=pl.lit(None, pl.Int64),
        device=pl.coalesce(device_number("device"), device_number("pid")),
        stream=pl.coalesce("stream", "tid"),
    )


def memory_rows(source: Source) -> pl.DataFrame:
    """Return the allocator's `[memory]` marks as MEMORY_EVENTS; device -1 is host memory."""
    if "instant" not in source.frames:
        return empty_table(MEMORY_EVENTS)
    rows = timed(memory_marks(source).with_columns(dur=pl.lit(0.0)), source)
    sound = pl.col("nbytes").is_between(-NBYTES_LIMIT, NBYTES_LIMIT)
    rows = source.tally.keep(rows, sound, "invalid-bytes").with_columns(
        time_ns="start_ns",
        process="pid",
        thread="tid",
        device=pl.when(pl.col("device_type") == 0).then(-1).otherwise("device_id").cast(pl.Int32, strict=False),
    )
    return shaped(rows, MEMORY_EVENTS)


def memory_marks(source: Source) -> pl.DataFrame:
    """Return the marks that are memory events; the profiler's own and unknown ones are counted as such."""
    name = pl.col("name").fill_null("")
    memory, own = name == MEMORY_MARK, name.str.contains(PROFILER_MARK)
    marks = source.tally.keep(source.frames["instant"], ~own, "profiler")
    return source.tally.keep(marks, memory, "unknown")


def collectives(device: pl.DataFrame) -> pl.DataFrame:
    """Return COLLECTIVES of the rows of `device_rows` that carry a collective's arguments."""
    if "collective" not in device.columns:
        return empty_table(COLLECTIVES)
    rows = device.with_row_index("event").drop_nulls("collective")
    rows = rows.with_columns(sequence="collective_sequence").with_columns(
        pl.when(pl.col("group_size") < 2**32).then("group_size").alias("group_size")
    )
    return rows.select(list(COLLECTIVES)).cast(COLLECTIVES)


def operands(host: pl.DataFrame) -> pl.DataFrame:
    """Return OPERANDS of the rows of `host_rows` that carry shapes or types."""
    if "dims" not in host.columns:
        return empty_table(OPERANDS)
    rows = host.with_row_index("event").with_columns(dims=pl.coalesce("dims", "old_dims"))
    return rows.filter(pl.any_horizontal(pl.col("dims", "dtypes").is_not_null())).select(list(OPERANDS))


def stacks(host: pl.DataFrame) -> pl.DataFrame:
    """Return STACKS of the rows of `host_rows`, ordered by id."""
    if "stack" not in host.columns:
        return empty_table(STACKS)
    rows = host.drop_nulls("stack_id").select("stack_id", frames=pl.col("stack").cast(pl.String))
    return rows.unique("stack_id").sort("stack_id")


def shaped(rows: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """Return `rows` with the columns of `schema` alone, sorted by the first."""
    return rows.select(list(schema)).cast(schema).sort(next(iter(schema)), maintain_order=True)


def trait(values: pl.Series) -> pl.Expr:
    """Return the value of each row's name, from `values` by name id."""
    return pl.lit(values).gather(pl.col("name_id"))


def timed(rows: pl.DataFrame, source: Source) -> pl.DataFrame:
    """Return the rows whose times make sense, with `start_ns` and `end_ns` for `ts` and `dur`.

    Whole microseconds and their fraction are scaled apart: a product of the whole would lose nanoseconds.
    """
    sound = pl.col("ts").is_between(-TIME_LIMIT_US, TIME_LIMIT_US) & pl.col("dur").is_between(0, TIME_LIMIT_US / 40)
    rows = source.tally.keep(rows, sound, "invalid-time")
    rows = rows.with_columns(start_ns=nanoseconds("ts") + source.clock.base_ns)
    return rows.with_columns(end_ns=pl.col("start_ns") + nanoseconds("dur")).drop("ts", "dur")


def nanoseconds(column: str) -> pl.Expr:
    """Return the float microseconds in `column` as Int64 nanoseconds."""
    whole = pl.col(column).floor()
    return whole.cast(pl.Int64) * 1000 + ((pl.col(column) - whole) * 1000).round().cast(pl.Int64)


def device_number(column: str) -> pl.Expr:
    """Return `column` where it can be a device's number, null elsewhere."""
    return pl.when(pl.col(column).is_between(0, 2**16 - 1)).then(column)


def external_id() -> pl.Expr:
    """Return the external id, whichever way it was spelt."""
    return pl.coalesce(positive("external_id"), positive("old_external_id"))


def number_stacks(texts: pl.Series) -> pl.Series:
    """Return an id for each distinct non-empty text, in order of first use."""
    texts = texts.replace({"": None})
    distinct = texts.drop_nulls().unique(maintain_order=True)
    return texts.replace_strict(distinct, range(len(distinct)), default=None, return_dtype=pl.UInt32)
