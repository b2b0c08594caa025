"""The ranges that nsys' recipe projects onto the GPU, as rows of a `Trace`: where each ran, and how they are nested.

Two spellings of the columns are known: that of `nsys stats`, and that of releases whose recipe writes `Text` and `End`.
"""

from __future__ import annotations

import polars as pl

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.frames import FrameFile, plain_texts, whole_numbers

SPELLINGS = {
    "label": ("Name", "Text"),
    "start_ns": ("Projected Start", "Projected Start (ns)", "Start"),
    "end_ns": ("Projected End", "Projected End (ns)", "End"),
    "duration_ns": ("Projected Duration", "Projected Duration (ns)"),
    "process": ("PID",),
    "thread": ("TID",),
    "range": ("RangeId", "Range ID"),
    "parent": ("ParentId", "Parent ID"),
    "operations": ("NumGPUOps",),
}
NEEDED = ("label", "start_ns")
THUNK, MODULE = r"^(?:TSL:)?Thunk:", r"^(?:TSL:)?XlaModule:"
OPERATION, PROGRAM = r"hlo_op=([^,#]+)", r"hlo_module=([^,#]+)"
PROGRAM_NUMBER = r"program_id=(\d{1,9})\b"
LAUNCHER = r"XlaLauncher:#global=(\d{1,5}),"
FRAMEWORK = r"^(?:TSL:|NCCL:|Xla|Thunk)"
DEPTH = 64  # of ranges inside ranges
OWNERS = ("report", "process", "thread")


def read_ranges(table: FrameFile) -> pl.DataFrame:
    """Return the rows of a projection: `label` (String), the other columns of `SPELLINGS` as Int64, and `name`.

    Raises `TraceError` when names or times are missing.
    """
    found = {key: name for key, names in SPELLINGS.items() for name in names if name in table.schema}
    missing = [key for key in NEEDED if key not in found]
    missing += [] if {"end_ns", "duration_ns"} & found.keys() else ["end_ns"]
    if missing:
        problem = f"has no column for {', '.join(missing)}, only {', '.join(table.schema)}"
        raise TraceError(table.path, problem, "make it again with `nsys-jax`")
    stored = table.read(list(dict.fromkeys(found.values())))
    numbers = {key: whole_numbers(stored[name]) for key, name in found.items() if key != "label"}
    label = plain_texts(stored[found["label"]])
    rows = pl.DataFrame({"label": label, **numbers})
    rows = rows.with_columns(pl.lit(None, pl.Int64).alias(key) for key in SPELLINGS if key not in rows.columns)
    end = pl.coalesce("end_ns", pl.col("start_ns") + pl.col("duration_ns"))
    return rows.with_columns(_name_ranges(), end_ns=end).select("name", *SPELLINGS)


def _name_ranges() -> pl.Expr:
    """Return the name of a range: a thunk's HLO operation, a module's program, the label of any other."""
    label = pl.col("label")
    name = (
        pl.when(label.str.contains(THUNK))
        .then(label.str.extract(OPERATION))
        .when(label.str.contains(MODULE))
        .then(label.str.extract(PROGRAM))
    )
    return pl.coalesce(name, label.str.strip_prefix("TSL:")).alias("name")


def read_launchers(table: FrameFile) -> pl.DataFrame:
    """Return which thread drives which device of the job: `process`, `thread`, `device`, all Int64."""
    columns = {"process": "PID", "thread": "TID", "label": "Name"}
    if not set(columns.values()) <= set(table.schema):
        return pl.DataFrame(schema={"process": pl.Int64, "thread": pl.Int64, "device": pl.Int64})
    stored = table.read(list(columns.values()))
    device = plain_texts(stored["Name"]).str.extract(LAUNCHER).cast(pl.Int64)
    rows = pl.DataFrame([whole_numbers(stored["PID"]), whole_numbers(stored["TID"]), device.alias("device")])
    return rows.rename({"PID": "process", "TID": "thread"}).drop_nulls().unique(["process", "thread"], keep="first")


