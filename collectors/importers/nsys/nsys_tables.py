"""The event tables of an nsys database as rows of a `Trace`. Any table and any column may be missing."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import polars as pl
from msgspec import Struct, field

from deepprof.collectors.importers.call_stacks import name_frame, number_stacks
from deepprof.collectors.importers.flags import NBYTES_LIMIT, Tally
from deepprof.collectors.importers.launch_shapes import SHAPES, product_of, shape_columns
from deepprof.collectors.importers.nsys import names as nsys_names
from deepprof.collectors.importers.nsys.names import label
from deepprof.collectors.importers.value_columns import NameTable, positive
from deepprof.collectors.trace import ANNOTATIONS, DEVICE_EVENTS, HOST_EVENTS, MEMORY_EVENTS

if TYPE_CHECKING:
    from deepprof.collectors.importers.nsys.nsys_database import NsysDatabase

KERNELS, RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
COPIES, MEMSETS = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPHS, SYNCS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
DEVICE_TABLES = (KERNELS, COPIES, MEMSETS, GRAPHS, SYNCS)
HOST_TABLES = {RUNTIME: "runtime", "OSRT_API": "other", "PROFILER_OVERHEAD": "overhead"}

DEVICE_COLUMNS = {
    "start": None,
    "end": None,
    "deviceId": 0,
    "contextId": None,
    "streamId": 0,
    "correlationId": None,
    "globalPid": None,
    "graphNodeId": None,
}
HOST_COLUMNS = {"start": None, "end": None, "globalTid": None, "correlationId": None, "nameId": None}
SHAPE_COLUMNS = (
    *("registersPerThread", "staticSharedMemory", "dynamicSharedMemory"),
    *(f"{what}{axis}" for what in ("grid", "block") for axis in "XYZ"),
)
NVTX_COLUMNS = {**dict.fromkeys(("start", "end", "eventType", "globalTid", "textId")), "domainId": 0}

NVTX_RANGES, NVTX_MARKS, NVTX_DOMAIN = (59, 60, 70, 71), (34, 65), 75  # 65, 70, 71: the same from a text file
TIME_LIMIT_NS = 2**61  # 73 years: keeps every difference of two times inside int64
NO_STREAM = 2**32 - 1  # CUPTI's value for "no stream"
SCOPE = 2**40  # correlation ids are 32 bits wide, and each process counts its own
# The call stacks of runtime calls and operating system calls, a row for every frame.
CHAINS = {"CUPTI_ACTIVITY_KIND_RUNTIME": "CUDA_CALLCHAINS", "OSRT_API": "OSRT_CALLCHAINS"}
FRAME = ("symbol", "module", "unresolved")
NAMES = ("symbol", "module")

USAGE = "CUDA_GPU_MEMORY_USAGE_EVENTS"
PAGE_FAULTS = ("CUDA_UM_CPU_PAGE_FAULT_EVENTS", "CUDA_UM_GPU_PAGE_FAULT_EVENTS")
PAGE_FAULT = "page-fault"  # of managed memory; its migrations are among the copies
SIGNS = {0: 1, 1: -1}  # memoryOperationType: allocation, deallocation
HOST_KINDS, HOST = (0, 1), -1  # memKind: pageable, pinned
COLUMNS = dict.fromkeys(("start", "globalPid", "deviceId", "address", "bytes", "memKind", "memoryOperationType"))


class NsysTables(Struct, frozen=True, eq=False):
    """A database, its texts by id, and the names, counts and STACKS of the rows read from it so far.

    `shapes` requests launch shapes too, `details` for call stacks.
    """

    database: NsysDatabase
    strings: dict[int, str]
    details: bool = False
    shapes: bool = True
    names: NameTable = field(default_factory=NameTable)
    read: Counter[str] = field(default_factory=Counter)  # rows by table
    tally: Tally = field(default_factory=Tally)
    stacks: list[pl.DataFrame] = field(default_factory=list)

    def rows(self, table: str, columns: dict[str, int | None]) -> pl.DataFrame:
        """Return `columns` of `table` as Int64, counted as read."""
        rows = self.database.integers(table, columns)
        self.read[table] += rows.height
        return rows

    def timed(self, rows: pl.DataFrame, *, open_end: bool = False) -> pl.DataFrame:
        """Return the rows whose times are valid; with `open_end` the end may be null."""
        return self.tally.keep(rows, _sound_times(open_end=open_end), "invalid-time")

    def placed(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows whose times and device number are valid."""
        return self.tally.keep(self.timed(rows), pl.col("deviceId").is_between(0, 2**16 - 1), "invalid-place")


