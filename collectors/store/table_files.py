"""The tables of one rank as Parquet files: written with plain types, and checked when they are read.

Categories of a `Trace` are stored as texts, so that DuckDB, pandas and polars read every column as it is. Row groups
are small enough that a range of time needs only some of them.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import polars as pl

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.files import PIECE_NBYTES, RATIO_FROM_NBYTES, RATIO_LIMIT, open_file
from deepprof.collectors.importers.flags import NBYTES_LIMIT
from deepprof.collectors.store.manifest import WRITE_AGAIN, TableFile, require_plain
from deepprof.collectors.store.parquet_sizes import MalformedParquetError, read_sizes
from deepprof.collectors.times import TIME_LIMIT_NS
from deepprof.collectors.trace import LAYERS, RECORD_TABLES, TABLES

# `short_name` is for readers of the tables: the part that people use for a kernel; null if it ran on no device.
NAMES = pl.Schema({"name_id": pl.UInt32(), "name": pl.String(), "short_name": pl.String()})
STORED: Mapping[str, pl.Schema] = MappingProxyType({"names": NAMES, **TABLES, "layers": LAYERS})
ADDED_COLUMNS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"operands": ("values", "strides")}  # the last columns of a table, which a store written before they existed lacks
)
GROUP_ROWS = 2**17
LIMIT_NBYTES = 8 * 1024**3  # of one table in memory
TEXT_NBYTES = 16  # of a value that points to a text
TIMED = ("start_ns", "end_ns", "time_ns")
OS_ERROR = re.compile(r"\(os error (\d{1,5})\)")
NO_END = "annotations"  # whose ranges may never have been closed


def write_table(folder: Path, table: str, rows: pl.DataFrame) -> TableFile:
    """Write `rows` as the file of `table` in `folder`, and return its description; raise `OSError` if that fails."""
    path = folder / f"{table}.parquet"
    plain = rows.with_columns(pl.col(pl.Enum).cast(pl.String)) if _has_categories(rows.schema) else rows
    try:
        plain.write_parquet(path, compression="zstd", row_group_size=GROUP_ROWS)
    except pl.exceptions.PolarsError as error:
        raise _disk_error(error, path) from error
    return TableFile(rows=rows.height, nbytes=path.stat().st_size, crc32=sum_up(path))


def _disk_error(error: pl.exceptions.PolarsError, path: Path) -> Exception:
    """Return an error of polars about a full disk and the like as the original `OSError`, any other unchanged."""
    found = OS_ERROR.search(str(error))
    return OSError(int(found[1]), os.strerror(int(found[1])), str(path)) if found else error


def sum_up(path: Path) -> int:
    """Return the CRC-32 of a file."""
    crc = 0
    with open_file(path) as file:
        while piece := file.read(PIECE_NBYTES):
            crc = zlib.crc32(piece, crc)
    return crc


def check_content(folder: Path, table: str, said: TableFile) -> None:
    """Raise `TraceError` unless the file of `table` is as it was written; polars may panic over a damaged one."""
    path = folder / f"{table}.parquet"
    require_plain(path)
    if sum_up(path) != said.crc32:
        raise TraceError(path, "is damaged: its content is not what was written", WRITE_AGAIN)


def _has_categories(schema: pl.Schema) -> bool:
    """Return whether any column of `schema` is of an Enum."""
    return any(isinstance(kind, pl.Enum) for kind in schema.values())


def scan_table(folder: Path, table: str, said: TableFile, row: str | None = None) -> pl.LazyFrame:
    """Return the stored `table` with its schema; nothing but sizes and names is read yet.

    Columns of `ADDED_COLUMNS` that it lacks are null. Raises `TraceError` unless the file has the size and rows that
    its manifest states (`said`) and the columns of the schema, fits `LIMIT_NBYTES` of memory, and is not `RATIO_LIMIT`
    times smaller than what it unpacks to.
    """
    path, schema = folder / f"{table}.parquet", STORED[table]
    require_plain(path)
    with reading(path):
        _check_sizes(path, schema, said)
        stored = pl.read_parquet_schema(path)
        lacking = [column for column in ADDED_COLUMNS.get(table, ()) if column not in stored]
        if dict(stored) != {column: _plain_type(kind) for column, kind in schema.items() if column not in lacking}:
            raise TraceError(path, f"has other columns than the table {table}", WRITE_AGAIN)
        # Only columns that differ are cast: a cast of the times would prevent a range from skipping row groups.
        categories = [pl.col(column).cast(kind) for column, kind in schema.items() if isinstance(kind, pl.Enum)]
        absent = [pl.lit(None, schema[column]).alias(column) for column in lacking]
        return pl.scan_parquet(path, glob=False, row_index_name=row).with_columns(*categories, *absent)


def _check_sizes(path: Path, schema: pl.Schema, said: TableFile) -> None:
    """Raise `TraceError` when the file does not have the stated size, or unpacks to more than a table can have."""
    stored = path.stat().st_size
    if stored != said.nbytes:
        raise TraceError(path, f"has {stored} bytes where its manifest says {said.nbytes}", WRITE_AGAIN)
    sizes = read_sizes(path)
    if sizes.rows != said.rows:
        raise TraceError(path, f"has {sizes.rows} rows where its manifest says {said.rows}", WRITE_AGAIN)
    nbytes = max(sizes.nbytes, said.rows * sum(_width(kind) for kind in schema.values()))
    if nbytes > min(LIMIT_NBYTES, max(RATIO_FROM_NBYTES, RATIO_LIMIT * stored)):
        raise TraceError(path, f"is no table of a trace: it unpacks to {nbytes} bytes", WRITE_AGAIN)


def _width(kind: pl.DataType) -> int:
    """Return the bytes that a value of `kind` takes in memory, without its text."""
    return {pl.UInt16: 2, pl.UInt32: 4, pl.Int32: 4, pl.Boolean: 1, pl.String: TEXT_NBYTES}.get(type(kind), 8)


def _plain_type(kind: pl.DataType) -> pl.DataType:
    """Return the type in which `kind` is stored in a file."""
    return pl.String() if isinstance(kind, pl.Enum) else kind


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn the errors of polars, and of the check of sizes, for a damaged file into a `TraceError`."""
    try:
        yield
    except MalformedParquetError as error:
        raise TraceError(path, f"is no sound Parquet file: it {error}", WRITE_AGAIN) from error
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        words = str(error).partition("\n")[0][:200]
        raise TraceError(path, f"is a damaged Parquet file ({words})", WRITE_AGAIN) from error
    except OSError as error:
        words = str(error).partition("\n")[0][:200]
        raise TraceError(path, f"cannot be read: {words}", "check the path and its permissions") from error


def check_rows(path: Path, table: str, rows: pl.DataFrame) -> None:
    """Raise `TraceError` for times and sizes beyond what a `Trace` may hold, and ends that are missing or too early."""
    if table not in RECORD_TABLES:
        return
    columns = rows.columns
    bad = [~pl.col(time).is_between(-TIME_LIMIT_NS, TIME_LIMIT_NS) for time in TIMED if time in columns]
    bad += [pl.col("end_ns") < pl.col("start_ns")] if "end_ns" in columns else []
    bad += [pl.col("end_ns").is_null()] if "end_ns" in columns and table != NO_END else []
    bad += [~pl.col("nbytes").is_between(-NBYTES_LIMIT, NBYTES_LIMIT)] if "nbytes" in columns else []
    wrong = rows.select(pl.any_horizontal(bad).sum()).item()
    if wrong:
        raise TraceError(path, f"has {wrong} rows with impossible times or sizes", WRITE_AGAIN)
