"""The record table: one trace of one rank as a set of polars tables with fixed schemas.

Every importer and collector makes a `Trace`; every higher layer reads one. It is validated once, when it is made, so
that no later code has to check it. Times are integer nanoseconds on one clock, `unix` or `session`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

import polars as pl

from deepprof.collectors.reprs import one_line, shorten_path
from deepprof.plurals import counted

__all__ = [
    "ACTIVITIES",
    "ANNOTATIONS",
    "COLLECTIVES",
    "COPY_KINDS",
    "DEVICES",
    "DEVICE_EVENTS",
    "HOST_CATEGORIES",
    "HOST_EVENTS",
    "MEMORY_EVENTS",
    "OPERANDS",
    "STACKS",
    "Accounting",
    "Process",
    "Trace",
    "empty_table",
]

ACTIVITIES = ("kernel", "memcpy", "memset", "graph", "sync")
COPY_KINDS = ("HtoD", "DtoH", "DtoD", "PtoP", "HtoH")
HOST_CATEGORIES = ("op", "runtime", "python", "dataloader", "overhead", "other")
SIDES = ("host", "device")

# One row per activity that ran on a device. `name_id` indexes `Trace.names` and is the miner's alphabet. `correlation`
# joins a row to the runtime call that launched it (one call may launch many rows: a graph). `graph_node` is set
# for kernels replayed from a graph. `external_id` joins to the operator that was open at launch.
DEVICE_EVENTS = pl.Schema(
    {
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "device": pl.UInt16(),
        "context": pl.UInt32(),
        "stream": pl.Int64(),
        "activity": pl.Enum(ACTIVITIES),
        "name_id": pl.UInt32(),
        "correlation": pl.UInt64(),  # null: no launch record
        "external_id": pl.UInt64(),
        "nbytes": pl.UInt64(),  # copies and memsets
        "copy_kind": pl.Enum(COPY_KINDS),  # copies
        "graph_node": pl.UInt64(),
    }
)

# One row per operator, runtime call, Python function … on a host thread. `span_id` and `parent_id` are the recorder's
# own nesting where it writes one. `sequence` and `forward_thread` join a backward operator to its forward one.
HOST_EVENTS = pl.Schema(
    {
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "process": pl.Int64(),
        "thread": pl.Int64(),
        "category": pl.Enum(HOST_CATEGORIES),
        "name_id": pl.UInt32(),
        "correlation": pl.UInt64(),
        "external_id": pl.UInt64(),
        "sequence": pl.Int64(),
        "forward_thread": pl.Int64(),
        "span_id": pl.Int64(),
        "parent_id": pl.Int64(),
        "module_id": pl.Int64(),
        "stack_id": pl.UInt32(),
        "flops": pl.UInt64(),
    }
)

# Ranges and marks that the user or the framework wrote. `end_ns` is null for a range that was never closed and equals
# `start_ns` for a mark. `framework` is true for ranges that PyTorch itself writes (DataLoader, Optimizer.step …).
ANNOTATIONS = pl.Schema(
    {
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "side": pl.Enum(SIDES),
        "process": pl.Int64(),
        "thread": pl.Int64(),
        "device": pl.UInt16(),
        "stream": pl.Int64(),
        "name_id": pl.UInt32(),
        "domain": pl.String(),
        "framework": pl.Boolean(),
    }
)

MEMORY_EVENTS = pl.Schema(
    {
        "time_ns": pl.Int64(),
        "process": pl.Int64(),
        "thread": pl.Int64(),
        "device": pl.Int32(),  # -1: host memory
        "address": pl.UInt64(),
        "nbytes": pl.Int64(),  # negative: freed
        "allocated_nbytes": pl.UInt64(),  # total after the event
        "reserved_nbytes": pl.UInt64(),
    }
)

DEVICES = pl.Schema(
    {
        "device": pl.UInt16(),
        "name": pl.String(),
        "memory_nbytes": pl.UInt64(),
        "multiprocessors": pl.UInt32(),
        "properties": pl.String(),  # the recorder's own record, as JSON
    }
)

# Side tables: detail of rows above, joined by row number (`event`) or id; they hold no records of their own.
COLLECTIVES = pl.Schema(
    {
        "event": pl.UInt32(),  # row of device_events
        "collective": pl.String(),
        "dtype": pl.String(),
        "in_elements": pl.UInt64(),
        "out_elements": pl.UInt64(),
        "group": pl.String(),
        "group_size": pl.UInt32(),
        "sequence": pl.UInt64(),
    }
)
OPERANDS = pl.Schema({"event": pl.UInt32(), "dims": pl.String(), "dtypes": pl.String()})  # row of host_events; JSON
STACKS = pl.Schema({"stack_id": pl.UInt32(), "frames": pl.String()})

TABLES: Mapping[str, pl.Schema] = MappingProxyType(
    {
        "device_events": DEVICE_EVENTS,
        "host_events": HOST_EVENTS,
        "annotations": ANNOTATIONS,
        "memory_events": MEMORY_EVENTS,
        "devices": DEVICES,
        "collectives": COLLECTIVES,
        "operands": OPERANDS,
        "stacks": STACKS,
    }
)
RECORD_TABLES = ("device_events", "host_events", "annotations", "memory_events")  # each row is one record read
REQUIRED = ("start_ns", "time_ns", "device", "stream", "activity", "name_id", "category", "side")


def empty_table(schema: pl.Schema) -> pl.DataFrame:
    """Return a table of `schema` without rows."""
    return pl.DataFrame(schema=schema)


@dataclass(frozen=True, slots=True)
class Accounting:
    """The accounting of every record read: `read == kept + Σ dropped`.

    `dropped` counts records that are in no table, by reason (`metadata`, `flow`, `invalid` …). `flagged` counts
    records that are kept but need a note (`unlinked`: no launch record, `zero-duration`, `overlapping` …).
    """

    read: int
    kept: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    flagged: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.read != self.kept + sum(self.dropped.values()):
            raise ValueError(f"records lost: read {self.read} != kept {self.kept} + dropped {dict(self.dropped)}")


@dataclass(frozen=True, slots=True)
class Process:
    """A process whose work on devices a trace holds: its id, its name, and the contexts that are its own.

    `devices` maps each device number of the process to an identity that is valid outside it, such as the device's
    UUID: two processes with one identity share the device, whatever number it has in each. Empty if not recorded.
    """

    id: int
    name: str | None = None
    contexts: tuple[int, ...] = ()
    devices: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One rank's recorded trace.

    `names` is a String series indexed by `name_id`. Tables are sorted by their first column. `processes` are the
    processes whose work it holds, empty if not recorded; no two of them have a context in common, and
    `collectors.processes` makes a trace of each. `breaks_ns` are the times, ascending, at which the recording was
    interrupted: events that start at one or later do not continue those that started before it. Raises `ValueError`
    when a table does not have its schema or the accounting does not add up: that is an importer's bug.
    """

    path: str
    format: str
    names: pl.Series
    accounting: Accounting
    device_events: pl.DataFrame = field(default_factory=lambda: empty_table(DEVICE_EVENTS))
    host_events: pl.DataFrame = field(default_factory=lambda: empty_table(HOST_EVENTS))
    annotations: pl.DataFrame = field(default_factory=lambda: empty_table(ANNOTATIONS))
    memory_events: pl.DataFrame = field(default_factory=lambda: empty_table(MEMORY_EVENTS))
    devices: pl.DataFrame = field(default_factory=lambda: empty_table(DEVICES))
    collectives: pl.DataFrame = field(default_factory=lambda: empty_table(COLLECTIVES))
    operands: pl.DataFrame = field(default_factory=lambda: empty_table(OPERANDS))
    stacks: pl.DataFrame = field(default_factory=lambda: empty_table(STACKS))
    clock: Literal["unix", "session"] = "unix"
    epoch_ns: int | None = None  # unix time of a session clock's zero, where the recorder wrote it
    rank: int | None = None
    world_size: int | None = None
    notes: tuple[str, ...] = ()
    processes: tuple[Process, ...] = ()
    breaks_ns: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for table, schema in TABLES.items():
            check_table(table, getattr(self, table), schema, len(self.names))
        kept = sum(getattr(self, table).height for table in RECORD_TABLES)
        if kept != self.accounting.kept:
            raise ValueError(f"accounting says {self.accounting.kept} records kept, the tables hold {kept}")
        backward = (self.device_events["end_ns"] < self.device_events["start_ns"]).sum()
        if backward:
            raise ValueError(f"device_events: {backward} rows end before they start")

    def __repr__(self) -> str:
        rank = "" if self.rank is None else f"rank {self.rank}"
        device, host = self.device_events.height, self.host_events.height
        events = (counted(device, "device event"), counted(host, "host event"))
        return one_line(self, shorten_path(self.path), self.format, rank, *events)

    def name(self, name_id: int) -> str:
        """Return the name whose id is `name_id`."""
        return str(self.names[name_id])


def check_table(table: str, rows: pl.DataFrame, schema: pl.Schema, names: int) -> None:
    """Raise `ValueError` unless `rows` has `schema`, is sorted, and holds no null where a value is required."""
    if rows.schema != schema:
        raise ValueError(f"{table}: columns {dict(rows.schema)}, expected {dict(schema)}")
    required = [c for c in REQUIRED if c in schema and (table, c) not in OPTIONAL]
    nulls = [c for c in required if rows[c].null_count()]
    if nulls:
        raise ValueError(f"{table}: nulls in {', '.join(nulls)}")
    if not rows[rows.columns[0]].is_sorted():
        raise ValueError(f"{table}: not sorted by {rows.columns[0]}")
    if "name_id" in schema and rows.height and int(rows["name_id"].max()) >= names:  # type: ignore[arg-type]
        raise ValueError(f"{table}: a name_id beyond the {names} names")


OPTIONAL = {("annotations", "device"), ("annotations", "stream"), ("memory_events", "device")}
