"""The record table: one trace of one rank as a set of polars tables with fixed schemas.

Every importer and collector makes a `Trace`; every higher layer reads one. It is validated once, when it is made, so
that no later code has to check it. Times are integer nanoseconds on one clock, `unix` or `session`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import polars as pl
from msgspec import Struct, field

from deepprof.collectors.context_nodes import CONTEXT_KINDS, find_fault
from deepprof.collectors.instructions import EVENT_INSTRUCTIONS, INSTRUCTIONS
from deepprof.collectors.reprs import one_line, shorten_path
from deepprof.collectors.table_schema import ROW, TableJoin, TableSchema
from deepprof.plurals import counted

ACTIVITIES = ("kernel", "memcpy", "memset", "graph", "sync")
WORK_ACTIVITIES = ("kernel", "memcpy", "memset", "graph")  # in a `sync` a device waits
COPY_KINDS = ("HtoD", "DtoH", "DtoD", "PtoP", "HtoH")
HOST_CATEGORIES = ("op", "runtime", "python", "dataloader", "overhead", "other")
SIDES = ("host", "device")

I64, U16, U32, U64, TEXT = pl.Int64(), pl.UInt16(), pl.UInt32(), pl.UInt64(), pl.String()

DEVICE_EVENTS = TableSchema.of(
    "One activity that ran on a device.",
    {
        "start_ns": (I64, "when it began"),
        "end_ns": (I64, "when it ended"),
        "device": (U16, "the number of the device in the recording"),
        "context": (U32, "the driver's context"),
        "stream": (I64, "the stream on which it ran"),
        "activity": (pl.Enum(ACTIVITIES), "what it was; a `graph` is a whole graph recorded as one event"),
        "name_id": (U32, "its name, and the miner's alphabet"),
        "correlation": (U64, "the runtime call that launched it, of which a graph has many rows; null: not recorded"),
        "external_id": (U64, "the operator that was open at its launch; null: not recorded"),
        "nbytes": (U64, "the size of a copy or memset; null: not recorded, or neither"),
        "copy_kind": (pl.Enum(COPY_KINDS), "the direction of a copy; null: not recorded, or no copy"),
        "graph_node": (U64, "the node of a graph from which it was replayed, else null"),
    },
)
HOST_EVENTS = TableSchema.of(
    "One operator, runtime call, Python function … on a thread of the host.",
    {
        "start_ns": (I64, "when it began"),
        "end_ns": (I64, "when it ended"),
        "process": (I64, "the id of its process"),
        "thread": (I64, "the id of its thread"),
        "category": (pl.Enum(HOST_CATEGORIES), "what it was; `runtime` is a call of CUDA or HIP"),
        "name_id": (U32, "its name"),
        "correlation": (U64, "of a runtime call: what it launched has the same"),
        "external_id": (U64, "of an operator: what was launched in it has the same"),
        "sequence": (I64, "autograd's number, which a backward operator shares with its forward one"),
        "forward_thread": (I64, "of a backward operator: the thread of the forward one"),
        "span_id": (I64, "the recorder's own number of the row, where it nests rows"),
        "parent_id": (I64, "the `span_id` of the row that it lies in"),
        "module_id": (I64, "the number of the `nn.Module` whose function it is"),
        "stack_id": (U32, "the call stack; null: none, or read without `details`"),
        "flops": (U64, "floating-point operations, as the recorder estimates them"),
    },
)
ANNOTATIONS = TableSchema.of(
    "One range or mark that the user or a framework wrote.",
    {
        "start_ns": (I64, "when it began"),
        "end_ns": (I64, "when it ended; `start_ns` for a mark, null for a range that was never closed"),
        "side": (pl.Enum(SIDES), "whether it lies on a thread of the host or on a stream"),
        "process": (I64, "the id of its process; null on the device"),
        "thread": (I64, "the id of its thread; null on the device"),
        "device": (U16, "the number of its device; null on the host"),
        "stream": (I64, "its stream; null on the host"),
        "name_id": (U32, "its name"),
        "domain": (TEXT, "the NVTX domain; null: none"),
        "framework": (pl.Boolean(), "whether PyTorch itself writes it (DataLoader, Optimizer.step …)"),
    },
)
MEMORY_EVENTS = TableSchema.of(
    "One allocation or release of memory.",
    {
        "time_ns": (I64, "when it happened"),
        "process": (I64, "the id of its process"),
        "thread": (I64, "the id of its thread"),
        "device": (pl.Int32(), "the number of the device, -1 for memory of the host; cast it to join others"),
        "address": (U64, "where the memory lies"),
        "nbytes": (I64, "its size, negative for a release"),
        "allocated_nbytes": (U64, "in use after the event, in all"),
        "reserved_nbytes": (U64, "held by the allocator after the event, in all"),
    },
)
SEGMENTS = TableSchema.of(
    "One stretch of device memory that the allocator took from the driver or gave back.",
    {
        "time_ns": (I64, "when it happened"),
        "device": (pl.Int32(), "the number of the device"),
        "address": (U64, "where the stretch begins"),
        "nbytes": (I64, "its size, negative where it was given back"),
        "stream": (I64, "the stream for whose allocations it was taken"),
    },
)
FAILED_ALLOCATIONS = TableSchema.of(
    "One allocation for which there was no room.",
    {
        "time_ns": (I64, "when it failed"),
        "device": (pl.Int32(), "the number of the device"),
        "nbytes": (I64, "how much was asked for"),
        "free_nbytes": (U64, "what the driver had left on the device; null: not recorded"),
        "stack_id": (U32, "the call stack; null: none"),
    },
)
CONTEXT_SUMS = TableSchema.of(
    "What one calling context did in a window of time, its callees included.",
    {
        "time_ns": (I64, "when the window began"),
        "window_ns": (I64, "how long it lasted"),
        "context": (U64, "the context, of which a window can have several rows"),
        "count": (U64, "how often the context began"),
        "host_ns": (I64, "the time that threads were in it"),
        "device_count": (U64, "the device events that it launched itself; they may have run after the window"),
        "device_ns": (I64, "their time, each counted whole"),
    },
)
DEVICES = TableSchema.of(
    "One device that the recording names.",
    {
        "device": (U16, "its number"),
        "name": (TEXT, "its model"),
        "memory_nbytes": (U64, "its memory"),
        "multiprocessors": (U32, "how many multiprocessors (compute units) it has"),
        "properties": (TEXT, "the recorder's own record, as JSON"),
    },
)

# Side tables: detail of rows above, joined by row number (`event`) or id; they hold no their own records.
COLLECTIVES = TableSchema.of(
    "What the recorder says of one collective's kernel.",
    {
        "event": (U32, "the row of `device_events`"),
        "collective": (TEXT, "which one"),
        "dtype": (TEXT, "the type of its elements"),
        "in_elements": (U64, "how many elements go in"),
        "out_elements": (U64, "how many elements come out"),
        "group": (TEXT, "the name of the process group"),
        "group_size": (U32, "how many ranks the group has"),
        "sequence": (U64, "its number in the group"),
    },
)
LAUNCH_SHAPES = TableSchema.of(
    "How one kernel was launched; not read with `shapes=False`.",
    {
        "event": (U32, "the row of `device_events`"),
        "registers": (U32, "registers per thread; on AMD vector registers, accumulators included"),
        "shared_nbytes": (U64, "shared memory (LDS) per block, static and dynamic"),
        "grid": (U64, "blocks in all"),
        "block": (U32, "threads per block"),
    },
)
OPERANDS = TableSchema.of(
    "The operands of one operator; not read with `shapes=False`.",
    {
        "event": (U32, "the row of `host_events`"),
        "dims": (TEXT, "their shapes, as JSON"),
        "dtypes": (TEXT, "their types, as JSON"),
        "values": (TEXT, "the values of those that are no tensors, as a JSON list of texts; null: not recorded"),
        "strides": (TEXT, "their strides in elements, as JSON; null: not recorded"),
    },
)
ALLOCATIONS = TableSchema.of(
    "What the allocator says of one memory event; read with `details`.",
    {
        "event": (U32, "the row of `memory_events`"),
        "stream": (I64, "the stream for which the memory was allocated; null: not recorded"),
        "stack_id": (U32, "the call stack; null: not recorded"),
    },
)
STACK_MEANING = (
    "its frames, the innermost first, separated by `;`: `file(line): function` is a Python function at a line, "
    "`name/` a name scope of a compiled program, and any other name a native function"
)
STACKS = TableSchema.of(
    "One call stack; read with `details`, but for those of failed allocations.",
    {"stack_id": (U32, "its number"), "frames": (TEXT, STACK_MEANING)},
)
CONTEXT_NODES = TableSchema.of(
    "One calling context: a frame of Python, an operator or a native frame, and what called it.",
    {
        "context": (U64, "a hash of its path from the root, equal in all processes and ranks; never 0"),
        "parent": (U64, "the context that called it; 0: none"),
        "kind": (pl.Enum(CONTEXT_KINDS), "what it is; `python` is a frame"),
        "name_id": (U32, "its name; of a frame of Python `file(first line): function`"),
        "line": (U32, "the line that was running in a frame of Python; 0: not known"),
    },
)
EVENT_STACKS = TableSchema.of(
    "On whose behalf a device event ran, where the recorder knows more than its launch; read with `details`.",
    {"event": (U32, "the row of `device_events`"), "stack_id": (U32, "the call stack")},
)
ACCESSES = TableSchema.of(
    "What one kernel accessed of one block of device memory, counted by patched instructions; stored, not sent.",
    {
        "event": (U32, "the row of `device_events`"),
        "address": (U64, "where the block begins; null: of all blocks for which there was no room"),
        "nbytes": (U64, "the size of the block"),
        "reads": (U64, "accesses that read, one for each thread"),
        "read_nbytes": (U64, "what they read, each byte as often as it was read"),
        "writes": (U64, "accesses that write; an atomic operation may be both"),
        "write_nbytes": (U64, "what they write, each byte as often as it was written"),
    },
)
LAYERS = TableSchema.of(
    "One operator of a forward pass of the model, in order; stored, not sent.",
    {
        "position": (U32, "its place in the forward pass, and the row's"),
        "operator": (TEXT, "its name, as PyTorch's profiler writes it"),
        "layer": (TEXT, "the path of its module in the model, by attributes; of the model itself its class"),
        "layer_class": (TEXT, "the class of the module; null: not known"),
        "call": (U32, "which call of the module in the forward pass, from 0 on"),
    },
)
STALLS = TableSchema.of(
    "One reason why the warps of one kernel do not go on; from an export of Nsight Compute, neither stored nor sent.",
    {
        "name_id": (U32, "the name of the kernel"),
        "reason": (TEXT, "the reason, as Nsight Compute calls it; `selected` and `not_selected` are none"),
        "share_ratio": (pl.Float64(), "its share of the time of all warps of the kernel"),
    },
)

TABLES: Mapping[str, TableSchema] = MappingProxyType(
    {
        "device_events": DEVICE_EVENTS,
        "host_events": HOST_EVENTS,
        "annotations": ANNOTATIONS,
        "memory_events": MEMORY_EVENTS,
        "segments": SEGMENTS,
        "failed_allocations": FAILED_ALLOCATIONS,
        "context_sums": CONTEXT_SUMS,
        "devices": DEVICES,
        "collectives": COLLECTIVES,
        "launch_shapes": LAUNCH_SHAPES,
        "operands": OPERANDS,
        "stacks": STACKS,
        "event_stacks": EVENT_STACKS,
        "instructions": INSTRUCTIONS,
        "event_instructions": EVENT_INSTRUCTIONS,
        "allocations": ALLOCATIONS,
        "accesses": ACCESSES,
        "context_nodes": CONTEXT_NODES,
    }
)
GIVEN_TABLES: Mapping[str, TableSchema] = MappingProxyType({"layers": LAYERS, "stalls": STALLS})  # not recorded
NAME = (("name_id", ROW),)
TRACE_JOINS = (
    TableJoin("device_events", "names", NAME, "the name of each event"),
    TableJoin("host_events", "names", NAME, "the name of each event"),
    TableJoin("annotations", "names", NAME, "the name of each range"),
    TableJoin("device_events", "host_events", (("correlation", "correlation"),), "the call that launched it"),
    TableJoin("device_events", "host_events", (("external_id", "external_id"),), "the operator open at its launch"),
    TableJoin("device_events", "devices", (("device", "device"),), "the model of the device"),
    TableJoin("annotations", "devices", (("device", "device"),), "the model of the device, on the device's side"),
    TableJoin("host_events", "host_events", (("parent_id", "span_id"),), "the row that it lies in"),
    TableJoin("host_events", "stacks", (("stack_id", "stack_id"),), "its call stack"),
    TableJoin("event_stacks", "stacks", (("stack_id", "stack_id"),), "the call stack of the event"),
    TableJoin("event_stacks", "device_events", (("event", ROW),), "the event that has the stack"),
    TableJoin("event_instructions", "instructions", (("instruction", "instruction"),), "the instruction that ran"),
    TableJoin("event_instructions", "device_events", (("event", ROW),), "the event that ran it"),
    TableJoin("allocations", "memory_events", (("event", ROW),), "the memory event"),
    TableJoin("allocations", "stacks", (("stack_id", "stack_id"),), "the call stack of the allocation"),
    TableJoin("failed_allocations", "stacks", (("stack_id", "stack_id"),), "the call stack of the allocation"),
    TableJoin("operands", "host_events", (("event", ROW),), "the operator whose operands they are"),
    TableJoin("collectives", "device_events", (("event", ROW),), "the kernel of the collective"),
    TableJoin("launch_shapes", "device_events", (("event", ROW),), "the kernel that was launched"),
    TableJoin("accesses", "device_events", (("event", ROW),), "the kernel that accessed it"),
    TableJoin("context_sums", "context_nodes", (("context", "context"),), "the context"),
    TableJoin("context_nodes", "context_nodes", (("parent", "context"),), "the context that called it"),
    TableJoin("context_nodes", "names", NAME, "the name of each context"),
    TableJoin("stalls", "names", NAME, "the name of the kernel"),
)
# Each row of them is one record read.
RECORD_TABLES = (
    *("device_events", "host_events", "annotations"),
    *("memory_events", "segments", "failed_allocations", "context_sums"),
)
REQUIRED = ("start_ns", "time_ns", "device", "stream", "activity", "name_id", "category", "side")


def empty_table(schema: pl.Schema) -> pl.DataFrame:
    """Return a table of `schema` without rows."""
    return pl.DataFrame(schema=schema)


class Accounting(Struct, frozen=True):
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


class Process(Struct, frozen=True):
    """A process whose work on devices a trace holds: its id, its name, and the contexts that are its own.

    `devices` maps each device number of the process to an identity that is valid outside it, such as the device's
    UUID: two processes with one identity share the device, whatever number it has in each. Empty if not recorded.
    """

    id: int
    name: str | None = None
    contexts: tuple[int, ...] = ()
    devices: tuple[tuple[int, str], ...] = ()


class Trace(Struct, frozen=True, kw_only=True, eq=False):
    """One rank's recorded trace.

    `names` is a String series indexed by `name_id`: `names.to_frame("name").with_row_index("name_id")` joins tables.
    Tables are sorted by their first column. `processes` are the processes whose work it holds, empty if not
    recorded; no two of them have a context in common, and `collectors.processes` makes a trace of each. `breaks_ns` are
    the times, ascending, at which the recording was interrupted: events that start at one or later do not continue
    those that started before it. Raises `ValueError` when a table does not have its schema or the accounting does not
    add up: that is an importer's bug."""

    path: str
    format: str
    names: pl.Series
    accounting: Accounting
    device_events: pl.DataFrame = field(default_factory=lambda: empty_table(DEVICE_EVENTS))
    host_events: pl.DataFrame = field(default_factory=lambda: empty_table(HOST_EVENTS))
    annotations: pl.DataFrame = field(default_factory=lambda: empty_table(ANNOTATIONS))
    memory_events: pl.DataFrame = field(default_factory=lambda: empty_table(MEMORY_EVENTS))
    segments: pl.DataFrame = field(default_factory=lambda: empty_table(SEGMENTS))
    failed_allocations: pl.DataFrame = field(default_factory=lambda: empty_table(FAILED_ALLOCATIONS))
    context_sums: pl.DataFrame = field(default_factory=lambda: empty_table(CONTEXT_SUMS))
    devices: pl.DataFrame = field(default_factory=lambda: empty_table(DEVICES))
    collectives: pl.DataFrame = field(default_factory=lambda: empty_table(COLLECTIVES))
    launch_shapes: pl.DataFrame = field(default_factory=lambda: empty_table(LAUNCH_SHAPES))
    operands: pl.DataFrame = field(default_factory=lambda: empty_table(OPERANDS))
    stacks: pl.DataFrame = field(default_factory=lambda: empty_table(STACKS))
    event_stacks: pl.DataFrame = field(default_factory=lambda: empty_table(EVENT_STACKS))
    instructions: pl.DataFrame = field(default_factory=lambda: empty_table(INSTRUCTIONS))
    event_instructions: pl.DataFrame = field(default_factory=lambda: empty_table(EVENT_INSTRUCTIONS))
    allocations: pl.DataFrame = field(default_factory=lambda: empty_table(ALLOCATIONS))
    accesses: pl.DataFrame = field(default_factory=lambda: empty_table(ACCESSES))
    context_nodes: pl.DataFrame = field(default_factory=lambda: empty_table(CONTEXT_NODES))
    layers: pl.DataFrame = field(default_factory=lambda: empty_table(LAYERS))
    stalls: pl.DataFrame = field(default_factory=lambda: empty_table(STALLS))
    clock: Literal["unix", "session"] = "unix"
    epoch_ns: int | None = None  # unix time of a session clock's zero, where the recorder wrote it
    rank: int | None = None
    world_size: int | None = None
    notes: tuple[str, ...] = ()
    processes: tuple[Process, ...] = ()
    breaks_ns: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for table, schema in (*TABLES.items(), *GIVEN_TABLES.items()):
            check_table(table, getattr(self, table), schema, len(self.names))
        if fault := find_fault(self.context_nodes, self.context_sums):
            raise ValueError(f"context_nodes: {fault}")
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
    """Raise `ValueError` unless `rows` has `schema`, is sorted, and contains no null where a value is required."""
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


OPTIONAL = {
    ("annotations", "device"),
    ("annotations", "stream"),
    ("memory_events", "device"),
    ("allocations", "stream"),
}
