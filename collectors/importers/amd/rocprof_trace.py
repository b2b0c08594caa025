"""The last part of all importers of AMD's formats: it makes a `Trace` from loose rows and agents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import polars as pl
from msgspec import Struct, field

from deepprof.collectors.importers.amd import places
from deepprof.collectors.importers.amd.places import RocmProcessor
from deepprof.collectors.importers.assembly import Records, assemble
from deepprof.collectors.importers.flags import Tally
from deepprof.collectors.importers.launch_shapes import SHAPES
from deepprof.collectors.trace import STACKS, Trace, empty_table

# Columns that the record table does not have: `process` counts the processes of the file from 0, `pid` is the system's
# process id; `agent` is the key of a GPU in `Loose.agents`; `queue` and `stream_id` are the recorder's own values.
DEVICE = pl.Schema(
    {
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "process": pl.Int64(),
        "agent": pl.String(),
        "queue": pl.Int64(),
        "stream_id": pl.Int64(),
        "activity": pl.String(),
        "name": pl.String(),
        "kernel": pl.Int64(),  # the recorder's id of the kernel, used as its name if it has none
        "correlation": pl.Int64(),
        "nbytes": pl.Int64(),
        "copy_kind": pl.String(),
        "graph_node": pl.Int64(),
    }
)
SHAPED = pl.Schema({**DEVICE, **SHAPES})  # of kernels read with launch shapes
HOST = pl.Schema(
    {
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "process": pl.Int64(),
        "pid": pl.Int64(),
        "thread": pl.Int64(),
        "category": pl.String(),  # of the record table, or "annotation"
        "domain": pl.String(),  # of annotations
        "name": pl.String(),
        "correlation": pl.Int64(),
        "stack_id": pl.UInt32(),
    }
)
ALLOCATION = pl.Schema(
    {
        "time_ns": pl.Int64(),
        "process": pl.Int64(),
        "pid": pl.Int64(),
        "thread": pl.Int64(),
        "agent": pl.String(),
        "address": pl.UInt64(),
        "nbytes": pl.Int64(),  # not negative; 0 for a free without a size
        "freed": pl.Boolean(),
    }
)


class Loose(Struct, frozen=True, kw_only=True, eq=False):
    """Frames of DEVICE (or SHAPED), HOST and ALLOCATION as read from the parts of a file, and of STACKS.

    `shapes` requests launch shapes too.
    """

    device: list[pl.DataFrame] = field(default_factory=list)
    host: list[pl.DataFrame] = field(default_factory=list)
    allocations: list[pl.DataFrame] = field(default_factory=list)
    stacks: list[pl.DataFrame] = field(default_factory=list)
    agents: list[RocmProcessor] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    shapes: bool = False

    def kernels(self, columns: Mapping[str, object], shape: Mapping[str, pl.Expr], rows: pl.DataFrame) -> pl.DataFrame:
        """Return kernels as DEVICE rows, or with `shapes` as SHAPED rows, whose columns of SHAPES are `shape`."""
        return frame(SHAPED, {**columns, **shape}, rows) if self.shapes else frame(DEVICE, columns, rows)


class RocmTrace(Struct, frozen=True):
    """The file of a trace and the name of its format; `advice` explains how to record a trace with kernels."""

    path: Path
    format: str
    advice: str


def frame(schema: pl.Schema, columns: Mapping[str, object], rows: pl.DataFrame) -> pl.DataFrame:
    """Return `columns` computed on `rows` in the types of `schema`; null for values that are absent or do not fit."""
    made = [pl.lit(value) if value is None or isinstance(value, str | int) else value for value in columns.values()]
    named = [value.alias(name) for name, value in zip(columns, made, strict=True)]  # type: ignore[attr-defined]
    absent = [pl.lit(None).alias(name) for name in schema if name not in columns]
    return rows.select(*named, *absent).select(*schema).cast(dict(schema), strict=False)  # type: ignore[arg-type]


def make_trace(what: RocmTrace, loose: Loose, read: int) -> Trace:
    """Return the trace of `loose`; `read` is the number of records that were read."""
    device, host = _together(DEVICE, loose.device), _together(HOST, loose.host)
    memory = _together(ALLOCATION, loose.allocations)
    numbers = places.number_agents(loose.agents, device["agent"].drop_nulls().unique())
    device = places.choose_streams(places.place(_name_unnamed(device, loose.tally), numbers))
    notes = (*_describe(what, device), *loose.notes)
    used = device["device"].unique()
    is_annotation = pl.col("category") == "annotation"
    calls = places.scope_correlations(host.filter(~is_annotation))
    dropped = {reason: count for reason, count in loose.tally.dropped.items() if count}
    records = Records(
        device=places.scope_correlations(device).with_columns(context=pl.lit(None)),
        host=calls.with_columns(process="pid"),
        annotations=host.filter(is_annotation).with_columns(process="pid"),
        memory=_memory_rows(memory, numbers),
        tally=Tally(Counter(dropped), loose.tally.flagged),
    )
    header = {
        "clock": places.clock_of((device, host)),
        "devices": places.list_devices(loose.agents, numbers, used),
        "stacks": pl.concat([empty_table(STACKS), *loose.stacks]),
        "notes": notes,
    }
    return assemble(what.path, what.format, records, read=read, **header)


def _name_unnamed(rows: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Return `rows` with names for kernels that have only an id, so that they stay different; count them."""
    unnamed = pl.col("name").is_null() & pl.col("kernel").is_not_null()
    if count := int(rows.select(unnamed.sum()).item()):
        tally.flagged["unnamed"] += count
    return rows.with_columns(name=pl.when(unnamed).then(pl.format("unknown kernel {}", "kernel")).otherwise("name"))


