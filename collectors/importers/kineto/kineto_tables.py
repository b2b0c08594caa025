"""Raw Kineto columns made into the tables of a `Trace`, except the host's tables, which `host` makes.

Every function takes a `KinetoColumns`. Rows whose time, device or stream is invalid are left out and counted there.
"""

from __future__ import annotations

import polars as pl

from deepprof.collectors.importers.assembly import shaped
from deepprof.collectors.importers.flags import NBYTES_LIMIT
from deepprof.collectors.importers.kineto.kinds import DEVICE_KINDS
from deepprof.collectors.importers.kineto.kineto_columns import KinetoColumns, device_number, external_id, timed, trait
from deepprof.collectors.importers.kineto.rows import GRID, LAUNCH
from deepprof.collectors.importers.launch_shapes import IN_THREADS, blocks_of, launch_shapes, shape_columns, volume_of
from deepprof.collectors.importers.value_columns import positive
from deepprof.collectors.trace import (
    ANNOTATIONS,
    COLLECTIVES,
    DEVICE_EVENTS,
    LAUNCH_SHAPES,
    MEMORY_EVENTS,
    empty_table,
)


def device_rows(source: KinetoColumns) -> pl.DataFrame:
    """Return kernels, copies, memsets and synchronisations as DEVICE_EVENTS, with `position`, the number of a kernel.

    Where they were read, `LAUNCH` and `GRID` are further columns, null for all but kernels.

    A missing device or stream is taken from `pid` and `tid`. Rows that start together are sorted by end and
    correlation, which is the order of launch where a clock of whole microseconds hides it.
    """
    frames = {kind: source.columns.frame(kind) for kind in DEVICE_KINDS if source.columns.heights[kind]}
    parts = [frame.with_columns(activity=pl.lit(kind)) for kind, frame in frames.items()]
    if not parts:
        return empty_table(DEVICE_EVENTS)
    # Kernels come first, so that their row is their number.
    launch = [column for column in (*LAUNCH, *GRID) if column in parts[0].columns]
    rows = timed(pl.concat(parts, how="diagonal").with_row_index("position"), source).with_columns(
        device=pl.coalesce(device_number("device"), device_number("pid")),
        stream=pl.coalesce("stream", "tid"),
        context=pl.when(pl.col("context").is_between(0, 2**32 - 1)).then("context"),
        external_id=external_id(),
        correlation=positive("correlation"),
        graph_node=positive("graph_node"),
        copy_kind=pl.when(pl.col("activity") == "memcpy").then(trait(source.traits["copy_kind"])),
    )
    placed = pl.col("device").is_not_null() & pl.col("stream").is_not_null()
    rows = source.tally.bound_nbytes(source.tally.keep(rows, placed, "invalid-place"))
    rows = rows.select(*DEVICE_EVENTS, "position", *launch).cast(dict(DEVICE_EVENTS))  # type: ignore[arg-type]
    return rows.sort("start_ns", "end_ns", "correlation", nulls_last=True, maintain_order=True)


def annotation_rows(source: KinetoColumns) -> pl.DataFrame:
    """Return the ranges of both sides as ANNOTATIONS; call it while the operators' columns still exist."""
    parts = [rows for rows in (_host_ranges(source), _device_ranges(source)) if rows.height]
    if not parts:
        return empty_table(ANNOTATIONS)
    rows = timed(pl.concat(parts, how="diagonal"), source).with_columns(
        domain=pl.lit(None, pl.String), framework=trait(source.traits["framework"])
    )
    return shaped(rows, ANNOTATIONS)


def _host_ranges(source: KinetoColumns) -> pl.DataFrame:
    """Return the ranges written on host threads, those in the operators' category included."""
    names = ("ts", "dur", "pid", "tid", "name_id")
    columns = source.columns
    ranges = [columns.frame("host annotation").select(names)] if columns.heights["host annotation"] else []
    if columns.heights["op"]:
        is_range = columns.peek("op", "name_id").to_frame().select(trait(source.traits["range"])).to_series()
        ranges += [pl.DataFrame([columns.peek("op", name).filter(is_range) for name in names])]
    if not ranges:
        return pl.DataFrame()
    nowhere = pl.lit(None, pl.Int64)
    return pl.concat(ranges).with_columns(
        side=pl.lit("host"), process="pid", thread="tid", device=nowhere, stream=nowhere
    )


def _device_ranges(source: KinetoColumns) -> pl.DataFrame:
    if not source.columns.heights["device annotation"]:
        return pl.DataFrame()
    return source.columns.frame("device annotation").with_columns(
        side=pl.lit("device"),
        process=pl.lit(None, pl.Int64),
        thread=pl.lit(None, pl.Int64),
        device=pl.coalesce(device_number("device"), device_number("pid")),
        stream=pl.coalesce("stream", "tid"),
    )


def memory_rows(source: KinetoColumns) -> pl.DataFrame:
    """Return the allocator's `[memory]` marks as MEMORY_EVENTS; device -1 is host memory."""
    if not source.columns.heights["memory"]:
        return empty_table(MEMORY_EVENTS)
    rows = timed(source.columns.frame("memory").with_columns(dur=pl.lit(0.0)), source)
    sound = pl.col("nbytes").is_between(-NBYTES_LIMIT, NBYTES_LIMIT)
    rows = source.tally.keep(rows, sound, "invalid-bytes").with_columns(
        time_ns="start_ns",
        process="pid",
        thread="tid",
        device=pl.when(pl.col("device_type") == 0).then(-1).otherwise("device_id").cast(pl.Int32, strict=False),
    )
    return shaped(rows, MEMORY_EVENTS)


def collectives(source: KinetoColumns, device: pl.DataFrame) -> pl.DataFrame:
    """Return COLLECTIVES of the rows of `device_rows` that have a collective's arguments."""
    found = source.columns.extra_rows("kernel")
    if found.is_empty():
        return empty_table(COLLECTIVES)
    rows = _kernel_rows(device).join(found.drop_nulls("collective"), on="position")
    rows = rows.with_columns(pl.when(pl.col("group_size") < 2**32).then("group_size").alias("group_size"))
    return rows.select(list(COLLECTIVES)).cast(dict(COLLECTIVES)).sort("event")  # type: ignore[arg-type]


def _kernel_rows(device: pl.DataFrame) -> pl.DataFrame:
    """Return `event`, the row of every kernel in `device`, with its `position` among the kernels and `correlation`."""
    rows = device.select("activity", "correlation", pl.col("position").cast(pl.Int64)).with_row_index("event")
    return rows.filter(pl.col("activity") == "kernel")


def shapes(source: KinetoColumns, device: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Return LAUNCH_SHAPES of the rows of `device_rows`; `calls` are the host's rows with their `name`.

    The grid of a call that takes its grid in threads is in the file as the call got it.
    """
    if "grid" not in device.columns:
        return empty_table(LAUNCH_SHAPES)
    in_threads = calls.filter(pl.col("name").str.contains(IN_THREADS))["correlation"].drop_nulls().unique()
    blocks = pl.when(pl.col("correlation").is_in(in_threads.implode()).fill_null(False))
    sides = {
        name: source.columns.json.convert(device[name].fill_null(0).to_numpy(), volume_of, pl.Int64()) for name in GRID
    }
    rows = device.with_columns(**sides)
    grid = blocks.then(blocks_of(pl.col("grid"), pl.col("block"))).otherwise("grid")
    columns = shape_columns(
        registers=pl.col("registers"), shared_nbytes=pl.col("shared_nbytes"), grid=grid, block=pl.col("block")
    )
    return launch_shapes(rows.with_columns(**columns))
