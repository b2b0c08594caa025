"""Which share of the time of a kernel's warps has which reason, from metrics of Nsight Compute."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
from msgspec import Struct

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.files import read_head, read_pieces
from deepprof.collectors.importers.generic.text import TextHeader, read_texts, split
from deepprof.collectors.importers.value_columns import GROUPED

# Ways to measure the same, the best one first: cycles between two instructions, and samples of where warps are.
FAMILIES = (
    r"^smsp__average_warps?_issue_stalled_([a-z0-9_]{1,64}?)_per_issue_active(?:\.ratio)?$",
    r"^smsp__average_warp_latency_issue_stalled_([a-z0-9_]{1,64})(?:\.ratio)?$",
    r"^smsp__warps?_issue_stalled_([a-z0-9_]{1,64}?)_per_warp_active(?:\.avg|\.pct)?$",
    r"^smsp__pcsamp_warps?_issue_stalled_([a-z0-9_]{1,64})(?:\.[a-z]+)?$",
)
NOT_ISSUED = "_not_issued"  # the same once more, only over cycles in which nothing was issued
NOT_STALLED = ("selected", "not_selected")  # it issued, or could have but another warp did
COLLECT = "collect them: ncu --section WarpStateStats --section SourceCounters --csv --page raw"

HEAD_NBYTES = 8 * 1024**2  # of the output before the header, and the header
LIMIT_NBYTES = 512 * 1024**2
COLUMNS = 20_000  # ncu has a few thousand metrics
CELLS = 50_000_000  # that are read: fields that a short line leaves out take memory, too
FEWER = "profile fewer launches (ncu --launch-count) or fewer metrics"
HEADER = re.compile(rb'^(?:\xef\xbb\xbf)?"?ID"?,[^\n]*Kernel Name[^\n]*\n?', re.MULTILINE)
EXPORT = "export it with `ncu --import REPORT --csv --page raw`"
LAUNCH = ("ID", "Process ID", "Kernel Name")
METRIC = ("Metric Name", "Metric Unit", "Metric Value")
PREFIXES = {"K": 1e3, "M": 1e6, "G": 1e9}  # of units: ncu scales values to fit
# Where a decimal comma is the custom, ncu writes "1.234,5" and "27.595.520"; three digits state nothing.
DECIMAL_COMMA = r"^[\d.]*,(?:\d{1,2}|\d{4,})$|^\d{1,3}(?:\.\d{3})*,\d+$|^\d{1,3}(?:\.\d{3}){2,}$"
DECIMAL_POINT = r"^[\d,]*\.(?:\d{1,2}|\d{4,})$|^\d{1,3}(?:,\d{3})+(?:\.\d*)?$"
LARGEST = 1e18


class StallExport(Struct, frozen=True, eq=False):
    """The stall reasons in the export at `path`, of which `unreadable` values are no numbers.

    `table` has a row per `kernel` (its name there) and `reason`, with its `share_ratio` of all that the kernel's warps
    did: the shares of a kernel add up to 1.
    """

    path: Path
    table: pl.DataFrame
    unreadable: int


def read_stalls(path: Path) -> StallExport:
    """Return the stall reasons of the kernels in an export of Nsight Compute, their launches added up.

    Raises `TraceError` when the file cannot be read, is no such export, or has no such metric.
    """
    values = _read_metrics(path, "|".join(FAMILIES))
    counted = values.drop_nulls("value")
    named = _name_reasons(counted)
    shares = _share(named)
    if shares.is_empty():
        raise TraceError(path, "has no stall reasons of any kernel (smsp__…_issue_stalled_…)", COLLECT)
    return StallExport(path, shares, values.height - counted.height)


def _name_reasons(values: pl.DataFrame) -> pl.DataFrame:
    """Return values with their `reason` and the number of their `family`; one of every launch, reason and family."""
    reasons = [pl.col("metric").str.extract(pattern, 1) for pattern in FAMILIES]
    family = pl.coalesce(pl.when(each.is_not_null()).then(pl.lit(number)) for number, each in enumerate(reasons))
    named = values.with_columns(reason=pl.coalesce(reasons), family=family).drop_nulls("reason")
    once = named.sort("metric").unique(["launch", "kernel", "reason", "family"], keep="first", maintain_order=True)
    return once.filter(~pl.col("reason").str.ends_with(NOT_ISSUED))


def _share(named: pl.DataFrame) -> pl.DataFrame:
    """Return the share of every reason of every kernel, by the first family that has anything of it."""
    added = named.group_by("kernel", "family", "reason").agg(pl.col("value").sum())
    whole = pl.col("value").sum()
    some = added.filter(whole.over("kernel", "family") > 0)
    best = some.filter(pl.col("family") == pl.col("family").min().over("kernel"))
    shares = best.select("kernel", "reason", share_ratio=pl.col("value") / whole.over("kernel"))
    return shares.sort("kernel", "reason")


def _read_metrics(path: Path, pattern: str) -> pl.DataFrame:
    """Return the metrics of all kernel launches in `path` whose whole names match the regular expression `pattern`.

    The columns are `launch` (its number), `kernel` (its name), `metric` and `value` (null: no number from 0 to 10¹⁸).
    Memory is about five times the file. Raises `TraceError` when the file cannot be read or is no such export.
    """
    header = _find_header(path)
    known = [name for name in LAUNCH if name in header.columns]
    if set(METRIC[::2]) <= set(header.columns):
        listed = _read(path, header, [*known, *(name for name in METRIC if name in header.columns)])
        rows = listed.filter(pl.col(METRIC[0]).str.contains(pattern))
    else:
        rows = _read_wide(path, header, known, pattern)
    return _number(rows, known)


def _find_header(path: Path) -> TextHeader:
    """Return the header of an export; raises `TraceError` where there is none."""
    head = read_head(path, HEAD_NBYTES)
    if head.startswith(b"NVR\0"):
        raise TraceError(path, "is a report of Nsight Compute, not an export of one", EXPORT)
    found = HEADER.search(head)
    if found is None or b"\0" in found[0]:
        problem = 'is no export of Nsight Compute (no line that begins with "ID" and names the column "Kernel Name")'
        raise TraceError(path, problem, EXPORT)
    columns = split(found[0].decode("utf-8", "replace").removeprefix("\ufeff").rstrip("\n"), ",")
    if len(columns) > COLUMNS:
        raise TraceError(path, f"has more than {COLUMNS:,} columns", EXPORT)
    if "Kernel Name" not in columns or "ID" not in columns:
        raise TraceError(path, 'is no export of Nsight Compute (no columns "ID" and "Kernel Name")', EXPORT)
    return TextHeader(head.count(b"\n", 0, found.start()), ",", columns)


def _read_wide(path: Path, header: TextHeader, known: list[str], pattern: str) -> pl.DataFrame:
    """Return the rows of an export with a column per metric as rows of one metric each, with its unit.

    The row behind the header has the units, and no launch.
    """
    metrics = [name for name in header.columns if re.search(pattern, name)]
    table = _read(path, header, [*known, *metrics])
    if not metrics:
        return table.head(0).with_columns(pl.lit("").alias(name) for name in METRIC)
    rows = table.unpivot(metrics, index=known, variable_name=METRIC[0], value_name=METRIC[2])
    units = rows.filter(_is_empty("ID")).unique(METRIC[0], keep="first", maintain_order=True)
    return rows.join(units.select(METRIC[0], pl.col(METRIC[2]).alias(METRIC[1])), on=METRIC[0], how="left")


def _read(path: Path, header: TextHeader, columns: list[str]) -> pl.DataFrame:
    """Return columns of an export as texts; raises `TraceError` where they would take too much memory."""
    lines = sum(piece.count(b"\n") for piece in read_pieces(path, limit=LIMIT_NBYTES)) + 1
    if lines * len(columns) > CELLS:
        raise TraceError(path, f"has {lines:,} lines, of which {len(columns):,} columns are too many to read", FEWER)
    return read_texts(path, header, columns)


def _number(rows: pl.DataFrame, known: list[str]) -> pl.DataFrame:
    """Return rows of texts as `launch`, `kernel`, `metric`, `value`; a metric of a launch that occurs twice once."""
    unit = pl.col(METRIC[1]) if METRIC[1] in rows.columns else pl.lit(None, pl.String)
    factor = unit.str.extract(r"^([KMG])(?:warp|inst|sample|cycle)", 1).replace_strict(
        PREFIXES, default=1.0, return_dtype=pl.Float64
    )
    value = _read_numbers(pl.col(METRIC[2])) * factor
    launches = rows.filter(pl.col("ID").str.contains(r"^\d+$") & ~_is_empty("Kernel Name") & ~_is_empty(METRIC[2]))
    distinct = launches.unique([*known, METRIC[0]], keep="first", maintain_order=True)
    return distinct.select(
        launch=pl.struct(name for name in known if name != "Kernel Name").rank("dense"),
        kernel="Kernel Name",
        metric=METRIC[0],
        value=pl.when(value.is_between(0, LARGEST)).then(value),
    )


def _read_numbers(text: pl.Expr) -> pl.Expr:
    """Return texts, with or without separators of thousands, as numbers; more of them show which decimal sign it is."""
    without_points = text.str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True)
    grouped = text.str.contains(GROUPED)
    without_commas = pl.when(grouped).then(text.str.replace_all(",", "", literal=True)).otherwise(text)
    comma = text.str.contains(DECIMAL_COMMA).sum() > text.str.contains(DECIMAL_POINT).sum()
    return pl.when(comma).then(without_points).otherwise(without_commas).cast(pl.Float64, strict=False)


def _is_empty(column: str) -> pl.Expr:
    return pl.col(column).is_null() | (pl.col(column) == "")
