"""The tables of one process in a rocprofv3 database as loose rows. Any table and any column may be missing.

Three layouts are in use. In 3.0.x an event's own row contains where it ran; in 4.1 its row of `rocpd_track` does, and
categories have their own table; in the layout between the two, times have their own table too.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
import polars as pl
from msgspec import Struct

from deepprof.collectors.importers.amd import words
from deepprof.collectors.importers.amd.places import RocmProcessor
from deepprof.collectors.importers.amd.rocprof_trace import ALLOCATION, DEVICE, HOST, Loose, frame
from deepprof.collectors.importers.launch_shapes import blocks_of, product_of, shape_columns

if TYPE_CHECKING:
    from deepprof.collectors.importers.sqlite.sqlite_database import SqliteDatabase

AGENTS, NODES, PROCESSES = "rocpd_info_agent", "rocpd_info_node", "rocpd_info_process"
PLACE = ("pid", "tid", "agent_id", "queue_id", "stream_id")
TIMES = ("start", "end", "timestamp")
# Tables that have no counterpart in the record table, and the reason under which their rows are counted as dropped.
OTHERS = {
    "rocpd_pmc_event": "counter",
    "rocpd_hip_event": "unsupported",
    "rocpd_event_operation": "unsupported",
    "rocpd_graph_launch": "unsupported",  # a summary: the kernels of the graph are dispatches
}
MARKERS = "MARKER"
REGISTERS = ("arch_vgpr_count", "accum_vgpr_count")
LAUNCH = ("group_segment_size", *(f"{what}_size_{side}" for what in ("grid", "workgroup") for side in "xyz"))

AGENTS, NODES, PROCESSES = "rocpd_info_agent", "rocpd_info_node", "rocpd_info_process"


class RocpdPart(Struct, frozen=True, dict=True):
    """The tables of `database` that end in `ending`."""

    database: SqliteDatabase
    ending: str

    def table(self, name: str, columns: tuple[str, ...]) -> pl.DataFrame:
        """Return `columns` of the table `name` as Int64, null where it lacks them."""
        return self.database.integers(name + self.ending, dict.fromkeys(columns))

    def texts(self, name: str, column: str) -> pl.Series:
        """Return `column` of the table `name` as String."""
        return self.database.texts(name + self.ending, column)

    def lookup(self, name: str, column: str) -> pl.DataFrame:
        """Return the texts of the table `name` as `id` and `text`; the first one where an id occurs twice."""
        return _first_of_each(self.table(name, ("id",)).with_columns(text=self.texts(name, column)))

    @cached_property
    def strings(self) -> pl.DataFrame:
        """The texts of `rocpd_string`."""
        return self.lookup("rocpd_string", "string")

    @cached_property
    def tracks(self) -> pl.DataFrame:
        """Where events ran, by `track_id`, in layouts whose event rows do not contain it."""
        rows = _first_of_each(self.table("rocpd_track", ("id", *PLACE, "name_id")))
        return rows.rename({name: f"track_{name}" for name in rows.columns})

    @cached_property
    def events(self) -> pl.DataFrame:
        """`event_id`, `correlation` and `category` of every event.

        The correlation id of other tools is called `stack_id` here; `correlation_id` is the application's own id, and
        is used where `stack_id` is empty.
        """
        rows = _first_of_each(self.table("rocpd_event", ("id", "stack_id", "correlation_id", "category_id")))
        categories = self.lookup("rocpd_info_category", "name")
        categories = self.strings if categories.is_empty() else categories
        rows = words.add_text(rows, categories, "category_id", "category")
        stack = pl.when(pl.col("stack_id") > 0).then("stack_id")
        return rows.select(event_id="id", correlation=pl.coalesce(stack, "correlation_id"), category="category")

    @cached_property
    def timestamps(self) -> pl.DataFrame:
        """The times that rows refer to by id."""
        return _first_of_each(self.table("rocpd_timestamp", ("id", "value")))

    def rows(self, name: str, columns: tuple[str, ...]) -> pl.DataFrame:
        """Return `columns` of the table `name`, with the times, the place and the event columns of every row."""
        ids = tuple(f"{time}_id" for time in TIMES)
        rows = self.table(name, ("id", *columns, *TIMES, *ids, *PLACE, "track_id", "event_id"))
        for time in TIMES:
            rows = self.resolve(rows, time)
        rows = rows.join(self.tracks, on="track_id", how="left", maintain_order="left")
        rows = rows.with_columns(pl.coalesce(column, f"track_{column}").alias(column) for column in PLACE)
        return rows.join(self.events, on="event_id", how="left", maintain_order="left")

    def resolve(self, rows: pl.DataFrame, time: str) -> pl.DataFrame:
        """Return `rows` with the column `time` looked up by its id, where there are ids."""
        if not rows[f"{time}_id"].count():
            return rows
        table = self.timestamps.rename({"id": f"{time}_id", "value": f"{time}_value"})
        joined = rows.join(table, on=f"{time}_id", how="left", maintain_order="left")
        return joined.with_columns(pl.coalesce(time, f"{time}_value").alias(time))


def _first_of_each(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the first row of every `id`, so that a join on it never duplicates a record."""
    return rows.drop_nulls("id").unique("id", keep="first", maintain_order=True)