def read_device_rows(source: NsysTables, host: pl.DataFrame) -> pl.DataFrame:
    """Return kernels, copies, memsets, graph launches and synchronizations, unsorted.

    The columns are those of DEVICE_EVENTS, `process` (Int64) and `unnamed`. `host` is the result of `read_host_rows`.
    """
    parts = {
        "kernel": _read_kernels(source),
        "memcpy": _read_copies(source),
        "memset": _read_memsets(source),
        "graph": _read_graphs(source),
        "sync": _read_syncs(source, host),
    }
    rows = [
        part.with_columns(pl.lit(kind, DEVICE_EVENTS["activity"]).alias("activity")) for kind, part in parts.items()
    ]
    return _shape_device_rows(pl.concat(rows, how="diagonal"), source.tally)


def _read_kernels(source: NsysTables) -> pl.DataFrame:
    """Return the kernels, named with their demangled name or else the short one."""
    shape = SHAPE_COLUMNS if source.shapes else ()
    rows = source.rows(KERNELS, {**DEVICE_COLUMNS, "demangledName": None, **dict.fromkeys(shape)})
    rows = rows.with_columns(**_shape_of_kernels()) if shape else rows
    short: pl.Series | pl.Expr = pl.lit(None, pl.Int64).alias("shortName")
    if set(rows["demangledName"].unique()) - source.strings.keys():  # one column less is read if all have names
        short = source.database.integers(KERNELS, {"shortName": None})["shortName"]
    rows = source.placed(rows.with_columns(short))

    def name(demangled: int, short: int) -> str | None:
        return source.strings.get(demangled) or source.strings.get(short)

    return label(rows, source.names, ("demangledName", "shortName"), name, "unknown kernel")


def _shape_of_kernels() -> dict[str, pl.Expr]:
    grid, block = ([pl.col(f"{what}{axis}") for axis in "XYZ"] for what in ("grid", "block"))
    return shape_columns(
        registers=pl.col("registersPerThread"),
        shared_nbytes=pl.col("staticSharedMemory") + pl.col("dynamicSharedMemory"),
        grid=product_of(grid),
        block=product_of(block),
    )


def _read_copies(source: NsysTables) -> pl.DataFrame:
    """Return the copies, with `bytes` and `copy_kind`."""
    columns = {**DEVICE_COLUMNS, "bytes": None, "copyKind": None, "srcKind": None, "dstKind": None}
    rows = source.placed(source.rows(COPIES, columns))
    kind = pl.col("copyKind").replace_strict(
        nsys_names.COPY_KIND_OF, default=None, return_dtype=DEVICE_EVENTS["copy_kind"]
    )
    keys = ("copyKind", "srcKind", "dstKind")
    return label(rows.with_columns(copy_kind=kind), source.names, keys, nsys_names.name_copy, "")


def _read_memsets(source: NsysTables) -> pl.DataFrame:
    """Return the memsets, with `bytes`."""
    rows = source.rows(MEMSETS, {**DEVICE_COLUMNS, "bytes": None})
    rows = source.placed(rows).with_columns(pl.lit(0).alias("key"))
    return label(rows, source.names, ("key",), lambda _: "Memset", "")


