"""Nsight Systems directories: what `nsys export --type parquetdir` and `--type arrowdir` write, one file per table.

The tables and columns are those of the SQLite export, and the same code makes a trace of them. Names are ids into
`StringIds`; where a column contains the names themselves, the names get new ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from itertools import islice
from pathlib import Path

import polars as pl

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.frames import FrameFile, is_table_file, plain_texts, whole_numbers
from deepprof.collectors.importers.nsys import OWN_TABLES, is_nsys, make_trace
from deepprof.collectors.importers.value_columns import NameTable
from deepprof.collectors.trace import Trace

SUFFIXES = (".parquet", ".arrow", ".arrows", ".ipc", ".feather")
FOLDER_SUFFIXES = ("_pqtdir", "_arwdir", ".parquetdir", ".arrowdir", "_parquetdir", "_arrowdir", "")
FILES = 2_000  # of one export: nsys has about a hundred tables
NAMED_TABLES = re.compile(r"CUPTI_ACTIVITY_KIND_\w+|NVTX_EVENTS|OSRT_API|PROFILER_OVERHEAD")
STRINGS, NAME_COLUMNS = "StringIds", ("demangledName", "shortName", "nameId", "textId")
OWN_IDS = 2**50  # above every id of nsys, which are 32 bits wide


class NsysDirectory:
    """Importer of Nsight Systems captures exported as a directory."""

    name = "nsys-directory"
    suffixes = ("_pqtdir", "_arwdir")
    cheap_details = True

    def accepts(self, head: bytes, path: Path) -> bool:
        """Return whether `path` is a directory of nsys' tables, or one of them; never raises."""
        try:
            if path.is_dir():
                return is_nsys(table.stem for table in _table_files(path))
        except OSError:
            return False
        return is_table_file(head) and OWN_TABLES.fullmatch(path.stem) is not None

    def covers(self, path: Path) -> Iterator[Path]:
        """Yield the paths beside the directory `path` of the report that it was exported from and of its SQLite export.

        The names are those that nsys gives by default.
        """
        for suffix in FOLDER_SUFFIXES:
            if path.is_dir() and path.name.endswith(suffix):
                stem = path.name.removesuffix(suffix)
                yield from (path.with_name(stem + other) for other in (".sqlite", ".nsys-rep", ".qdrep") if stem)

    def read(self, path: Path, *, details: bool = False, shapes: bool = True) -> Trace:
        """Return the capture in the directory `path`, with clock "session" and format "nsys".

        Only the columns that are needed are read; they need at most `LIMIT_NBYTES` for every table. Raises `TraceError`
        when a table cannot be read, is damaged, or is a link that leads out of the directory, and for a single table.
        """
        if not path.is_dir():
            problem = "is one table of an Nsight Systems export, which takes all of them"
            raise TraceError(path, problem, f"name the directory {path.absolute().parent}")
        tables = _NsysDirectoryTables(path)
        if not is_nsys(tables.tables):
            raise TraceError(path, "is a directory of something else", "name a directory that nsys exported")
        return make_trace(tables, path, details=details, shapes=shapes)


