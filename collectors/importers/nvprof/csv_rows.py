"""Rows of nvprof's CSV as columns of a `Trace`: GPU activities, API calls and NVTX marks."""

from __future__ import annotations

import polars as pl
from msgspec import Struct, field

from deepprof.collectors.importers.flags import Tally
from deepprof.collectors.importers.nvprof.csv_lines import NvprofCsvLines, numbers, split_lines
from deepprof.collectors.trace import COPY_KINDS, DEVICES

TIME_UNITS = {"s": 1e9, "ms": 1e6, "us": 1e3, "µs": 1e3, "μs": 1e3, "ns": 1.0}
SIZE_UNITS = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
SIZE_COLUMNS = ("size", "unifiedmemory")
MEMORIES = ("srcmemtype", "dstmemtype")
WANTED = (
    "start",
    "duration",
    "gridx",
    *SIZE_COLUMNS,
    *MEMORIES,
    "device",
    "context",
    "stream",
    "name",
    "correlationid",
)
NO_STREAM = -1  # the driver's own copies of unified memory run on no stream
DEVICE = r"^\s*(.*?)\s*(?:\((\d{1,5})\))?\s*$"  # "Tesla K40c (0)"
LAUNCHED = r"^(cu\w+)\s+\(.* \[(\d+)\]\)$"  # "cudaLaunchKernel (gemm(float*) [123])"
NUMBERED = r"\s+\[(\d+)\]$"  # "gemm(float*) [123]"
COPY = r"(?i)^\[(?:CUDA|Unified Memory) (?:peer-to-peer )?memcpy\s*(?:([HDAP])to([HDAP]))?"
MIGRATION = "[Unified Memory"
MEMSET = r"(?i)^\[CUDA memset"
MARK = r"^\[(Marker|Range start|Range end)\]\s*(.*?)(?: \(Domain: ([^()]*)\))?$"
# Arrays are in device memory too.
PLACES = {"H": "H", "D": "D", "A": "D", "P": "P"}
UNNAMED_DOMAIN = "<unnamed>"


class NvprofCsvHeader(Struct):
    """The columns of a table and their units, which are in its second line."""

    columns: list[str]
    separator: bytes
    units: dict[str, str] = field(default_factory=dict)

    def scale(self, column: str) -> float:
        """Return the number of nanoseconds in one unit of `column`."""
        return TIME_UNITS[self.units[column]]


class NvprofCsvProcess(Struct, eq=False):
    """The rows that have been read of one process, as loose frames."""

    read: int = 0
    tally: Tally = field(default_factory=Tally)
    device: list[pl.DataFrame] = field(default_factory=list)
    host: list[pl.DataFrame] = field(default_factory=list)
    marks: list[pl.DataFrame] = field(default_factory=list)
    devices: dict[str, int] = field(default_factory=dict)  # number by name as written

    def place(self, texts: pl.Series) -> pl.Series:
        """Return the device number of every text; a text without a number gets the next free one."""
        for text in texts.drop_nulls().unique(maintain_order=True):
            if text not in self.devices:
                number = pl.Series([text]).str.extract(DEVICE, 2)[0]
                free = max(self.devices.values(), default=-1) + 1
                self.devices[text] = int(number) if number is not None else free
        return texts.replace_strict(self.devices, default=None, return_dtype=pl.Int64)

    def list_devices(self) -> pl.DataFrame:
        """Return the devices seen as DEVICES."""
        names = pl.Series(list(self.devices), dtype=pl.String).str.extract(DEVICE, 1)
        rows = pl.DataFrame({"device": pl.Series(list(self.devices.values()), dtype=pl.Int64), "name": names})
        rows = rows.filter(pl.col("device") < 2**16).unique("device", keep="first", maintain_order=True).sort("device")
        absent = [pl.lit(None, dtype).alias(name) for name, dtype in DEVICES.items() if name not in rows.columns]
        return rows.with_columns(absent).select(*DEVICES).cast(dict(DEVICES))  # type: ignore[arg-type]