def read_part(part: RocpdPart, loose: Loose) -> int:
    """Add the records of `part` to `loose`; return how many there are."""
    agents = _read_agents(part)
    numbered = [rows["process"].max() for rows in (*loose.device, *loose.host)]
    processes = _read_processes(part, 1 + max((at for at in numbered if isinstance(at, int)), default=-1))
    loose.agents.extend(agents.listed)
    device = [_read_kernels(part, loose), _read_copies(part)]
    host = [_read_regions(part, "rocpd_region"), _read_regions(part, "rocpd_sample")]
    memory = _read_allocations(part)
    read = sum(rows.height for rows in (*device, *host, memory))
    loose.device.append(processes.of_device(agents.keyed(pl.concat(device, how="diagonal"))))
    loose.host.append(processes.of_host(pl.concat(host)))
    loose.allocations.append(processes.of_host(agents.keyed(memory)))
    for table, reason in OTHERS.items():
        if rows := part.database.count(table + part.ending):
            loose.tally.dropped[reason] += rows
            read += rows
    return read


def _read_kernels(part: RocpdPart, loose: Loose) -> pl.DataFrame:
    """Return the dispatches as DEVICE or SHAPED rows; `process` is the writer's own key."""
    shape, registers = (LAUNCH, REGISTERS) if loose.shapes else ((), ())
    rows = part.rows("rocpd_kernel_dispatch", ("kernel_id", "graph_node_id", *shape))
    symbols = part.table("rocpd_info_kernel_symbol", ("id", *registers)).with_columns(
        label=words.kernel_label(pl.lit(part.texts("rocpd_info_kernel_symbol", "display_name"))),
        mangled=words.kernel_label(pl.lit(part.texts("rocpd_info_kernel_symbol", "kernel_name"))),
    )
    symbols = _first_of_each(symbols).select(*registers, kernel_id="id", name=pl.coalesce("label", "mangled"))
    rows = rows.join(symbols, on="kernel_id", how="left", maintain_order="left")
    columns = {**_placed(), "activity": "kernel", "name": pl.col("name"), "kernel": pl.col("kernel_id")}
    return loose.kernels(columns, _shape_of_dispatches(), rows)


def _shape_of_dispatches() -> dict[str, pl.Expr]:
    """Return the columns of SHAPES; the size of a grid is in threads."""
    grid, block = (product_of([pl.col(f"{what}_size_{side}") for side in "xyz"]) for what in ("grid", "workgroup"))
    return shape_columns(
        registers=pl.col(REGISTERS[0]) + pl.col(REGISTERS[1]).fill_null(0),
        shared_nbytes=pl.col("group_segment_size"),
        grid=blocks_of(grid, block),
        block=block,
    )


def _placed() -> dict[str, pl.Expr]:
    """Return the columns that all DEVICE rows take from `RocpdPart.rows`."""
    names = {"start_ns": "start", "end_ns": "end", "process": "pid", "agent": "agent_id", "queue": "queue_id"}
    more = {"stream_id": "stream_id", "correlation": "correlation", "graph_node": "graph_node_id"}
    return {name: pl.col(column) for name, column in (names | more).items()}


def _read_copies(part: RocpdPart) -> pl.DataFrame:
    rows = part.rows("rocpd_memory_copy", ("name_id", "dst_agent_id", "src_agent_id", "size", "graph_node_id"))
    rows = words.add_text(rows, part.strings, "name_id", "text")
    rows = words.labelled(rows, "text", kind=words.copy_kind_of, label=words.copy_name)
    return frame(
        DEVICE, {**_placed(), **words.copy_columns("dst_agent_id", "src_agent_id"), "nbytes": pl.col("size")}, rows
    )


def _read_regions(part: RocpdPart, table: str) -> pl.DataFrame:
    """Return calls and markers as HOST rows; `process` is the writer's own key. `rocpd_sample` rows have no length."""
    rows = words.add_text(part.rows(table, ("name_id",)), part.strings, "name_id", "operation")
    rows = words.add_text(rows, part.strings, "track_name_id", "track")
    marker = pl.col("category").str.contains(MARKERS).fill_null(False)
    rows = _add_messages(part, rows, bool(rows.select(marker.any()).item()))
    rows = words.labelled(rows, "category", known=words.domain_category)
    return frame(
        HOST,
        {
            "start_ns": pl.coalesce("start", "timestamp"),
            "end_ns": pl.coalesce("end", "timestamp"),
            "process": pl.col("pid"),
            "thread": pl.col("tid"),
            "category": pl.col("known"),
            "name": pl.coalesce(pl.when(marker).then("message"), "operation", "track", "category"),
            "correlation": pl.col("correlation"),
        },
        rows,
    )


