"""Columns of SQLite tables as polars series, read-only, from files that may be damaged or hostile.

Only ordinary tables are read: a view, a virtual table or a generated column would run code from the file. SQLite's own
work is bounded by the size of the file, so that a damaged page tree ends in an error and not in an endless scan.
Integers come directly from the file's pages where `sqlite_pages` can read them, five times as fast.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import contextmanager
from functools import cache
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.sqlite import sqlite_pages
from deepprof.collectors.importers.sqlite.packed import is_packed, unpack
from deepprof.collectors.importers.sqlite.sqlite_pages import MISSING, PageFile, StoredColumn, UnsuitableTableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SQLITE_MAGIC = b"SQLite format 3\0"
Row = tuple[Any, ...]
Int64s = npt.NDArray[np.int64]

# A stored row costs SQLite a few operations per byte; a damaged tree that is walked in circles costs far more.
OPERATIONS_PER_BYTE = 64
OPERATIONS_FLOOR = 10_000_000
OPERATIONS_PER_CALL = 100_000

VALUE_NBYTES = 64 * 1024**2  # of one text, blob or row, as of one event in a JSON trace
EXPORT_AGAIN = "export it again"
SIDE_SUFFIXES = ("-wal", "-journal")
REAL = ("REAL", "FLOA", "DOUB")  # in the declared type: its integers are read as floats
FINISHED = (b"", b"\0")  # the first byte of an empty side file, and of one whose header was wiped
# The columns of a table are read one after the other and matched by position: NOT INDEXED makes SQLite scan the table
# itself, and the last pragma undoes a build setting that would reverse the order. ORDER BY would sort.
PRAGMAS = ("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0", "reverse_unordered_selects = OFF")
ORDINARY_TABLES = "SELECT name, type, rootpage FROM sqlite_master WHERE type IN ('table', 'view')"


class SqliteDatabase:
    """The ordinary tables of one open database; every method raises `TraceError` when the file is damaged."""

    def __init__(self, path: Path, connection: sqlite3.Connection, size: int) -> None:
        self.path, self.connection, self.size = path, connection, size
        self.roots, self.views = self._list_tables()
        self.tables = frozenset(self.roots)
        self.columns = cache(self._list_columns)
        self._layout = cache(self._lay_out)

    def _list_tables(self) -> tuple[Mapping[str, int], frozenset[str]]:
        # A virtual table is listed as a table too, without a root page.
        rows = [(decode(name), kind == b"table", page) for name, kind, page in self._rows(ORDINARY_TABLES)]
        tables = {name: page for name, is_table, page in rows if is_table and page}
        return tables, frozenset(name for name, _, _ in rows) - tables.keys()

    def _list_columns(self, table: str) -> Mapping[str, bool]:
        """Return the stored columns of `table`, each with whether it is declared `NOT NULL`; none if no such table."""
        if table not in self.tables:
            return {}
        rows = self._rows(f"PRAGMA table_xinfo({quoted(table)})")
        return {decode(row[1]): bool(row[3]) for row in rows if not row[6]}  # row[6]: hidden or generated

    def count(self, table: str) -> int:
        """Return the number of rows of `table`, 0 when there is no such table."""
        if table not in self.tables:
            return 0
        return int(next(self._rows(f"SELECT count(*) FROM {quoted(table)} NOT INDEXED"))[0])  # noqa: S608

    def integers(self, table: str, columns: Mapping[str, int | None]) -> pl.DataFrame:
        """Return `columns` of `table` as Int64, rows in stored order; null for values that are no integers.

        `columns` maps each name to the default value of a column that the table lacks.
        """
        stored = [name for name in columns if name in self.columns(table)]
        try:
            series = self._from_pages(table, stored) if stored else {}
        except (UnsuitableTableError, OSError):
            series = self._from_rows(table, stored)
        rows = len(series[stored[0]]) if stored else self.count(table)
        return pl.DataFrame([series[n] if n in series else _repeated(n, columns[n], rows) for n in columns])

    def texts(self, table: str, column: str) -> pl.Series:
        """Return `column` of `table` as String, rows in stored order, bad UTF-8 replaced; null where it is null.

        All rows are null when the table lacks the column.
        """
        if column not in self.columns(table):
            return pl.Series(column, [None] * self.count(table), dtype=pl.String)
        lenient = cache(decode)  # most texts repeat
        values = self._values(f"SELECT {quoted(column)} FROM {quoted(table)} NOT INDEXED")  # noqa: S608
        return pl.Series(column, [None if value is None else lenient(value) for value in values], dtype=pl.String)

    def blobs(self, table: str, column: str) -> pl.Series:
        """Return `column` of `table` as Binary, rows in stored order; null where it contains no bytes or is absent."""
        if column not in self.columns(table):
            return pl.Series(column, [None] * self.count(table), dtype=pl.Binary)
        values = self._values(f"SELECT {quoted(column)} FROM {quoted(table)} NOT INDEXED")  # noqa: S608
        return pl.Series(column, [v if isinstance(v, bytes) else None for v in values], dtype=pl.Binary)

    def has_values(self, table: str, column: str) -> bool:
        """Return whether any row of `table` has a value in `column`."""
        if column not in self.columns(table):
            return False
        query = f"SELECT 1 FROM {quoted(table)} NOT INDEXED WHERE {quoted(column)} IS NOT NULL LIMIT 1"  # noqa: S608
        return next(self._rows(query), None) is not None

    def _from_pages(self, table: str, columns: Sequence[str]) -> dict[str, pl.Series]:
        """Return the stored `columns` of `table`; raise `UnsuitableTableError` or `OSError` if SQLite must read."""
        layout = self._layout(table)
        if not all(name in layout for name in columns):
            raise UnsuitableTableError("a column that SQLite converts")
        with self.path.open("rb", buffering=0) as file:
            values = sqlite_pages.read_integers(PageFile.of(file), self.roots[table], [layout[n] for n in columns])
        values.reverse()  # each array is released as soon as it is a series
        return {name: _nullable(name, values.pop()) for name in columns}

    def _lay_out(self, table: str) -> Mapping[str, StoredColumn]:
        """Return the positions in the records of `table` of the columns that SQLite does not convert."""
        rows = [row for row in self._rows(f"PRAGMA table_xinfo({quoted(table)})") if row[6] != 2]  # 2: not stored
        keys = [row[1] for row in rows if row[5]]
        indexes = self._rows(f"PRAGMA index_list({quoted(table)})")
        alias = keys if len(keys) == 1 and all(index[3] != b"pk" for index in indexes) else []
        return {
            decode(name): StoredColumn(position, _kind_of_column(kind, default, name in alias))
            for position, (_, name, kind, _, default, *_) in enumerate(rows)
            if not any(part in decode(kind).upper() for part in REAL)
        }

    def _from_rows(self, table: str, columns: Sequence[str]) -> dict[str, pl.Series]:
        """Return the stored `columns` of `table`, row by row through SQLite."""
        constant = self._constants(table, columns)
        varying = [name for name in columns if name not in constant]
        data = self._numbers(table, varying)
        rows = len(data) if varying else self.count(table)
        fixed = {name: _repeated(name, value, rows) for name, value in constant.items()}
        return fixed | {name: _nullable(name, data[:, at]) for at, name in enumerate(varying)}

    def _constants(self, table: str, columns: Sequence[str]) -> dict[str, int | None]:
        """Return the columns that hold one integer, or null, in every row, with that value.

        Finding them costs a tenth of reading them, and most captures have one device and one process.
        """
        row = self._first(table, columns, {})
        fixed = {name: v for name, v in zip(columns, row or (), strict=False) if v is None or isinstance(v, int)}
        while fixed and (row := self._first(table, list(fixed), fixed)):
            fixed = {name: v for (name, v), other in zip(fixed.items(), row, strict=True) if v == other}
        return fixed

    def _first(self, table: str, columns: Sequence[str], other_than: Mapping[str, int | None]) -> Row | None:
        """Return `columns` of the first row that differs from `other_than` in any column."""
        if not columns:
            return None
        where = " OR ".join(f"{quoted(name)} IS NOT ?" for name in other_than) or "TRUE"
        names = ", ".join(map(quoted, columns))
        query = f"SELECT {names} FROM {quoted(table)} NOT INDEXED WHERE {where} LIMIT 1"  # noqa: S608
        return next(self._rows(query, tuple(other_than.values())), None)

    def _numbers(self, table: str, columns: Sequence[str]) -> Int64s:
        """Return `columns` of `table` as (rows, columns) int64, `MISSING` where there is no integer."""
        if not columns:
            return np.empty((0, 0), np.int64)
        query = f"SELECT {', '.join(map(_guarded, columns))} FROM {quoted(table)} NOT INDEXED"  # noqa: S608
        with reading(self.path):
            cells = chain.from_iterable(self.connection.execute(query))
            return np.fromiter(cells, np.int64).reshape(-1, len(columns))

    def _values(self, query: str) -> Iterator[Any]:
        """Yield the values of the one column of `query`; raise `TraceError` for more text than the file can hold."""
        left = 2 * self.size  # UTF-16 grows on the way to UTF-8
        with reading(self.path):
            for (value,) in self.connection.execute(query):
                if isinstance(value, bytes):
                    left -= len(value)
                if left < 0:
                    raise TraceError(self.path, "is damaged: it holds more text than its size allows", EXPORT_AGAIN)
                yield value

    def _rows(self, query: str, parameters: Row = ()) -> Iterator[Row]:
        with reading(self.path):
            yield from self.connection.execute(query, parameters)


@contextmanager
def open_database(path: Path) -> Iterator[SqliteDatabase]:
    """Open the SQLite database `path` read-only, without the files next to it; a compressed one is unpacked first.

    Raises `TraceError` when it is no database, when it is too large unpacked (`files.LIMIT_NBYTES`), or when there are
    pages next to it that its writer has not yet written back.
    """
    if not is_packed(path):
        with _open_plain(path) as database:
            yield database
        return
    with tempfile.TemporaryDirectory(prefix="deepprof-") as folder:
        plain = Path(folder, "unpacked")
        try:
            unpack(path, plain)
            with _open_plain(plain) as database:
                yield database
        except TraceError as error:
            own = error.path == str(plain)
            raise TraceError(path if own else error.path, error.problem, error.advice) from error


@contextmanager
def _open_plain(path: Path) -> Iterator[SqliteDatabase]:
    """Open a database that is not compressed.

    Raises `TraceError` when it is no database, or when there are pages next to it that its writer has not yet written
    back.
    """
    try:
        size = path.stat().st_size
        beside = _uncommitted(path)
    except (OSError, ValueError) as error:
        raise TraceError(path, f"cannot be read: {error}", "check the path") from error
    if beside is not None:
        advice = "close the program that writes it, or export it again"
        raise TraceError(path, f"has uncommitted pages beside it ({beside.name})", advice)
    with reading(path):
        # immutable: no lock, no journal, no -wal or -shm next to a file that is not ours
        uri = f"file:{quote(os.fsencode(path.absolute()))}?mode=ro&immutable=1"
        connection = sqlite3.connect(uri, uri=True)
    try:
        with reading(path):
            restrict(connection, size)
        yield SqliteDatabase(path, connection, size)
    finally:
        connection.close()


def _uncommitted(path: Path) -> Path | None:
    """Return the write-ahead log or hot journal, if any, without which the database `path` must not be read."""
    real = os.path.realpath(path)  # where SQLite searches for it
    beside = [Path(f"{name}{suffix}") for name in (path, real) for suffix in SIDE_SUFFIXES]
    return next((side for side in beside if side.is_file() and _holds_pages(side)), None)


def _holds_pages(side: Path) -> bool:
    """Return whether the side file `side` contains pages: a finished journal is empty or starts with zeros."""
    with side.open("rb") as file:
        return file.read(1) not in FINISHED


def restrict(connection: sqlite3.Connection, size: int) -> None:
    """Make `connection` return texts as bytes, and limit its work and values to a file of `size` bytes."""
    connection.text_factory = bytes
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    most = min(max(size, 100_000), VALUE_NBYTES)  # no row is larger than its file
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, most)
    calls = count()
    budget = (OPERATIONS_FLOOR + OPERATIONS_PER_BYTE * size) // OPERATIONS_PER_CALL
    connection.set_progress_handler(lambda: int(next(calls) > budget), OPERATIONS_PER_CALL)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn SQLite's errors about `path` into a `TraceError`."""
    try:
        yield
    except sqlite3.DataError as error:  # a value is larger than `restrict` allows
        raise too_large(path) from error
    except (sqlite3.Error, sqlite3.Warning, UnicodeDecodeError, MemoryError) as error:
        raise TraceError(path, f"is damaged or no SQLite database ({_problem(error)})", EXPORT_AGAIN) from error