def place(ranges: pl.DataFrame, launchers: pl.DataFrame | None) -> pl.DataFrame:
    """Return `ranges` with `device`: that of `launchers`, or else one numbered in the order of their threads.

    XLA launches work for several GPUs from one thread per GPU, and other work from a main thread. The threads of a
    process that ran the same module are launchers; the main thread belongs to the first GPU of its process.
    """
    if launchers is None or launchers.is_empty():
        launchers = _find_launchers(ranges)
    first = launchers.group_by("report", "process").agg(main=pl.col("device").min())
    placed = ranges.join(launchers, on=OWNERS, how="left", nulls_equal=True, maintain_order="left")
    placed = placed.join(first, on=OWNERS[:2], how="left", nulls_equal=True, maintain_order="left")
    return placed.with_columns(device=pl.coalesce("device", "main", pl.lit(0))).drop("main")


def _find_launchers(ranges: pl.DataFrame) -> pl.DataFrame:
    """Return the threads that launched work, each with a device number: `report`, `process`, `thread`, `device`."""
    modules = ranges.filter(pl.col("label").str.contains(MODULE))
    shared = modules.filter(pl.col("thread").n_unique().over("report", "process", "name") > 1)
    threads = shared.select(OWNERS).unique()
    alone = ranges.select(OWNERS).unique().sort(OWNERS).unique(OWNERS[:2], keep="first")
    single = alone.join(threads, on=OWNERS[:2], how="anti", nulls_equal=True)
    found = pl.concat([threads, single]).sort(OWNERS)
    return found.with_row_index("device").select(*OWNERS, pl.col("device").cast(pl.Int64))


def split(ranges: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the device events, which are the innermost thunks, and the annotations, which are all other ranges.

    Where a capture has modules but no thunk, the modules are the device events. Events have the name of their operation
    (`hlo_op`), and name and number of the module around them (`hlo_module`, `program`), null where there is none.
    """
    ranges = ranges.with_row_index("row")
    events = ranges.filter(pl.col("label").str.contains(THUNK))
    events = events.filter(~pl.col("row").is_in(_holders(ranges, events)["row"].implode()))
    if events.is_empty():
        events = ranges.filter(pl.col("label").str.contains(MODULE))
    others = ranges.join(events, on="row", how="anti", maintain_order="left")
    columns = ("name", "start_ns", "end_ns", "device", pl.col("thread").fill_null(0).alias("stream"))
    annotations = others.select(
        *columns,
        "process",
        "thread",
        side=pl.lit("device"),
        domain=pl.col("label").str.extract(r"^(?:TSL:)?(\w+):"),
        framework=pl.col("label").str.contains(FRAMEWORK),
    )
    return _find_modules(ranges, events).select(*columns, "hlo_op", "hlo_module", "program"), annotations


def _find_modules(ranges: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Return events with the operation that they ran, and name and number of the innermost module around them."""
    label = pl.col("label")
    module = label.str.contains(MODULE)
    outer = (
        ranges.drop_nulls("range")
        .unique(["report", "range"], keep="first")
        .select(
            "report",
            around="range",
            next="parent",
            found_module=pl.when(module).then("name"),
            found_program=pl.when(module).then(label.str.extract(PROGRAM_NUMBER).cast(pl.Int64)),
        )
    )
    place = events.select("row", "report", around="parent")
    known = [outer.clear().with_columns(row=pl.lit(None, pl.UInt32)).select("row", "found_module", "found_program")]
    for _ in range(DEPTH):
        place = place.drop_nulls("around").join(outer, on=["report", "around"], how="inner")
        if place.is_empty():
            break
        known.append(place.filter(pl.col("found_module").is_not_null()).select("row", "found_module", "found_program"))
        place = place.filter(pl.col("found_module").is_null()).select("row", "report", around="next")
    found = pl.concat(known).rename({"found_module": "hlo_module", "found_program": "program"})
    operation = pl.when(label.str.contains(THUNK)).then(label.str.extract(OPERATION))
    placed = events.join(found, on="row", how="left", maintain_order="left")
    return placed.with_columns(hlo_op=operation, hlo_module=pl.coalesce(label.str.extract(PROGRAM), "hlo_module"))


def _holders(ranges: pl.DataFrame, inner: pl.DataFrame) -> pl.DataFrame:
    """Return the ranges that contain any of `inner`, at any depth."""
    found = inner.clear()
    for _ in range(DEPTH):
        parents = inner.select("report", range="parent").drop_nulls().unique()
        inner = ranges.join(parents, on=["report", "range"], how="semi").join(found, on="row", how="anti")
        if inner.is_empty():
            break
        found = pl.concat([found, inner])
    return found