class _NsysDirectoryTables:
    """The tables of one directory, with the interface of `nsys_database.NsysDatabase`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.views: frozenset[str] = frozenset()
        self.files = _find_tables(path)
        self.tables = frozenset(self.files)
        self.file = cache(self._open)

    def _open(self, table: str) -> FrameFile:
        return FrameFile(self.files[table])

    @cached_property
    def own_names(self) -> NameTable:
        """Return the names that any table has in place of ids."""
        names = NameTable()
        for table in sorted(filter(NAMED_TABLES.fullmatch, self.tables)):
            schema = self.file(table).schema
            for column in NAME_COLUMNS:
                if column in schema and _is_text(schema[column]):
                    names.ids(self._texts(table, column).drop_nulls().unique(maintain_order=True).to_list())
        return names

    def count(self, table: str) -> int:
        """Return the number of rows of `table`, 0 when there is no such table."""
        return self.file(table).rows if table in self.tables else 0

    def integers(self, table: str, columns: Mapping[str, int | None]) -> pl.DataFrame:
        """Return `columns` of `table` as Int64, rows in stored order; null for values that are no integers.

        `columns` maps each name to the default value of a column that the table lacks.
        """
        if table == STRINGS:
            return self._string_ids(columns)
        stored = self.file(table).schema if table in self.tables else pl.Schema()
        found = [name for name in columns if name in stored]
        frame = self.file(table).read(found) if found else pl.DataFrame()
        rows = self.count(table)
        series = [
            self._ids(frame[name]) if name in found else pl.repeat(columns[name], rows, dtype=pl.Int64, eager=True)
            for name in columns
        ]
        return pl.DataFrame([values.rename(name) for name, values in zip(columns, series, strict=True)])

    def texts(self, table: str, column: str) -> pl.Series:
        """Return `column` of `table` as String, rows in stored order; all null when the table lacks the column."""
        own = list(self.own_names) if table == STRINGS else []
        return pl.concat([self._texts(table, column), pl.Series(column, own, dtype=pl.String)])

    def has_values(self, table: str, column: str) -> bool:
        """Return whether any row of `table` has a value in `column`."""
        if table not in self.tables or column not in self.file(table).schema:
            return False
        values = self.file(table).read([column])[column]
        return values.null_count() < len(values)

    def _texts(self, table: str, column: str) -> pl.Series:
        if table not in self.tables or column not in self.file(table).schema:
            return pl.Series(column, [None] * self.count(table), dtype=pl.String)
        return plain_texts(self.file(table).read([column])[column]).rename(column)

    def _string_ids(self, columns: Mapping[str, int | None]) -> pl.DataFrame:
        """Return the ids of `StringIds`, followed by the new ids of the names that have none there."""
        stored = self.file(STRINGS).read(["id"])["id"] if self._has_strings() else pl.Series("id", [], pl.Int64)
        own = pl.Series([OWN_IDS + at for at in range(len(self.own_names))], dtype=pl.Int64)
        ids = pl.concat([whole_numbers(stored), own.rename("id")])
        empty = pl.repeat(None, self.count(STRINGS), dtype=pl.Int64, eager=True)
        ids = ids if self._has_strings() else pl.concat([empty, own]).rename("id")
        return pl.DataFrame({name: ids if name == "id" else None for name in columns})

    def _has_strings(self) -> bool:
        return STRINGS in self.tables and "id" in self.file(STRINGS).schema

    def _ids(self, values: pl.Series) -> pl.Series:
        """Return the integers of a column, or the ids of its names if it contains names."""
        if values.name not in NAME_COLUMNS or not _is_text(values.dtype):
            return whole_numbers(values)
        ids = {name: OWN_IDS + at for name, at in self.own_names.items()}
        return values.cast(pl.String).replace_strict(ids, default=None, return_dtype=pl.Int64)


def _is_text(kind: pl.DataType) -> bool:
    """Return whether a column of type `kind` contains texts."""
    return isinstance(kind, pl.String | pl.Categorical | pl.Enum)


def _table_files(path: Path) -> Iterator[Path]:
    """Yield the files in the directory `path` that have the suffix of a table format that is read."""
    for entry in islice(path.iterdir(), FILES):
        if entry.suffix.lower() in SUFFIXES and not entry.name.startswith("."):
            yield entry


def _find_tables(path: Path) -> dict[str, Path]:
    """Return the files of the directory `path` by table.

    Raises `TraceError` when it cannot be listed, or when a table is elsewhere or occurs twice.
    """
    try:
        root = path.resolve()
        files = sorted(_table_files(path))
        strays = [file for file in files if not file.resolve().is_relative_to(root)]
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise TraceError(path, f"cannot be listed: {error}", "check the path and its permissions") from error
    if strays:
        problem = f"holds a link that leads out of it ({strays[0].name})"
        raise TraceError(path, problem, "copy the file to where the link is")
    tables = {file.stem: file for file in files}
    if len(tables) < len(files):
        raise TraceError(path, "holds a table in two formats", "export it again, into a directory of its own")
    return tables