def too_large(path: Path) -> TraceError:
    """Return the error for a file with a value that is larger than `restrict` allows."""
    what = f"is no trace: it holds a text or blob of more than {VALUE_NBYTES >> 20} MiB, or than the file has room for"
    return TraceError(path, what, "give a file written by a profiler")


def _problem(error: Exception) -> str:
    """Return the message of `error`, in words that describe a file."""
    text = str(error)
    return "its pages lead nowhere" if text == "interrupted" else text or type(error).__name__


def quoted(identifier: str) -> str:
    """Return `identifier` as SQL."""
    return '"' + identifier.replace('"', '""') + '"'


def _guarded(column: str) -> str:
    """Return an SQL expression for `column` that is an integer in every row."""
    return f"CASE typeof({quoted(column)}) WHEN 'integer' THEN {quoted(column)} ELSE {MISSING} END"


def _nullable(name: str, values: Int64s) -> pl.Series:
    """Return `values` as an Int64 series, null where they are `MISSING`."""
    series = pl.Series(name, np.ascontiguousarray(values))
    missing = series == MISSING
    return series.set(missing, None) if missing.any() else series


def _kind_of_column(declared: object, default: object, is_alias: bool) -> int:
    """Return how the pages store a column: not at all if it is the rowid, not in every row if it has a default."""
    if is_alias and decode(declared).upper() == "INTEGER":
        return sqlite_pages.THE_ROWID
    return sqlite_pages.STORED if default is None else sqlite_pages.WITH_DEFAULT


def _repeated(name: str, value: int | None, rows: int) -> pl.Series:
    """Return `rows` times `value` as Int64."""
    return pl.repeat(value, rows, dtype=pl.Int64, eager=True).rename(name)


def decode(value: object) -> str:
    """Return a stored value as text, bad UTF-8 replaced."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