def _read_graphs(source: NsysTables) -> pl.DataFrame:
    """Return the launches of whole graphs, which a capture in graph mode contains in place of their kernels."""
    rows = source.rows(GRAPHS, {**DEVICE_COLUMNS, "graphId": None, "graphExecId": None})
    rows = source.placed(rows)
    return label(rows, source.names, ("graphId", "graphExecId"), nsys_names.name_graph, "")


def _read_syncs(source: NsysTables, host: pl.DataFrame) -> pl.DataFrame:
    """Return the synchronizations, named after the runtime call that waited."""
    rows = source.placed(source.rows(SYNCS, {**DEVICE_COLUMNS, "syncType": None}))
    rows = rows.with_columns(process=process_of("globalPid"), correlation=positive("correlationId"))
    keys = ["process", "correlation"]
    calls = host.filter(pl.col("category") == "runtime").select(*keys, call="name_id").join(rows, on=keys, how="semi")
    calls = calls.unique(keys, keep="first", maintain_order=True)
    rows = rows.join(calls, on=keys, how="left", maintain_order="left")
    texts = list(source.names)

    def name(sync_type: int, call: int | None) -> str:
        return nsys_names.name_sync(sync_type, None if call is None else texts[call])

    return label(rows.drop(keys), source.names, ("syncType", "call"), name, "")