def read_rows(content: bytes, header: NvprofCsvHeader, process: NvprofCsvProcess) -> None:
    """Add the rows in `content`, whole lines below `header` without blank ones, to `process`."""
    lines = split_lines(content, header.columns, header.separator)
    process.read += lines.fields.height
    rows = _sound_rows(lines, header, process.tally)
    rows = _timed(rows, header).with_columns(_sized(rows, header), *_labelled(rows))
    rows = rows.with_columns(device=process.place(rows["devicename"].set(rows["devicename"] == "", None)))
    kinds = rows.join(_describe_names(rows["name"]), on="name", how="left", nulls_equal=True, maintain_order="left")
    kinds = kinds.with_columns(kind=_kind_of_row())
    process.marks.append(kinds.filter(kind="mark").select("start_ns", "name"))
    process.host.append(_host_columns(kinds.filter(kind="call")))
    process.device.append(_device_columns(kinds.filter(pl.col("kind").is_in(["kernel", "memcpy", "memset"]))))
    for kind, reason in (("page-fault", "unified-memory"), ("other", "unknown-activity")):
        process.tally.keep(kinds, pl.col("kind") != kind, reason)


def _sound_rows(lines: NvprofCsvLines, header: NvprofCsvHeader, tally: Tally) -> pl.DataFrame:
    """Return the rows that are whole, with the columns that are read, null where the table lacks one."""
    absent = [pl.lit(None, pl.String).alias(name) for name in WANTED if name not in header.columns]
    rows = lines.fields.with_columns(absent).select(*WANTED, separators=lines.separators, closed=lines.closed)
    rows = rows.with_columns(numbers(rows["start"], header.separator))
    rows = tally.keep(rows, pl.col("start").is_not_null(), "text")  # what the program itself printed
    width = len(header.columns) - 1
    whole = (pl.col("separators") >= width) & pl.col("closed") & (pl.col("name").str.strip_chars() != "")
    rows = tally.keep(rows, whole, "truncated")
    return tally.keep(rows, pl.col("separators") == width, "malformed").rename({"device": "devicename"})


def _timed(rows: pl.DataFrame, header: NvprofCsvHeader) -> pl.DataFrame:
    """Return `rows` with `start_ns` and `end_ns`; a row without a duration ends where it starts."""
    start = (rows["start"] * header.scale("start")).round().cast(pl.Int64, strict=False)
    duration = numbers(rows["duration"], header.separator) * header.scale("duration")
    known = rows["duration"].str.strip_chars().is_in(["", "-"]) | rows["duration"].is_null()
    duration = duration.round().cast(pl.Int64, strict=False)
    duration = duration.set(known, 0)
    return rows.with_columns(start_ns=start, end_ns=start + duration)


def _sized(rows: pl.DataFrame, header: NvprofCsvHeader) -> pl.Series:
    """Return the `nbytes` of `rows`; a unit after a number overrides the unit of its column."""
    total = pl.Series("nbytes", [None] * rows.height, dtype=pl.Float64)
    for column in SIZE_COLUMNS:
        parts = rows[column].str.extract_groups(r"^\s*([\d.,]+)\s*([KMGT]?B)?\s*$").struct.unnest()
        values, unit = numbers(parts["1"], header.separator), header.units.get(column, "")
        factors = parts["2"].fill_null(unit).replace_strict(SIZE_UNITS, default=None, return_dtype=pl.Float64)
        total = total.zip_with(total.is_not_null(), values * factors)
    return total.round().cast(pl.Int64, strict=False).alias("nbytes")


def _labelled(rows: pl.DataFrame) -> list[pl.Series]:
    """Return the `name` of `rows` without the correlation id that may follow it, and the `correlation`."""
    name = rows["name"].str.strip_chars()
    launch = name.str.extract_groups(LAUNCHED).struct.unnest()
    given = rows["correlationid"].str.strip_chars().cast(pl.Int64, strict=False)
    written = name.str.extract(NUMBERED, 1)
    correlation = pl.select(
        pl.coalesce(given, launch["2"].cast(pl.Int64, strict=False), written.cast(pl.Int64, strict=False))
    ).to_series()
    plain = pl.select(pl.coalesce(launch["1"], name.str.replace(NUMBERED, ""))).to_series()
    return [plain.set(plain == "", None).alias("name"), correlation.alias("correlation")]


