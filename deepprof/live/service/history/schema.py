"""The history's database: its tables, who may open it, and what SQLite's errors mean here."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from deepprof.live.service.folder import CHECK, StoreError, open_plain, require_kind
from deepprof.live.service.views import HISTORY

__all__ = [
    "COLUMNS",
    "DATABASE",
    "SCHEMA",
    "SIDE_FILES",
    "STORED_ROWS",
    "VALUE_NBYTES",
    "connect",
    "guarding",
    "is_empty",
    "require_ours",
    "set_up",
]

DATABASE = "history.db"
SIDE_FILES = ("-wal", "-shm", "-journal")  # of SQLite's own, beside the database
APPLICATION_ID = 0x44507266  # "DPrf"
VERSION = 1
WAL_NBYTES = 64 << 20  # what the write-ahead log is cut back to
BUSY_S = 30.0
VALUE_NBYTES = 512 << 20  # of one value or row: twice what the state of a rank holds at most (`session.limits`)
# SQLite's errors that are the system's and may pass: another program holds the database, the disk is full or read-only,
# no more files can be opened.
SYSTEM = {
    sqlite3.SQLITE_BUSY: errno.EBUSY,
    sqlite3.SQLITE_LOCKED: errno.EBUSY,
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_IOERR: errno.EIO,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_CANTOPEN: errno.EIO,
}

STORED_ROWS = pl.Schema({"session": pl.Int64(), "row": pl.Int64(), **HISTORY})
COLUMNS = ", ".join(f'"{column}"' for column in STORED_ROWS)
TYPES = ", ".join(f'"{column}" {"REAL" if kind.is_float() else "INTEGER"}' for column, kind in HISTORY.items())

# A row's number says when it was given among all rows, and is never used twice. A session's rows below its `first_row`
# were replaced. `marks` say until which row all had been given at what time. Every row up to the counter `sealed` is
# in a sealed file, or gone.
SCHEMA = (
    "CREATE TABLE sessions (session INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT NOT NULL, rank INTEGER NOT NULL,"
    " collector TEXT NOT NULL, hello BLOB NOT NULL, begun_unix_ns INTEGER NOT NULL, latest_unix_ns INTEGER NOT NULL,"
    " closed INTEGER NOT NULL DEFAULT 0, settled INTEGER NOT NULL DEFAULT 0, first_row INTEGER NOT NULL DEFAULT 0,"
    " iterations INTEGER NOT NULL DEFAULT 0, at_segment INTEGER, at_offset INTEGER, at_length INTEGER)",
    "CREATE INDEX sessions_of_job ON sessions (job, rank)",
    "CREATE TABLE states (session INTEGER PRIMARY KEY, state BLOB NOT NULL)",
    f'CREATE TABLE iterations (session INTEGER NOT NULL, "row" INTEGER NOT NULL, {TYPES},'
    ' PRIMARY KEY (session, "row")) WITHOUT ROWID',
    'CREATE TABLE marks ("row" INTEGER PRIMARY KEY, unix_ns INTEGER NOT NULL)',
    "CREATE TABLE sealed (number INTEGER PRIMARY KEY AUTOINCREMENT, nbytes INTEGER NOT NULL, crc32 INTEGER NOT NULL,"
    " rows INTEGER NOT NULL, given_unix_ns INTEGER NOT NULL)",
    "CREATE TABLE sealed_sessions (session INTEGER NOT NULL, number INTEGER NOT NULL, rows INTEGER NOT NULL,"
    " last_row INTEGER NOT NULL, PRIMARY KEY (session, number)) WITHOUT ROWID",
    "CREATE TABLE texts (key TEXT PRIMARY KEY, job TEXT, value TEXT NOT NULL)",
    "CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
)
COUNTERS = (("next_row", 1), ("sealed", 0), ("synced", 0))


def connect(path: Path, *, writing: bool) -> sqlite3.Connection:
    """Open the database, which only one connection of the process may be `writing`; raises `StoreError`, `OSError`.

    Nothing in the file is trusted: neither links in its place or beside it, nor the schema that it brings.
    """
    for side in ("", *SIDE_FILES):
        there = require_kind(path.with_name(path.name + side))
        if not side and not there and writing:  # SQLite would make it for everybody
            os.close(open_plain(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
    with guarding(path):
        uri = f"{path.absolute().as_uri()}?mode={'rw' if writing else 'ro'}"
        db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_S)
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_NBYTES)
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("PRAGMA cell_size_check = ON")
    return db


def set_up(db: sqlite3.Connection, path: Path, *, known: bool) -> None:
    """Make an empty database ours, or check that it is. Raises `StoreError`, too where it should be `known`."""
    with guarding(path):
        fresh = is_empty(db)
        if fresh and known:
            raise StoreError(
                path, "is missing or empty, but the store has sealed files", "run `deepprof fsck --repair`"
            )
        if fresh:
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        else:
            require_ours(db, path)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute(f"PRAGMA journal_size_limit = {WAL_NBYTES}")
        if fresh:
            create(db)


def is_empty(db: sqlite3.Connection) -> bool:
    """Return whether nothing was ever put into the database: a crash while it was made leaves it so."""
    marks = [db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
    return marks == [0, 0] and not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]


def create(db: sqlite3.Connection) -> None:
    """Make the tables, all or none, and have them on the disk."""
    db.execute("PRAGMA synchronous = FULL")
    db.execute("BEGIN IMMEDIATE")
    for statement in SCHEMA:
        db.execute(statement)
    db.executemany("INSERT INTO counters VALUES (?, ?)", COUNTERS)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {VERSION}")
    db.execute("COMMIT")
    db.execute("PRAGMA synchronous = NORMAL")


def require_ours(db: sqlite3.Connection, path: Path) -> None:
    """Raise `StoreError` unless the database has our mark, a version that we know, and exactly our tables."""
    (mark,), (version,) = (db.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version"))
    if mark != APPLICATION_ID:
        raise StoreError(path, "is a database, but no history of DeepProf", "name another store")
    if version > VERSION:
        raise StoreError(path, f"is of version {version}; this DeepProf reads {VERSION}", "update DeepProf")
    names = "SELECT sql FROM sqlite_master WHERE name NOT LIKE 'sqlite~_%' ESCAPE '~'"
    if version != VERSION or {sql for (sql,) in db.execute(names)} != set(SCHEMA):
        raise StoreError(path, "has other tables than a history of DeepProf")


@contextmanager
def guarding(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into `OSError` where the system is at fault (a full disk), else into `StoreError`."""
    try:
        yield
    except sqlite3.Error as error:
        number = SYSTEM.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)  # what follows the first byte is detail
        if number is not None:
            raise OSError(number, f"{os.strerror(number)} ({error})", str(path)) from error
        raise StoreError(path, f"is a damaged database ({error})", CHECK) from error
