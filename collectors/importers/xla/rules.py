"""The classification of a profile's lines and events, by rules that both formats of XLA's profiler share.

A device's streams hold the work that ran on it. Its other lines are derived from the streams and would count the work
twice: `Steps` and `XLA Modules` become device annotations, the rest is dropped as `derived`. A TPU has no streams; its
line `XLA Ops` contains its work.
"""

from __future__ import annotations

import polars as pl

from deepprof.collectors.importers.assembly import Records
from deepprof.collectors.importers.flags import Tally
from deepprof.collectors.importers.xla.events import Profile

DEVICE_KINDS = ("GPU", "TPU", "CUSTOM")  # one file has devices of one kind
DEVICE_PLANE = r"(?i)/device:(GPU|TPU|CUSTOM):(\d{1,5})\s*(?:\(|$)"  # not "TPU:0 SparseCore 1"
STREAM = r"(?i)\bstream\s*#?\s*(\d{1,18})"
RANGES = ("Steps", "XLA Modules")
OPERATIONS = "XLA Ops"
HOST_PLANE = r"(?:^|/)host:"
NOT_EVENTS = r"^/host:(?:metadata|__ScopeRangeCallStack__|tfstreamz)$"
RUNTIME_PLANE = r"(?i)^/host:(?:CUPTI|ROCTRACER|TPU-runtime)$"
RUNTIME_CALL = r"^(?:cu|cuda|hip)[A-Z]\w*(?: \(CudaGraph:\d+\))?$"
LOADER = r"^Iterator(?:::|GetNext)"
NVTX = r"(?:/NVTX|^/host:NVTX-CUPTI)$"
FRAMEWORK_NVTX = "TSL:"  # XLA's own ranges
ALLOCATIONS = {"MemoryAllocation": 1, "MemoryDeallocation": -1}
COPY = r"^Memcpy(?:[A-Z ]|$)|^__amd_rocclr_copy"  # a kernel may be called memcpy32_post
SET = r"^Memset(?:[A-Z ]|$)|^__amd_rocclr_fill"
KERNEL_SUFFIX = ".kd"  # AMD's "kernel descriptor"
NBYTES = r"(?:\bsize|num_bytes):(\d{1,18})"
COPY_KINDS = (
    ("HtoD", r"(?i)H(?:ost)?(?:to|2)D|kind_src:(?:pinned|pageable|host)\S* kind_dst:(?:device|managed|array)"),
    ("DtoH", r"(?i)D(?:evice)?(?:to|2)H|kind_src:(?:device|managed|array)\S* kind_dst:(?:pinned|pageable|host)"),
    ("PtoP", r"(?i)P(?:eer)?(?:to|2)P|memcpyPeer"),
    ("DtoD", r"(?i)D(?:evice)?(?:to|2)D|kind_src:(?:device|array)\S* kind_dst:(?:device|array)"),
    ("HtoH", r"(?i)H(?:ost)?(?:to|2)H|kind_src:(?:pinned|pageable|host)\S* kind_dst:(?:pinned|pageable|host)"),
)
HOST_MEMORY = -1


def find_places(lines: pl.DataFrame) -> pl.DataFrame:
    """Return the lines of a `Profile` with their `role`, and `device` and `stream` where they have one.

    Roles: `stream`, `range` and `derived` on devices; `host`, `runtime`, `nvtx`; `other-device` for devices of another
    kind than the file's, `other-plane` for the rest.
    """
    plane = pl.col("plane")
    rows = lines.with_columns(
        kind=plane.str.extract(DEVICE_PLANE, 1).str.to_uppercase(),
        device=plane.str.extract(DEVICE_PLANE, 2).cast(pl.Int64),
        stream=pl.col("label").str.extract(STREAM).cast(pl.Int64),
    )
    kind = next((kind for kind in DEVICE_KINDS if kind in set(rows["kind"])), "")
    other = pl.when(plane.str.contains("(?i)/device:")).then(pl.lit("other-device")).otherwise(_host_role())
    role = pl.when(pl.col("kind").is_not_null()).then(_device_role(kind)).otherwise(other)
    return rows.with_columns(role=role, stream=pl.when(_says_what_ran()).then(0).otherwise("stream"))


