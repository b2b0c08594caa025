"""Reads the new rows of a growing RPD database; its writer never waits for long.

Rows are found by their key alone, which is the order on disk. Keys come in islands: each process that writes has its
own range, and markers count from the middle of it. Within an island a call's key is given when it begins and its row is
written when it ends. So a row may come after rows with larger keys; such rows are searched for as far back as
`LOOKBACK`."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.amd.rpd_tables import CALLS, COPY_CALLS, KERNEL_CALLS, LINKS, OPS
from deepprof.collectors.importers.sqlite.sqlite_database import (
    VALUE_NBYTES,
    SqliteDatabase,
    quoted,
    restrict,
    too_large,
)

COLUMNS = {
    OPS: ("id", "gpuId", "queueId", "start", "end", "description_id", "opType_id"),
    CALLS: ("id", "pid", "tid", "start", "end", "apiName_id", "args_id", "domain_id"),
    LINKS: ("id", "api_id", "op_id"),
    KERNEL_CALLS: ("api_ptr_id",),
    COPY_CALLS: ("api_ptr_id", "size", "dstDevice", "srcDevice"),
}
TEXTS = {KERNEL_CALLS: "stream", COPY_CALLS: "stream"}
ROWS = 20_000  # of a query: some 30 ms in which the writer cannot commit
ISLAND_BITS, ISLANDS = 31, 4096
LOOKBACK = 1 << 16
MIN_KEY = -(2**63)
OPERATIONS, OPERATIONS_PER_CALL = 100_000_000, 100_000  # of a query: far more than one of ours takes
KEYS_AT_ONCE = 500
Keys = npt.NDArray[np.int64]
MISSING = MIN_KEY


class DatabaseBusyError(Exception):
    """The writer has locked the file for now: try again."""


@dataclass(frozen=True, slots=True)
class FileStamp:
    """Which file a name refers to, and its state."""

    device: int
    inode: int
    nbytes: int
    changed_ns: int

    def follows(self, before: FileStamp) -> bool:
        """Return whether this can be the file that was `before`, grown."""
        return (self.device, self.inode) == (before.device, before.inode) and self.nbytes >= before.nbytes


def read_stamp(path: Path) -> FileStamp | None:
    """Return the stamp of a file, None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return FileStamp(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


@dataclass(slots=True, eq=False)
class _KeyRange:
    """Keys of one writer: up to `last` all were read except late ones; `recent` are those read lately."""

    last: int
    recent: Keys = field(default_factory=lambda: np.empty(0, np.int64))

    def take(self, keys: Keys) -> None:
        """Note keys that were read, in order."""
        behind = bool(len(self.recent)) and keys[0] < self.last
        self.last = max(self.last, int(keys[-1]))
        known = np.concatenate([self.recent, keys])
        known = np.sort(known) if behind else known
        self.recent = known[np.searchsorted(known, self.last - LOOKBACK, side="right") :]


class GrowingDatabase:
    """An open database, and how far each of its tables was read. Not for two threads at once.

    Every method raises `DatabaseBusyError`, and `TraceError` for a file that is damaged or something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.islands: dict[str, dict[int, _KeyRange]] = {table: {} for table in COLUMNS}
        uri = f"file:{quote(os.fsencode(path.absolute()))}?mode=ro"
        with reading(path):
            self.connection = sqlite3.connect(
                uri, uri=True, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=256
            )
        try:
            with reading(path):
                restrict(self.connection, max(path.stat().st_size, VALUE_NBYTES))  # the file grows
                self.stored = self.list_columns()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self.connection.close()

    def list_columns(self) -> dict[str, tuple[str, ...]]:
        """Return the columns of every table that are read and exist in it; ordinary tables only."""
        size = max(self.path.stat().st_size, 1)
        tables = SqliteDatabase(self.path, self.connection, size)
        wanted = {table: (*columns, *filter(None, [TEXTS.get(table)])) for table, columns in COLUMNS.items()}
        known = {table: tuple(c for c in columns if c in tables.columns(table)) for table, columns in wanted.items()}
        self.strings = [table for table in ("rocpd_string", "rocpd_ustring") if "string" in tables.columns(table)]
        return {table: columns for table, columns in known.items() if COLUMNS[table][0] in columns}

    @property
    def has_records(self) -> bool:
        """Whether the tables of operations or calls are there: the file may still be incomplete."""
        return OPS in self.stored or CALLS in self.stored

    def read(self) -> dict[str, pl.DataFrame]:
        """Return new rows of every table, at most `ROWS` of each of its islands.

        If the writer locks the file in between, the rows that were read before are returned.
        """
        found: dict[str, list[pl.DataFrame]] = {}
        try:
            with reading(self.path):
                for table in self.stored:
                    for rows in self.read_table(table):
                        found.setdefault(table, []).append(rows)
        except DatabaseBusyError:
            if not found:
                raise
        return {table: pl.concat(frames) for table, frames in found.items()}

    def read_table(self, table: str) -> Iterator[pl.DataFrame]:
        """Yield the new rows of every island of a table."""
        islands = self.islands[table]
        for number in self.find_islands(table):
            island = islands.setdefault(number, _KeyRange((number << ISLAND_BITS) - 1))
            late = self.find_late(table, island)
            rows = self.select(table, island.last, ((number + 1) << ISLAND_BITS) - 1, ROWS)
            for part in (late, rows):
                if part.height:
                    island.take(part[COLUMNS[table][0]].to_numpy())
                    yield part

    def find_islands(self, table: str) -> list[int]:
        """Return the islands of a table that have rows."""
        key, after = COLUMNS[table][0], MIN_KEY
        found: list[int] = []
        while len(found) < ISLANDS:
            row = self.first(f"SELECT {quoted(key)} FROM {quoted(table)} WHERE {quoted(key)} > ? LIMIT 1", after)  # noqa: S608
            if row is None:
                return found
            found.append(row >> ISLAND_BITS)
            after = ((found[-1] + 1) << ISLAND_BITS) - 1
        raise TraceError(self.path, f"more than {ISLANDS} processes wrote it", "record into several files")

    def find_late(self, table: str, island: _KeyRange) -> pl.DataFrame:
        """Return rows that have come late: their keys are not above those that were read."""
        key, since = quoted(COLUMNS[table][0]), max(island.last - LOOKBACK, MIN_KEY)
        within = f"FROM {quoted(table)} WHERE {key} > ? AND {key} <= ?"
        there = self.first(f"SELECT count(*) {within}", since, island.last)
        if there == len(island.recent) or not island.recent.size:
            return self.frame(table, [])
        rows = self.select(table, since, island.last, LOOKBACK)
        return rows.filter(~pl.col(COLUMNS[table][0]).is_in(pl.Series(island.recent).implode()))

    def select(self, table: str, after: int, until: int, most: int) -> pl.DataFrame:
        """Return the rows whose key is in (after, until], in order, at most `most`."""
        key, columns = quoted(COLUMNS[table][0]), self.stored[table]
        names = ", ".join(map(whole, columns)) if table not in TEXTS else ", ".join(map(quoted, columns))
        query = f"SELECT {names} FROM {quoted(table)} WHERE {key} > ? AND {key} <= ? ORDER BY {key} LIMIT ?"  # noqa: S608
        return self.frame(table, self.rows(query, after, until, most))

    def frame(self, table: str, rows: Sequence[tuple[object, ...]]) -> pl.DataFrame:
        """Return stored rows as columns: null for what is absent or of another type."""
        columns = self.stored[table]
        if TEXTS.get(table) not in columns:
            cells = np.fromiter(chain.from_iterable(rows), np.int64).reshape(-1, len(columns))
            numbers = {name: _without_missing(name, cells[:, at]) for at, name in enumerate(columns)}
        else:
            turned = list(zip(*rows, strict=True)) or [()] * len(columns)
            numbers = {name: _column_of(name, turned[at], table) for at, name in enumerate(columns)}
        return pl.DataFrame(numbers)

    def texts(self, keys: Keys) -> dict[str, pl.DataFrame]:
        """Return the texts with these keys, by table, as `id` and `string`; missing ones are left out."""
        found = {}
        with reading(self.path):
            for table in self.strings:
                parts = [keys[at : at + KEYS_AT_ONCE].tolist() for at in range(0, len(keys), KEYS_AT_ONCE)]
                rows = [row for part in parts for row in self.look_up(table, part)]
                ids, texts = zip(*rows, strict=True) if rows else ((), ())
                decoded = [text.decode("utf-8", "replace") if isinstance(text, bytes) else None for text in texts]
                found[table] = pl.DataFrame({"id": ids, "string": decoded}, {"id": pl.Int64, "string": pl.String})
        return found

    def look_up(self, table: str, keys: Sequence[int]) -> list[tuple[object, ...]]:
        """Return the texts of some keys."""
        marks = ", ".join("?" * len(keys))
        return self.rows(f'SELECT id, CAST("string" AS TEXT) FROM {quoted(table)} WHERE id IN ({marks})', *keys)  # noqa: S608

    def first(self, query: str, *values: int) -> int | None:
        """Return the one integer that a query returns."""
        rows = self.rows(query, *values)
        return rows[0][0] if rows and isinstance(rows[0][0], int) else None

    def rows(self, query: str, *values: int) -> list[tuple[object, ...]]:
        """Return all rows of a query, which has ended when this returns: no lock stays."""
        calls = count()
        most = OPERATIONS // OPERATIONS_PER_CALL
        self.connection.set_progress_handler(lambda: int(next(calls) > most), OPERATIONS_PER_CALL)
        return self.connection.execute(query, values).fetchall()


def whole(column: str) -> str:
    """Return SQL for a column that is an integer in every row."""
    name = quoted(column)
    return f"CASE typeof({name}) WHEN 'integer' THEN {name} ELSE {MISSING} END"


def _without_missing(name: str, values: Keys) -> pl.Series:
    """Return integers as a series, null for those that were no integers."""
    series = pl.Series(name, np.ascontiguousarray(values))
    gone = series == MISSING
    return series.set(gone, None) if gone.any() else series


def _column_of(name: str, cells: Sequence[object], table: str) -> pl.Series:
    if name == TEXTS[table]:
        decoded = [cell.decode("utf-8", "replace") if isinstance(cell, bytes) else None for cell in cells]
        return pl.Series(name, decoded, dtype=pl.String)
    return pl.Series(name, [cell if isinstance(cell, int) else None for cell in cells], dtype=pl.Int64)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and the system into `DatabaseBusyError` or `TraceError`."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_SCHEMA):
            raise DatabaseBusyError(str(error)) from error
        raise TraceError(path, f"cannot be read ({error})", "check that it is an .rpd file of yours") from error
    except sqlite3.DataError as error:
        raise too_large(path) from error
    except (sqlite3.Error, OSError, MemoryError, OverflowError) as error:
        raise TraceError(path, f"is damaged or no .rpd file ({error})", "record it again") from error