def _shape_device_rows(rows: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Return `rows` with the columns of DEVICE_EVENTS, `process`, `unnamed`, and of SHAPES if `rows` has them.

    `tally` counts impossible sizes.
    """
    stream = pl.col("streamId").fill_null(-1)
    rows = tally.bound_nbytes(rows.rename({"bytes": "nbytes"})).with_columns(
        start_ns="start",
        end_ns="end",
        device="deviceId",
        context=pl.when(pl.col("contextId").is_between(0, 2**32 - 1)).then("contextId"),
        stream=pl.when(stream == NO_STREAM).then(-1).otherwise(stream),
        correlation=positive("correlationId"),
        external_id=pl.lit(None),
        graph_node=positive("graphNodeId"),
        process=process_of("globalPid"),
    )
    shape = [name for name in SHAPES if name in rows.columns]
    return rows.select(*DEVICE_EVENTS, "process", "unnamed", *shape).cast(dict(DEVICE_EVENTS))  # type: ignore[arg-type]


def read_host_rows(source: NsysTables) -> pl.DataFrame:
    """Return runtime calls, operating system calls and nsys' own overhead, unsorted: HOST_EVENTS and `unnamed`."""
    parts = [_read_calls(source, table, category) for table, category in HOST_TABLES.items()]
    rows = pl.concat(parts, how="diagonal").with_columns(
        start_ns="start",
        end_ns="end",
        process=process_of("globalTid"),
        thread=pl.col("globalTid") & 0xFFFFFF,
        correlation=positive("correlationId"),
    )
    rows = rows.with_columns(pl.lit(None).alias(name) for name in HOST_EVENTS if name not in rows.columns)
    return rows.select(*HOST_EVENTS, "unnamed").cast(dict(HOST_EVENTS))  # type: ignore[arg-type]


def _read_calls(source: NsysTables, table: str, category: str) -> pl.DataFrame:
    """Return the rows of one host table, named by `nameId`."""
    chained = source.details and table in CHAINS
    rows = source.timed(source.rows(table, {**HOST_COLUMNS, "callchainId": None} if chained else dict(HOST_COLUMNS)))
    rows = _add_stacks(source, table, rows) if chained else rows
    rows = rows.with_columns(pl.lit(category, HOST_EVENTS["category"]).alias("category"))

    def name(key: int) -> str | None:
        text = source.strings.get(key)
        return nsys_names.API_VERSION.sub("", text) if text and category == "runtime" else text

    return label(rows, source.names, ("nameId",), name, "unknown call")


def read_annotations(source: NsysTables) -> pl.DataFrame:
    """Return the NVTX ranges and marks, unsorted: the columns of ANNOTATIONS and `unnamed`."""
    rows = source.rows("NVTX_EVENTS", dict(NVTX_COLUMNS)).with_columns(_read_texts(source.database))
    rows = rows.with_columns(process=process_of("globalTid"), thread=pl.col("globalTid") & 0xFFFFFF)
    domains = _name_domains(rows, source.strings)
    rows = source.tally.keep(rows, pl.col("eventType").is_in([*NVTX_RANGES, *NVTX_MARKS]), "metadata")
    end = pl.when(pl.col("eventType").is_in(NVTX_MARKS)).then("start").otherwise("end")
    rows = source.timed(rows.with_columns(end=end), open_end=True)

    def name(text_id: int, text: str | None) -> str | None:
        return text or source.strings.get(text_id)

    rows = label(rows, source.names, ("textId", "text"), name, "unknown range")
    return _shape_annotations(rows.join(domains, on=["process", "domainId"], how="left", nulls_equal=True))


def _read_texts(database: NsysDatabase) -> pl.Series | pl.Expr:
    """Return `text` of the NVTX rows; all null, without reading them, if the recorder registered its strings."""
    if database.has_values("NVTX_EVENTS", "text"):
        return database.texts("NVTX_EVENTS", "text")
    return pl.lit(None, pl.String).alias("text")


def _name_domains(rows: pl.DataFrame, strings: dict[int, str]) -> pl.DataFrame:
    """Return the NVTX domains as `process`, `domainId`, `domain`; each process registers its own."""
    found = rows.filter(pl.col("eventType") == NVTX_DOMAIN).select("process", "domainId", "text", "textId")
    texts = [text or strings.get(key) for text, key in found.select("text", "textId").iter_rows()]
    found = found.with_columns(pl.Series("domain", texts, dtype=pl.String)).select("process", "domainId", "domain")
    return found.unique(["process", "domainId"], keep="first", maintain_order=True)


def _shape_annotations(rows: pl.DataFrame) -> pl.DataFrame:
    """Return `rows` with the columns of ANNOTATIONS and `unnamed`; the default domain, 0, is null."""
    domain = pl.coalesce("domain", pl.format("domain {}", "domainId"))
    rows = rows.with_columns(
        start_ns="start",
        end_ns="end",
        side=pl.lit("host"),
        device=pl.lit(None),
        stream=pl.lit(None),
        domain=pl.when(pl.col("domainId") != 0).then(domain),
        framework=pl.lit(False),
    )
    return rows.select(*ANNOTATIONS, "unnamed").cast(dict(ANNOTATIONS))  # type: ignore[arg-type]


def _sound_times(*, open_end: bool = False) -> pl.Expr:
    """Return whether a row has valid times; with `open_end` the end may be null."""
    limits = (-TIME_LIMIT_NS, TIME_LIMIT_NS)
    end = pl.col("end").is_between(*limits) & (pl.col("end") >= pl.col("start"))
    return pl.col("start").is_between(*limits) & end.fill_null(open_end)


def process_of(column: str) -> pl.Expr:
    """Return the process id in nsys' global ids."""
    return (pl.col(column) // 2**24) & 0xFFFFFF


def scope_correlations(rows: pl.DataFrame, processes: list[int]) -> pl.DataFrame:
    """Return `rows` with correlation ids made unique across `processes`; those of the first one stay the same."""
    offsets = {process: at * SCOPE for at, process in enumerate(processes)}
    offset = pl.col("process").replace_strict(offsets, default=0, return_dtype=pl.UInt64)
    return rows.with_columns(correlation=pl.col("correlation") + offset) if len(processes) > 1 else rows


def _add_stacks(source: NsysTables, table: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the `rows` of `table` with `stack_id` for their `callchainId`; the stacks are added to `source.stacks`.

    Calls whose stack is too long to be kept are flagged `long-stack`.
    """
    frames, texts = _read_frames(source, CHAINS[table])
    found = number_stacks(frames, texts, sum(stacks.height for stacks in source.stacks))
    source.stacks.append(found.stacks)
    of_chain = found.of_chain.rename({"chain": "callchainId"}).with_columns(chained=pl.lit(True))
    rows = rows.join(of_chain, on="callchainId", how="left", maintain_order="left")
    if long := int(rows.select((pl.col("chained") & pl.col("stack_id").is_null()).sum()).item() or 0):
        source.tally.flagged["long-stack"] += long
    return rows.drop("chained")


def _read_frames(source: NsysTables, table: str) -> tuple[pl.DataFrame, pl.Series]:
    """Return the frames in `table` as `number_stacks` takes them, and their names."""
    rows = source.database.integers(table, dict.fromkeys(("id", "stackDepth", *FRAME)))
    rows = rows.with_columns(_read_names(source.database, source.strings, table, rows, name) for name in NAMES)
    distinct = rows.select(FRAME).unique(maintain_order=True)
    named = [name_frame(None if unresolved else symbol, module) for symbol, module, unresolved in distinct.iter_rows()]
    texts = pl.Series("frame", named, dtype=pl.String)
    numbers = pl.DataFrame({"text": texts.unique(maintain_order=True)}).with_row_index("frame")
    distinct = distinct.with_columns(text=texts).join(numbers, on="text", how="left", maintain_order="left")
    rows = rows.join(distinct, on=FRAME, how="left", nulls_equal=True, maintain_order="left")
    return rows.select("frame", chain="id", depth="stackDepth"), numbers["text"]


def _read_names(
    database: NsysDatabase, strings: dict[int, str], table: str, rows: pl.DataFrame, column: str
) -> pl.Series:
    """Return the texts of the ids in a `column` of `rows`, or the texts that a directory's table has in their place."""
    ids = rows[column]
    known = {key: strings[key] for key in ids.drop_nulls().unique() if key in strings}
    texts = ids.replace_strict(known, default=None, return_dtype=pl.String)
    if not ids.null_count():
        return texts.alias(column)
    return texts.zip_with(ids.is_not_null(), database.texts(table, column).cast(pl.String)).alias(column)


def read_memory(source: NsysTables) -> pl.DataFrame:
    """Return MEMORY_EVENTS, without what is in use in all: a capture need not have begun with the process.

    Faults of managed memory are counted as `page-fault`.
    """
    rows = source.rows(USAGE, dict(COLUMNS))
    rows = source.tally.keep(rows, pl.col("start").is_between(-TIME_LIMIT_NS, TIME_LIMIT_NS), "invalid-time")
    rows = source.tally.keep(rows, pl.col("memoryOperationType").is_in(list(SIGNS)), "invalid")
    rows = source.tally.keep(rows, pl.col("bytes").is_between(0, NBYTES_LIMIT), "invalid-bytes")
    on_host = pl.col("memKind").is_in(HOST_KINDS).fill_null(False)
    rows = source.tally.keep(rows, on_host | pl.col("deviceId").is_between(0, 2**16 - 1), "invalid-place")
    _count_faults(source)
    sign = pl.col("memoryOperationType").replace_strict(SIGNS, default=None, return_dtype=pl.Int64)
    known = {
        "time_ns": pl.col("start"),
        "process": process_of("globalPid"),
        "device": pl.when(on_host).then(HOST).otherwise("deviceId"),
        "address": pl.col("address").reinterpret(signed=False),
        "nbytes": pl.col("bytes") * sign,
    }
    rows = rows.select(**known).with_columns(pl.lit(None).alias(name) for name in MEMORY_EVENTS if name not in known)
    return rows.select(*MEMORY_EVENTS).cast(dict(MEMORY_EVENTS)).sort("time_ns", maintain_order=True)  # type: ignore[arg-type]


def _count_faults(source: NsysTables) -> None:
    if faults := sum(source.rows(table, {"start": None}).height for table in PAGE_FAULTS):
        source.tally.dropped[PAGE_FAULT] += faults