def _says_what_ran() -> pl.Expr:
    """Return whether a line lists the operations of a device that has no streams."""
    return (pl.col("label") == OPERATIONS) & ~pl.col("stream").is_not_null().any().over("plane")


def _device_role(kind: str) -> pl.Expr:
    """Return the role of a line of a device's plane, in a file of devices of `kind`."""
    return (
        pl.when(pl.col("kind") != kind)
        .then(pl.lit("other-device"))
        .when(pl.col("stream").is_not_null() | _says_what_ran())
        .then(pl.lit("stream"))
        .when(pl.col("label").is_in(RANGES))
        .then(pl.lit("range"))
        .otherwise(pl.lit("derived"))
    )


def _host_role() -> pl.Expr:
    """Return the role of a line of any other plane."""
    plane = pl.col("plane")
    return (
        pl.when(~plane.str.contains(HOST_PLANE) | plane.str.contains(NOT_EVENTS))
        .then(pl.lit("other-plane"))
        .when(pl.col("label").str.contains(NVTX) | plane.str.contains(NVTX))
        .then(pl.lit("nvtx"))
        .when(plane.str.contains(RUNTIME_PLANE))
        .then(pl.lit("runtime"))
        .otherwise(pl.lit("host"))
    )


def make_records(profile: Profile, places: pl.DataFrame, tally: Tally) -> Records:
    """Return the events of `profile`, whose lines are at `places`, as the tables they belong in."""
    places = places.select("line", "role", "device", "stream", "thread", "process")
    events = profile.events().join(places, on="line", how="left", maintain_order="left")
    names = profile.names.series()
    events = events.with_columns(name=pl.lit(names).gather(pl.col("name_id")))
    for role in ("derived", "other-device", "other-plane"):
        events = tally.keep(events, pl.col("role") != role, role)
    host = events.filter(pl.col("role").is_in(["host", "runtime", "nvtx"]))
    host = host.with_columns(kind=_host_kind())
    ranges = [_device_ranges(events), _step_markers(host), _nvtx_ranges(host)]
    events = events.filter(pl.col("role") == "stream")
    device = _device_rows(events, host, tally)
    return Records(
        device=device,
        host=_host_rows(host),
        annotations=pl.concat(ranges, how="diagonal"),
        memory=_memory_rows(host),
        tally=tally,
    )


def _host_kind() -> pl.Expr:
    """Return the kind of a host event: a host category, or `memory`, `step` or `nvtx`, which go to other tables."""
    name = pl.col("name")
    return (
        pl.when(name.is_in(list(ALLOCATIONS)) & pl.col("allocation").is_not_null())
        .then(pl.lit("memory"))
        .when((pl.col("role") == "nvtx") | name.str.starts_with("NVTX:"))
        .then(pl.lit("nvtx"))
        .when(pl.col("step").is_not_null())
        .then(pl.lit("step"))
        .when((pl.col("role") == "runtime") | pl.col("correlation").is_not_null() | name.str.contains(RUNTIME_CALL))
        .then(pl.lit("runtime"))
        .when(name.str.starts_with("$"))
        .then(pl.lit("python"))
        .when(name.str.contains(LOADER))
        .then(pl.lit("dataloader"))
        .otherwise(pl.lit("op"))
    )


