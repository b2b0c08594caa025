"""The activity tables of an nvprof database as loose columns of a `Trace`. Any table and any column may be missing."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable

import polars as pl
from msgspec import Struct, field

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.flags import Tally
from deepprof.collectors.importers.nsys.names import COPY_KIND_OF, name_copy, name_sync
from deepprof.collectors.importers.nvprof.calls import DRIVER_CALLS, RUNTIME_CALLS
from deepprof.collectors.importers.sqlite.sqlite_database import SqliteDatabase

ACTIVITY = "CUPTI_ACTIVITY_KIND_"
KERNELS = ("KERNEL", "CONCURRENT_KERNEL", "CDP_KERNEL")  # serialised, concurrent, launched by other kernels
COPIES = ("MEMCPY", "MEMCPY2")  # the second between two devices
PLACED = {"start": None, "end": None, "deviceId": 0, "contextId": None, "streamId": 0, "correlationId": None}
MIGRATIONS = {1: "HtoD", 2: "DtoH", 8: "DtoD"}  # counters of unified memory that count bytes
NO_STREAM = -1
MARK, RANGE_START, RANGE_END = 1, 2, 4
OVERHEADS = {
    1: "Driver compiler",
    1 << 16: "CUPTI buffer flush",
    2 << 16: "CUPTI instrumentation",
    3 << 16: "CUPTI resource",
}
PROCESS, THREAD = 1, 2  # kinds of object
NO_TEXT = 0  # the id of nvprof's "-- null --"


class NvprofTables(Struct, frozen=True):
    """A database and the counts of the rows read from it so far."""

    database: SqliteDatabase
    read: Counter[str] = field(default_factory=Counter)  # rows by table
    tally: Tally = field(default_factory=Tally)

    def rows(self, kind: str, columns: dict[str, int | None]) -> pl.DataFrame:
        """Return `columns` of the activities of `kind` as Int64, counted as read."""
        rows = self.database.integers(ACTIVITY + kind, columns)
        self.read[kind] += rows.height
        return rows

    def named(self, rows: pl.DataFrame, key: str, texts: pl.DataFrame) -> pl.DataFrame:
        """Return `rows` with the `name` of their `key`; `texts` has `id` and `name`."""
        return rows.join(texts, left_on=key, right_on="id", how="left", maintain_order="left")

    def objects(self, kind: str) -> pl.DataFrame:
        """Return the `process` and `thread` that the activities of `kind` state in their `objectId`, row by row.

        `objectId` is a union of C: process and thread as 32 bits each, in the byte order of the machine that wrote it.
        """
        stated = self.database.blobs(ACTIVITY + kind, "objectId")
        kinds = self.database.integers(ACTIVITY + kind, {"objectKind": None})["objectKind"]
        if len(stated) != len(kinds):
            raise TraceError(self.database.path, "is damaged: columns of one table differ in length", "export it again")
        distinct = stated.drop_nulls().unique()
        ids = [struct.unpack("<II", bytes(blob[:8])) if len(blob) >= 8 else (None, None) for blob in distinct]
        known = pl.DataFrame({"stated": distinct, "ids": pl.Series(ids, dtype=pl.List(pl.Int64))})
        rows = pl.DataFrame({"stated": stated, "kind": kinds})
        rows = rows.join(known, on="stated", how="left", maintain_order="left")
        return rows.select(
            process=pl.when(pl.col("kind").is_in([PROCESS, THREAD])).then(pl.col("ids").list.get(0, null_on_oob=True)),
            thread=pl.when(pl.col("kind") == THREAD).then(pl.col("ids").list.get(1, null_on_oob=True)),
        )


def read_texts(source: NvprofTables) -> pl.DataFrame:
    """Return `StringTable` as `id` and `name`, the first one where an id occurs twice."""
    table = "StringTable"
    ids, texts = source.database.integers(table, {"_id_": None})["_id_"], source.database.texts(table, "value")
    if len(ids) != len(texts):
        raise TraceError(source.database.path, "is damaged: columns of one table differ in length", "export it again")
    rows = pl.DataFrame({"id": ids, "name": texts}).filter(pl.col("id") != NO_TEXT)
    return rows.filter(pl.col("name") != "").unique("id", keep="first", maintain_order=True)


def _spelled(rows: pl.DataFrame, keys: tuple[str, ...], name: Callable[..., str]) -> pl.DataFrame:
    """Return `rows` with a column `name`, which the function `name` makes from the values of `keys`."""
    distinct = rows.select(keys).unique(maintain_order=True)
    texts = pl.Series("name", [name(*values) for values in distinct.iter_rows()], dtype=pl.String)
    return rows.join(distinct.with_columns(texts), on=list(keys), how="left", nulls_equal=True, maintain_order="left")


def read_device_rows(source: NvprofTables, calls: pl.DataFrame) -> pl.DataFrame:
    """Return kernels, copies, memsets, migrations of unified memory and synchronizations.

    `calls` is the result of `read_calls`. The name of a kernel without one is null.
    """
    parts = {
        "kernel": pl.concat([_read_kernels(source, kind) for kind in KERNELS]),
        "memcpy": pl.concat(
            [*(_read_copies(source, kind) for kind in COPIES), _read_migrations(source)], how="diagonal"
        ),
        "memset": _spelled(source.rows("MEMSET", {**PLACED, "bytes": None}), ("streamId",), lambda _: "Memset"),
        "sync": _read_syncs(source, calls),
    }
    rows = pl.concat([part.with_columns(activity=pl.lit(kind)) for kind, part in parts.items()], how="diagonal")
    if timeless := rows.filter(pl.col("start") == 0).height:  # nvprof ran out of buffer for their times
        source.tally.dropped["without-times"] += timeless
        rows = rows.filter((pl.col("start") != 0).fill_null(value=True))
    return rows.rename(RENAMED).select(*RENAMED.values(), "activity", "name", "copy_kind")


RENAMED = {
    "start": "start_ns",
    "end": "end_ns",
    "deviceId": "device",
    "contextId": "context",
    "streamId": "stream",
    "correlationId": "correlation",
    "bytes": "nbytes",
}


def _read_kernels(source: NvprofTables, kind: str) -> pl.DataFrame:
    """Return the kernels of one table, with names as the compiler mangled them."""
    rows = source.rows(kind, {**PLACED, "name": None}).rename({"name": "text"})
    return source.named(rows, "text", read_texts(source)).drop("text")


def _read_copies(source: NvprofTables, kind: str) -> pl.DataFrame:
    columns = {**PLACED, "bytes": None, "copyKind": 10 if kind == "MEMCPY2" else None, "srcKind": None, "dstKind": None}
    rows = source.rows(kind, columns)
    memories = pl.col("srcKind", "dstKind") - 1  # CUPTI counts "unknown" as 0, nsys starts with pageable memory
    rows = _spelled(rows.with_columns(memories), ("copyKind", "srcKind", "dstKind"), name_copy)
    direction = pl.col("copyKind").replace_strict(COPY_KIND_OF, default=None, return_dtype=pl.String)
    return rows.with_columns(copy_kind=direction).drop("copyKind", "srcKind", "dstKind")


def _read_migrations(source: NvprofTables) -> pl.DataFrame:
    """Return the copies that the driver made for unified memory; its counters of page faults are no activities."""
    columns = {**dict.fromkeys(("start", "end", "counterKind", "value", "srcId", "dstId")), "deviceId": 0}
    rows = source.rows("UNIFIED_MEMORY_COUNTER", columns)
    rows = source.tally.keep(rows, pl.col("counterKind").is_in(list(MIGRATIONS)), "unified-memory")
    direction = pl.col("counterKind").replace_strict(MIGRATIONS, default=None, return_dtype=pl.String)
    device = pl.when(direction == "DtoH").then("srcId").otherwise("dstId")
    host = 2**32 - 1  # the id of the processor in a counter
    return rows.select(
        "start",
        "end",
        deviceId=pl.when(device.is_between(0, host - 1)).then(device).otherwise("deviceId"),
        streamId=pl.lit(NO_STREAM, pl.Int64),
        bytes="value",
        copy_kind=direction,
        name=pl.format("Unified Memory Memcpy {}", direction),
    )


def _read_syncs(source: NvprofTables, calls: pl.DataFrame) -> pl.DataFrame:
    """Return the synchronizations, named after the call that waited, on the device of their context."""
    rows = source.rows("SYNCHRONIZATION", {**PLACED, "deviceId": None, "type": None})
    contexts = source.database.integers(f"{ACTIVITY}CONTEXT", {"contextId": None, "deviceId": None})
    contexts = contexts.drop_nulls().unique("contextId", keep="first").rename({"deviceId": "of_context"})
    rows = rows.join(contexts, on="contextId", how="left", maintain_order="left")
    known = calls.select("correlation", call="name").drop_nulls().unique("correlation", keep="first")
    rows = rows.join(known, left_on="correlationId", right_on="correlation", how="left", maintain_order="left")
    stream = pl.col("streamId")
    rows = rows.with_columns(
        deviceId=pl.coalesce("deviceId", "of_context", 0),
        streamId=pl.when(stream == 2**32 - 1).then(NO_STREAM).otherwise(stream),
    )
    return _spelled(rows, ("type", "call"), name_sync).drop("of_context", "type", "call")


def read_calls(source: NvprofTables) -> pl.DataFrame:
    """Return the calls of the CUDA runtime and of the driver."""
    tables = (("RUNTIME", "runtime call {}", RUNTIME_CALLS), ("DRIVER", "driver call {}", DRIVER_CALLS))
    parts = []
    for kind, unknown, known in tables:
        columns = dict.fromkeys(("start", "end", "processId", "threadId", "correlationId", "cbid"))
        rows = source.rows(kind, columns)
        name = pl.col("cbid").replace_strict(known, default=None, return_dtype=pl.String)
        parts.append(rows.with_columns(name=pl.coalesce(name, pl.format(unknown, "cbid"))))
    return pl.concat(parts).select(
        "name",
        start_ns="start",
        end_ns="end",
        process="processId",
        thread=pl.col("threadId") & 0xFFFFFFFF,  # stored as signed
        correlation="correlationId",
        category=pl.lit("runtime"),
    )


def read_overhead(source: NvprofTables) -> pl.DataFrame:
    """Return the host's time that the profiler itself and the driver's compiler took."""
    rows = source.rows("OVERHEAD", dict.fromkeys(("start", "end", "overheadKind")))
    rows = pl.concat([rows, _aligned(source.objects("OVERHEAD"), rows, source)], how="horizontal")
    rows = _spelled(rows, ("overheadKind",), lambda kind: OVERHEADS.get(kind, "Overhead"))
    return rows.select("name", "process", "thread", start_ns="start", end_ns="end", category=pl.lit("overhead"))


def _aligned(found: pl.DataFrame, rows: pl.DataFrame, source: NvprofTables) -> pl.DataFrame:
    """Return `found`, which must have as many rows as `rows` of the same table."""
    if found.height != rows.height:
        raise TraceError(source.database.path, "is damaged: columns of one table differ in length", "export it again")
    return found


def read_markers(source: NvprofTables) -> pl.DataFrame:
    """Return NVTX marks and ranges. A range is two rows of one id: its start, which has the name, and its end.

    The ends are dropped as `range-end`, those without a start as `unmatched`.
    """
    rows = source.rows("MARKER", {"timestamp": None, "id": None, "flags": None, "name": None, "domain": None})
    rows = pl.concat([rows, _aligned(source.objects("MARKER"), rows, source)], how="horizontal")
    texts = read_texts(source)
    rows = source.named(rows.rename({"name": "text"}), "text", texts)
    domains = texts.rename({"name": "domain_text"})
    rows = rows.join(domains, left_on="domain", right_on="id", how="left", maintain_order="left")
    rows = rows.sort("timestamp", maintain_order=True, nulls_last=True)
    what = (pl.col("flags") & 7).fill_null(0)
    points = rows.filter(what & MARK != 0).with_columns(end="timestamp")
    # An id may be used again: its n-th start belongs to its n-th end.
    nth = pl.int_range(pl.len()).over("process", "id")
    starts = rows.filter((what & MARK == 0) & (what & RANGE_START != 0)).with_columns(nth=nth)
    ends = rows.filter((what & (MARK | RANGE_START) == 0) & (what & RANGE_END != 0)).with_columns(nth=nth)
    keys = ["process", "id", "nth"]
    closed = ends.select(*keys, end="timestamp")
    starts = starts.join(closed, on=keys, how="left", nulls_equal=True, maintain_order="left")
    matched = ends.join(starts.select(keys), on=keys, how="semi", nulls_equal=True).height
    dropped = {"range-end": matched, "unmatched": ends.height - matched}
    dropped["metadata"] = rows.height - points.height - starts.height - ends.height
    source.tally.dropped.update({reason: count for reason, count in dropped.items() if count})
    columns = ("timestamp", "end", "name", "domain_text", "process", "thread")
    found = pl.concat([starts.select(columns), points.select(columns)])
    return found.rename({"timestamp": "start_ns", "end": "end_ns", "domain_text": "domain"})