def _together(schema: pl.Schema, frames: list[pl.DataFrame]) -> pl.DataFrame:
    """Return `frames` concatenated to one frame of `schema`, and of what columns any of them has next to it."""
    return pl.concat([pl.DataFrame(schema=schema), *frames], how="diagonal")


def _describe(what: RocmTrace, device: pl.DataFrame) -> tuple[str, ...]:
    """Return notes on missing kernels or copies, and on processes that share a device."""
    if device.is_empty():
        return (f"the trace has no kernels and no copies: {what.advice}",)
    kernels = device.filter(pl.col("activity") == "kernel")
    shared = device.group_by("device").agg(pl.col("process").n_unique())["process"].max()
    some = (
        (kernels.is_empty(), f"the trace has no kernels: {what.advice}"),
        (
            isinstance(shared, int) and shared > 1,
            "several processes used one device: streams of one number are shown as one",
        ),
    )
    return tuple(note for applies, note in some if applies)


def _memory_rows(rows: pl.DataFrame, numbers: Mapping[str, int]) -> pl.DataFrame:
    """Return ALLOCATION rows as Records.memory: frees are negative, and memory on no GPU is the host's (-1)."""
    rows = signed_sizes(rows)
    device = pl.col("agent").replace_strict(dict(numbers), default=-1, return_dtype=pl.Int64)
    return rows.with_columns(device=device, process="pid")


def signed_sizes(rows: pl.DataFrame) -> pl.DataFrame:
    """Return `rows` with `nbytes` negative where `freed`; a free of size 0 takes the size last allocated there.

    rocprofv3 writes frees with size 0 and without a device: both are taken from the allocation at the same address.
    """
    keys = ["process", "address"]
    ordered = rows.with_row_index("row").sort("time_ns", "freed", maintain_order=True)
    made = pl.when(~pl.col("freed") & (pl.col("address") != 0))
    last = [made.then(pl.col(name)).forward_fill().over(keys).alias(f"last_{name}") for name in ("nbytes", "agent")]
    size = pl.when(pl.col("nbytes") > 0).then("nbytes").otherwise(pl.col("last_nbytes").fill_null(0))
    agent = pl.coalesce("agent", "last_agent")
    freed = pl.col("freed").fill_null(False)
    shaped = ordered.with_columns(last).with_columns(
        nbytes=pl.when(freed).then(-size).otherwise(pl.col("nbytes")),
        agent=pl.when(freed).then(agent).otherwise(pl.col("agent")),
    )
    return shaped.sort("row").select(rows.columns)
