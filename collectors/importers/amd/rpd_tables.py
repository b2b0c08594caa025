"""The tables of an .rpd database as loose rows. Any table and any column may be missing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

import polars as pl

from deepprof.collectors.importers.amd import words
from deepprof.collectors.importers.amd.places import RocmProcessor
from deepprof.collectors.importers.amd.rocprof_trace import HOST, Loose, frame
from deepprof.collectors.importers.call_stacks import name_frame, number_stacks
from deepprof.collectors.importers.launch_shapes import IN_THREADS, SHAPES, blocks_of, product_of, shape_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

OPS, CALLS, LINKS = "rocpd_op", "rocpd_api", "rocpd_api_ops"
KERNEL_CALLS, COPY_CALLS = "rocpd_kernelapi", "rocpd_copyapi"
STACK_FRAMES = "rocpd_stackframe"
FRAME_CHARS = 32_768  # of a frame that is taken apart
# "forward (/job/net.py:117)", of RPDT_STACKFRAMES=2; "in main_foo(int) at /job/main.hip:169:5" of RPDT_STACKFRAMES=1
IN_BRACKETS = re.compile(r"(?P<name>.*) \((?P<file>[^()]+):(?P<line>\d{1,9})\)", re.DOTALL)
AT_PLACE = re.compile(
    r"(?:#\d+ +)?(?:0x[0-9a-f]+ in |in )?(?P<name>.*) at (?P<file>[^:]+)(?::(?P<line>\d{1,9}))?(?::\d+)?", re.DOTALL
)
COUNTERS = ("rocpd_monitor", "rocpd_counter")  # clocks and power; hardware counters of schema 3
MARKER = "UserMarker"
OWN_CALLS = r"^(?:hcc_activity_callback|\w+Table::\w+|\w*Logger::\w+)"  # the tracer's own work


class _RpdTables(Protocol):
    """The tables of a database, or only their new rows. See `sqlite.sqlite_database.SqliteDatabase`."""

    def count(self, table: str) -> int:
        """Return the number of rows, 0 for a table that is not there."""
        ...

    def integers(self, table: str, columns: Mapping[str, int | None]) -> pl.DataFrame:
        """Return `columns` as Int64; each name maps to the default value of a column that the table lacks."""
        ...

    def texts(self, table: str, column: str) -> pl.Series:
        """Return a column as String."""
        ...


def read_tables(
    database: _RpdTables, handles: dict[str, int] | None = None, *, details: bool = False, shapes: bool = False
) -> tuple[Loose, int]:
    """Return the operations, calls and markers of `database`, and how many records it has.

    `handles` maps the streams in earlier rows of the same database to their numbers; new streams are added to it.
    With `shapes`, how kernels were launched is read too, with `details`, the call stacks of calls.
    """
    loose = Loose(shapes=shapes)
    strings = _read_strings(database, "rocpd_string")
    calls = _read_calls(database, strings)
    launches = _read_launches(database, {} if handles is None else handles)
    if shapes:
        launches = launches.join(_read_shapes(database, calls), on="api_id", how="left", maintain_order="left")
    if details:
        calls = _add_stacks(database, strings, calls, loose)
    loose.device.append(_read_ops(database, strings, launches, loose))
    loose.host.append(shape_calls(calls, launches))
    for table in COUNTERS:
        if rows := database.count(table):
            loose.tally.dropped["counter"] += rows
    return loose, sum(database.count(table) for table in (OPS, CALLS, *COUNTERS))


def _read_strings(database: _RpdTables, table: str) -> pl.DataFrame:
    """Return the texts of `table` as `id` and `text`; the first one where an id occurs twice."""
    rows = database.integers(table, {"id": None}).with_columns(text=database.texts(table, "string"))
    return rows.drop_nulls("id").unique("id", keep="first", maintain_order=True)


def _read_launches(database: _RpdTables, handles: dict[str, int]) -> pl.DataFrame:
    """Return the call of every operation: `op_id`, `api_id`, `stream_id`, `nbytes`, `dstDevice` and `srcDevice`.

    The size is that of the whole call: it is left out if one call launched several operations.
    """
    links = database.integers(LINKS, {"api_id": None, "op_id": None}).drop_nulls()
    links = links.unique("op_id", keep="first", maintain_order=True)
    single = pl.len().over("api_id") == 1
    links = links.join(_read_streams(database, handles), on="api_id", how="left", maintain_order="left")
    copies = database.integers(COPY_CALLS, dict.fromkeys(("api_ptr_id", "size", "dstDevice", "srcDevice")))
    copies = copies.drop_nulls("api_ptr_id").unique("api_ptr_id", keep="first", maintain_order=True)
    rows = links.join(copies, left_on="api_id", right_on="api_ptr_id", how="left", maintain_order="left")
    return rows.with_columns(nbytes=pl.when(single).then("size"))


def _read_streams(database: _RpdTables, handles: dict[str, int]) -> pl.DataFrame:
    """Return the stream of every call that has one, as `api_id` and `stream_id`.

    Streams are written as addresses ("0x0" is the default one): they are numbered from 0, the default one first.
    """
    tables = [
        database.integers(table, {"api_ptr_id": None}).with_columns(handle=database.texts(table, "stream"))
        for table in (KERNEL_CALLS, COPY_CALLS)
    ]
    rows = pl.concat(tables).drop_nulls().filter(pl.col("handle") != "")
    new = [handle for handle in rows["handle"].unique(maintain_order=True) if handle not in handles]
    handles.update(dict.fromkeys(filter(_is_default, new), 0))
    first = 1 + sum(number > 0 for number in handles.values())
    handles.update((handle, at) for at, handle in enumerate((h for h in new if h not in handles), first))
    stream = pl.col("handle").replace_strict(handles, default=None, return_dtype=pl.Int64)
    rows = rows.select(api_id="api_ptr_id", stream_id=stream)
    return rows.unique("api_id", keep="first", maintain_order=True)


def _is_default(handle: str) -> bool:
    """Return whether `handle` is the null stream."""
    return handle.strip().lower() in ("0x0", "0", "(nil)", "nil", "null")


def _read_ops(database: _RpdTables, strings: pl.DataFrame, launches: pl.DataFrame, loose: Loose) -> pl.DataFrame:
    """Return the operations as DEVICE rows.

    A kernel's name is its description; operations without one (copies, fills, graph nodes) are named after their type.
    """
    columns = dict.fromkeys(("id", "queueId", "start", "end", "description_id", "opType_id"))
    rows = database.integers(OPS, {**columns, "gpuId": 0})
    rows = words.add_text(rows, strings, "description_id", "description")
    rows = words.add_text(rows, strings, "opType_id", "operation")
    rows = rows.join(launches, left_on="id", right_on="op_id", how="left", maintain_order="left", nulls_equal=False)
    rows = words.labelled(
        rows, "operation", activity=words.activity_of, copy_kind=words.copy_kind_of, label=words.operation_label
    )
    kernel = pl.col("activity") == "kernel"
    between = pl.col("dstDevice").is_not_null() & (pl.col("dstDevice") != pl.col("srcDevice"))
    peer = (pl.col("copy_kind") == "DtoD") & between
    kind = pl.when(peer).then(pl.lit("PtoP")).when(pl.col("activity") == "memcpy").then("copy_kind")
    rows = loose.tally.keep(rows, pl.col("gpuId").is_between(0, 2**16 - 1).fill_null(False), "invalid-place")
    loose.agents.extend(RocmProcessor(key=str(gpu), number=gpu) for gpu in rows["gpuId"].unique())
    described = pl.when(kernel | pl.col("label").is_null()).then(words.kernel_label(pl.col("description")))
    columns = {
        "start_ns": pl.col("start"),
        "end_ns": pl.col("end"),
        "process": 0,
        "agent": pl.col("gpuId").cast(pl.String),
        "queue": pl.col("queueId"),
        "stream_id": pl.col("stream_id"),
        "activity": pl.col("activity"),
        "name": pl.coalesce(described, pl.when(peer).then(pl.lit("Memcpy PtoP")), "label"),
        "correlation": pl.col("api_id"),
        "nbytes": pl.col("nbytes"),
        "copy_kind": kind,
    }
    return loose.kernels(columns, {name: pl.col(name) for name in SHAPES}, rows)


def _read_shapes(database: _RpdTables, calls: pl.DataFrame) -> pl.DataFrame:
    """Return how each call in `calls` launched its kernel: `api_id` and the columns of SHAPES.

    Of the shared memory the tables have only what is allotted at the launch, of registers nothing: both stay null.
    """
    sides = [f"{what}{axis}" for what in ("grid", "workgroup") for axis in "XYZ"]
    rows = database.integers(KERNEL_CALLS, dict.fromkeys(("api_ptr_id", *sides)))
    rows = rows.drop_nulls("api_ptr_id").unique("api_ptr_id", keep="first", maintain_order=True)
    names = calls.select("id", "call").unique("id", keep="first", maintain_order=True)
    rows = rows.join(names, left_on="api_ptr_id", right_on="id", how="left", maintain_order="left")
    grid, block = (product_of([pl.col(side) for side in part]) for part in (sides[:3], sides[3:]))
    in_threads = pl.col("call").str.contains(IN_THREADS).fill_null(False)
    none = pl.lit(None, pl.Int64)
    columns = shape_columns(
        registers=none,
        shared_nbytes=none,
        grid=pl.when(in_threads).then(blocks_of(grid, block)).otherwise(grid),
        block=block,
    )
    return rows.select(api_id="api_ptr_id", **columns)


def _add_stacks(database: _RpdTables, strings: pl.DataFrame, calls: pl.DataFrame, loose: Loose) -> pl.DataFrame:
    """Return `calls` with `stack_id`; the stacks are added to `loose`.

    Calls whose stack is too long to be kept are flagged `long-stack`.
    """
    rows = database.integers(STACK_FRAMES, dict.fromkeys(("api_ptr_id", "depth", "name_id")))
    texts = strings.join(rows.select(id="name_id"), on="id", how="semi", maintain_order="left")
    named = pl.Series([_name_frame(text) for text in texts["text"]], dtype=pl.String)
    numbers = texts.select(name_id="id").with_row_index("frame")
    rows = rows.join(numbers, on="name_id", how="inner", maintain_order="left")
    found = number_stacks(rows.select("depth", "frame", chain="api_ptr_id"), named)
    loose.stacks.append(found.stacks)
    of_calls = found.of_chain.join(calls.select(chain="id"), on="chain", how="semi")
    if long := of_calls["stack_id"].null_count():
        loose.tally.flagged["long-stack"] += long
    return calls.join(found.of_chain, left_on="id", right_on="chain", how="left", maintain_order="left")


def _name_frame(text: str | None) -> str:
    """Return the frame in a text of either of the libraries that the tracer uses."""
    words = (text or "").strip()
    if len(words) > FRAME_CHARS:
        return name_frame(words)
    found = IN_BRACKETS.fullmatch(words) or AT_PLACE.fullmatch(words)
    return name_frame(found["name"], found["file"], int(found["line"] or 0)) if found else name_frame(words)


def _read_calls(database: _RpdTables, strings: pl.DataFrame) -> pl.DataFrame:
    """Return the calls with `call`, `args` and `domain` as texts; schema 3 has its own table for arguments."""
    columns = dict.fromkeys(("id", "pid", "tid", "start", "end", "apiName_id", "args_id", "domain_id"))
    rows = database.integers(CALLS, columns)
    rows = words.add_text(words.add_text(rows, strings, "apiName_id", "call"), strings, "domain_id", "domain")
    texts = _read_strings(database, "rocpd_ustring") if database.count("rocpd_ustring") else strings
    return words.add_text(rows, texts, "args_id", "args")


def shape_calls(rows: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Return calls as HOST rows: markers are annotations, named by their argument."""
    roctx = pl.col("call").str.starts_with("roctx") | pl.col("domain").str.to_lowercase().str.contains("roctx")
    marker = ((pl.col("call") == MARKER) | roctx).fill_null(False)
    launched = pl.col("id").is_in(launches["api_id"].implode())
    rows = words.labelled(rows, "call", known=words.call_category)
    own = pl.when(pl.col("call").str.contains(OWN_CALLS)).then(pl.lit("overhead")).otherwise("known")
    category = pl.when(marker).then(pl.lit("annotation")).when(launched).then(pl.lit("runtime")).otherwise(own)
    return frame(
        HOST,
        {
            "start_ns": pl.col("start"),
            "end_ns": pl.col("end"),
            "process": 0,
            "pid": pl.col("pid"),
            "thread": pl.col("tid"),
            "category": category,
            "domain": pl.col("domain"),
            "name": pl.when(marker).then(pl.coalesce("args", "call")).otherwise("call"),
            "correlation": pl.col("id"),
            "stack_id": pl.col("stack_id") if "stack_id" in rows.columns else None,
        },
        rows,
    )