def _describe_names(names: pl.Series) -> pl.DataFrame:
    """Return for every distinct name its `what`, null if the name alone does not show it, and its `copy_kind`."""
    name = pl.col("name").fill_null("")
    what = (
        pl.when(name.str.contains(COPY))
        .then(pl.lit("memcpy"))
        .when(name.str.contains(MEMSET))
        .then(pl.lit("memset"))
        .when(name.str.starts_with(MIGRATION))
        .then(pl.lit("page-fault"))
        .when(name.str.contains(MARK))
        .then(pl.lit("mark"))
        .when(name.str.starts_with("["))
        .then(pl.lit("other"))
    )
    ends = [name.str.extract(COPY, at).str.to_uppercase().replace(PLACES) for at in (1, 2)]
    direction = pl.format("{}to{}", *ends)
    peer = direction.str.contains("P").fill_null(value=False) | name.str.contains("peer-to-peer", literal=True)
    copy_kind = pl.when(peer).then(pl.lit("PtoP")).when(direction.is_in(COPY_KINDS)).then(direction)
    return pl.DataFrame({"name": names.unique(maintain_order=True)}).with_columns(what=what, copy_kind=copy_kind)


def _kind_of_row() -> pl.Expr:
    """Return the kind of every row: an activity, "page-fault", "mark", "call" or "other"."""
    on_grid, placed = pl.col("gridx").fill_null("") != "", pl.col("devicename").fill_null("") != ""
    unnamed = pl.when(placed).then(pl.lit("kernel")).otherwise(pl.lit("call"))
    return pl.when(on_grid).then(pl.lit("kernel")).otherwise(pl.coalesce("what", unnamed))


def _device_columns(rows: pl.DataFrame) -> pl.DataFrame:
    """Return GPU activities with the columns that `assemble` takes."""
    stream = pl.col("stream").str.strip_chars().cast(pl.Int64, strict=False).fill_null(0)
    migrated = pl.col("name").str.starts_with(MIGRATION).fill_null(value=False)
    copied = pl.col("kind") == "memcpy"
    memories = [pl.col(column).str.strip_chars() for column in MEMORIES]
    stated = copied & pl.all_horizontal(memory != "" for memory in memories).fill_null(value=False)
    return rows.select(
        "start_ns",
        "end_ns",
        "correlation",
        name=pl.when(stated).then(pl.format("{} ({} -> {})", "name", *memories)).otherwise("name"),
        device=pl.col("device").fill_null(0),
        context=pl.col("context").str.strip_chars().cast(pl.Int64, strict=False),
        stream=pl.when(migrated).then(NO_STREAM).otherwise(stream),
        activity=pl.col("kind"),
        nbytes=pl.when(pl.col("kind") != "kernel").then("nbytes"),
        copy_kind=pl.when(copied).then("copy_kind"),
    )


def _host_columns(rows: pl.DataFrame) -> pl.DataFrame:
    """Return API calls with the columns that `assemble` takes."""
    return rows.select("start_ns", "end_ns", "name", "correlation", category=pl.lit("runtime"))


def pair_ranges(marks: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Return NVTX marks and ranges with the columns that `assemble` takes.

    An end closes the last open start with the same text, or with any text if the ends have none. Ends do not become
    rows: they are dropped as `range-end`, those without a start as `unmatched`.
    """
    parts = marks["name"].str.extract_groups(MARK).struct.unnest()
    rows = marks.with_columns(what=parts["1"], name=parts["2"], domain=parts["3"]).sort("start_ns", maintain_order=True)
    ends = pl.col("what") == "Range end"
    nested = rows.filter(ends & (pl.col("name") != "")).is_empty()
    key = pl.lit("") if nested else pl.col("name")
    ranges = rows.filter(pl.col("what") != "Marker").with_columns(key=key)
    # The level that a start opens is the level that its end closes.
    level = pl.when(ends).then(-1).otherwise(1).cum_sum().over("key") + ends.cast(pl.Int32)
    ranges = ranges.with_columns(level=level)
    following = pl.col("start_ns", "what").shift(-1).over("key", "level")
    before = pl.col("what").shift(1).over("key", "level")
    ranges = ranges.with_columns(following.name.suffix("_next"), before=before)
    closed = pl.col("what_next") == "Range end"
    ranges = tally.keep(ranges, ~(ends & (pl.col("before") == "Range start").fill_null(value=False)), "range-end")
    ranges = tally.keep(ranges, ~ends, "unmatched")
    ranges = ranges.with_columns(end_ns=pl.when(closed).then("start_ns_next"))
    points = rows.filter(pl.col("what") == "Marker").with_columns(end_ns="start_ns")
    columns = ("start_ns", "end_ns", "name", "domain")
    found = pl.concat([ranges.select(*columns), points.select(*columns)])
    domain = pl.when(pl.col("domain") != UNNAMED_DOMAIN).then("domain")
    return found.with_columns(domain=domain, name=pl.when(pl.col("name") != "").then("name"))