class _Extra(msgspec.Struct):
    """The field of `rocpd_event.extdata` that is read for a marker."""

    message: str | None = None


def _add_messages(part: RocpdPart, rows: pl.DataFrame, wanted: bool) -> pl.DataFrame:
    """Return `rows` with the `message` of their markers, null if none; texts are read only if `wanted`."""
    if not wanted:
        return rows.with_columns(message=pl.lit(None, pl.String))
    extra = part.table("rocpd_event", ("id",)).with_columns(extra=part.texts("rocpd_event", "extdata"))
    extra = (
        _first_of_each(extra)
        .select("extra", event_id="id")
        .join(rows.select("event_id").unique(), on="event_id", how="semi")
    )
    extra = words.labelled(extra, "extra", message=_message_of).drop("extra")
    return rows.join(extra, on="event_id", how="left", maintain_order="left")


def _message_of(text: str | None) -> str | None:
    """Return the message in the JSON `text`, None where it is something else (or compressed)."""
    try:
        return msgspec.json.decode(text or "{}", type=_Extra).message or None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _read_allocations(part: RocpdPart) -> pl.DataFrame:
    """Return allocations and frees as ALLOCATION rows; `process` is the writer's own key."""
    rows = part.rows("rocpd_memory_allocate", ("size", "address"))
    return frame(
        ALLOCATION,
        {
            "time_ns": pl.col("end"),
            "process": pl.col("pid"),
            "thread": pl.col("tid"),
            "agent": pl.col("agent_id"),
            "address": pl.col("address"),
            "nbytes": pl.col("size"),
            "freed": pl.lit(part.texts("rocpd_memory_allocate", "type") == "FREE"),
        },
        rows,
    )


class _RocpdAgents(Struct, frozen=True):
    """The agents of one part; every process on a node lists the same processors."""

    node: str
    listed: list[RocmProcessor]

    def keyed(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return `rows` with the ids in `agent` made into keys."""
        return rows.with_columns(agent=pl.lit(self.node + " ") + pl.col("agent"))


def _read_agents(part: RocpdPart) -> _RocpdAgents:
    """Return the agents of `part`; a GPU's number is the recorder's own count of GPUs, from 0."""
    rows = part.table(AGENTS, ("id", "type_index"))
    kinds, names = part.texts(AGENTS, "type"), [part.texts(AGENTS, name) for name in ("product_name", "name")]
    rows = rows.with_columns(kind=kinds, label=pl.coalesce(*(pl.when(name != "").then(name) for name in names)))
    node = _name_node(part)
    listed = [
        RocmProcessor(key=f"{node} {key}", node=node, gpu=kind == "GPU", number=number, name=label)
        for key, number, kind, label in rows.sort("id").drop_nulls("id").iter_rows()
    ]
    return _RocpdAgents(node, listed)


def _name_node(part: RocpdPart) -> str:
    """Return a name that distinguishes the node of `part` from others."""
    names = (part.texts(NODES, column) for column in ("machine_id", "hostname"))
    return next((name for series in names for name in series if name), part.ending)


class _RocpdProcesses(Struct, frozen=True, eq=False):
    """The processes of one part: `table` maps `key`, the id in the rows, to `table_pid` and to the number `process`."""

    table: pl.DataFrame
    fallback: int

    def of_device(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return DEVICE `rows` with `process` numbered."""
        return self.numbered(rows).select(rows.columns)

    def of_host(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return HOST or ALLOCATION `rows` with `process` numbered and the system's `pid`."""
        pid = pl.coalesce("table_pid", "key")
        return self.numbered(rows).with_columns(pid=pid).select(rows.columns)

    def numbered(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return `rows` with their process as `key`, `table_pid` and the number `process`."""
        keyed = rows.rename({"process": "key"}).join(self.table, on="key", how="left", maintain_order="left")
        return keyed.with_columns(process=pl.col("process").fill_null(self.fallback))


def _read_processes(part: RocpdPart, first: int) -> _RocpdProcesses:
    """Return the processes of `part`, numbered from `first`."""
    rows = part.table(PROCESSES, ("id", "pid")).drop_nulls("id").unique("id", keep="first", maintain_order=True)
    numbers = pl.int_range(len(rows), eager=True) + first
    return _RocpdProcesses(rows.select(key="id", table_pid="pid").with_columns(process=numbers.cast(pl.Int64)), first)