def _device_rows(rows: pl.DataFrame, host: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Return the work on streams; a copy without a direction gets that of the `host` call that started it.

    Allocator events on a stream are no work; they are dropped as `allocator`.
    """
    rows = tally.keep(rows, pl.col("memory_details").is_null(), "allocator")
    name = pl.col("name").str.strip_suffix(KERNEL_SUFFIX)
    details = pl.coalesce("copy_details", "set_details")
    nbytes = details.str.extract(NBYTES).cast(pl.Int64)
    rows = rows.with_columns(name=name, activity=_activity(), nbytes=pl.when(nbytes > 0).then(nbytes))
    calls = host.filter(pl.col("correlation").is_not_null() & (pl.col("kind") == "runtime"))
    calls = calls.select("correlation", call="name").unique("correlation", keep="first", maintain_order=True)
    rows = rows.join(calls, on="correlation", how="left", maintain_order="left")
    kind = pl.coalesce(_copy_kind("name"), _copy_kind("copy_details"), _copy_kind("call"))
    columns = ("start_ns", "end_ns", "name", "device", "stream", "activity", "nbytes", "correlation", "context")
    more = ("graph_node", "stack_id", "instruction")
    return rows.select(*columns, *more, copy_kind=pl.when(pl.col("activity") == "memcpy").then(kind))


def _activity() -> pl.Expr:
    name = pl.col("name")
    return (
        pl.when(pl.col("copy_details").is_not_null() | name.str.contains(COPY))
        .then(pl.lit("memcpy"))
        .when(pl.col("set_details").is_not_null() | name.str.contains(SET))
        .then(pl.lit("memset"))
        .when(pl.col("graph").is_not_null())
        .then(pl.lit("graph"))
        .otherwise(pl.lit("kernel"))
    )


def _copy_kind(column: str) -> pl.Expr:
    """Return the direction of a copy that the text in `column` contains, or null."""
    kinds = [pl.when(pl.col(column).str.contains(words)).then(pl.lit(kind)) for kind, words in COPY_KINDS]
    return pl.coalesce(kinds)


def _host_rows(host: pl.DataFrame) -> pl.DataFrame:
    """Return operators, runtime calls and Python functions."""
    rows = host.filter(~pl.col("kind").is_in(["memory", "step", "nvtx"]))
    return rows.select("start_ns", "end_ns", "process", "thread", "name", "correlation", "stack_id", category="kind")


def _device_ranges(events: pl.DataFrame) -> pl.DataFrame:
    """Return a device's steps and module runs, which the profiler draws around the kernels they launched."""
    rows = events.filter(pl.col("role") == "range")
    name = pl.coalesce("step_name", "name")
    step = name.str.contains(r"^\d+$")  # modules have names
    return rows.select(
        "start_ns",
        "end_ns",
        pl.when(step).then(pl.format("step#{}", name)).otherwise(name).alias("name"),
        device="device",
        side=pl.lit("device"),
        framework=pl.lit(True),
    )


def _step_markers(host: pl.DataFrame) -> pl.DataFrame:
    """Return the steps that the program marked (`StepTraceAnnotation`), named `step[train]#7`."""
    name = pl.format("step[{}]#{}", "name", "step")
    return _host_ranges(host.filter(pl.col("kind") == "step"), name, pl.lit(False))


def _nvtx_ranges(host: pl.DataFrame) -> pl.DataFrame:
    """Return NVTX ranges; XLA writes some itself."""
    name = pl.col("name").str.strip_prefix("NVTX:")
    return _host_ranges(host.filter(pl.col("kind") == "nvtx"), name, name.str.starts_with(FRAMEWORK_NVTX))


def _host_ranges(rows: pl.DataFrame, name: pl.Expr, framework: pl.Expr) -> pl.DataFrame:
    """Return `rows` as annotations of the host."""
    columns = ("start_ns", "end_ns", "process", "thread")
    return rows.select(*columns, name=name, side=pl.lit("host"), framework=framework)


def _memory_rows(host: pl.DataFrame) -> pl.DataFrame:
    """Return the allocators' events; a device's allocator is named after it ("GPU_0_bfc")."""
    rows, allocator = host.filter(pl.col("kind") == "memory"), pl.col("allocator")
    number = allocator.str.extract(r"(?i)gpu_(\d{1,5})(?:_|$)").cast(pl.Int64)
    on_host = pl.when(allocator.str.contains("(?i)host|cpu")).then(HOST_MEMORY)
    sign = pl.col("name").replace_strict(ALLOCATIONS, return_dtype=pl.Int64)
    return rows.select(
        "process",
        "thread",
        "address",
        time_ns="start_ns",
        device=pl.coalesce(number, on_host),
        nbytes=pl.col("allocation") * sign,
        allocated_nbytes="allocated",
        reserved_nbytes="reserved",
    )
