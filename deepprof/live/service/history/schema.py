"""The history's database: its tables, how it is opened safely, and the translation of SQLite's errors."""

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

DATABASE = "history.db"
SIDE_FILES = ("-wal", "-shm", "-journal")  # suffixes of SQLite's own files next to the database
APPLICATION_ID = 0x44507266  # "DPrf"
VERSION = 2
WAL_NBYTES = 64 << 20  # to which the write-ahead log is cut back
BUSY_S = 30.0
VALUE_NBYTES = 512 << 20  # of one value or row: twice the largest state of a rank (`session.limits`)
# SQLite's errors that the system causes and that may pass: another program contains the database, the disk is full or
# read-only, no more files can be opened.
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

# Rows are numbered in the order in which they were added, over all sessions; no number is used twice. A session's rows
# below its `first_row` were replaced. Each of the `marks` is a time and the last row added by then. Every row up to the
# counter `sealed` is in a sealed file, or deleted.
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
# Since version 2; the other tables are those of version 1.
ADDED = (
    "CREATE TABLE contexts (session INTEGER NOT NULL, start_ns INTEGER NOT NULL, length_ns INTEGER NOT NULL,"
    " unix_ns INTEGER NOT NULL, folded INTEGER NOT NULL, nbytes INTEGER NOT NULL, tree BLOB NOT NULL)",
    "CREATE UNIQUE INDEX contexts_of_session ON contexts (session, start_ns, length_ns)",
    "CREATE INDEX contexts_by_age ON contexts (unix_ns, nbytes)",
)
SCHEMAS = {1: SCHEMA, VERSION: (*SCHEMA, *ADDED)}
COUNTERS = (("next_row", 1), ("sealed", 0), ("synced", 0))


def connect(path: Path, *, writing: bool) -> sqlite3.Connection:
    """Open the database; raises `StoreError` and `OSError`. Only one connection of the process may be `writing`.

    The file is not trusted: links in its place or next to it are refused, and its schema is treated as untrusted.
    """
    for side in ("", *SIDE_FILES):
        there = require_kind(path.with_name(path.name + side))
        if not side and not there and writing:  # SQLite would create it accessible to other users
            os.close(open_plain(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
    with guarding(path):
        uri = f"{path.absolute().as_uri()}?mode={'rw' if writing else 'ro'}"
        db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_S)
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_NBYTES)
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("PRAGMA cell_size_check = ON")
    return db


def set_up(db: sqlite3.Connection, path: Path, *, known: bool) -> None:
    """Set up an empty database, or check that it is a history. Raises `StoreError`, also for an empty `known` one."""
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
            _create(db)
        else:
            _bring_up(db)


def is_empty(db: sqlite3.Connection) -> bool:
    """Return whether the database was never written to, as after a crash while it was created."""
    marks = [db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
    return marks == [0, 0] and not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]


def _create(db: sqlite3.Connection) -> None:
    """Create the tables, all or none, and sync them to disk."""
    db.execute("PRAGMA synchronous = FULL")
    db.execute("BEGIN IMMEDIATE")
    for statement in SCHEMAS[VERSION]:
        db.execute(statement)
    db.executemany("INSERT INTO counters VALUES (?, ?)", COUNTERS)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {VERSION}")
    db.execute("COMMIT")
    db.execute("PRAGMA synchronous = NORMAL")


def _bring_up(db: sqlite3.Connection) -> None:
    """Add what a database of an earlier version lacks, all or nothing, and sync it to disk."""
    if _version_of(db) == VERSION:
        return
    db.execute("PRAGMA synchronous = FULL")
    db.execute("BEGIN IMMEDIATE")
    for statement in ADDED:
        db.execute(statement)
    db.execute(f"PRAGMA user_version = {VERSION}")
    db.execute("COMMIT")
    db.execute("PRAGMA synchronous = NORMAL")


def _version_of(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def has_contexts(db: sqlite3.Connection) -> bool:
    """Return whether a history has the tables of calling contexts."""
    return _version_of(db) > 1


def require_ours(db: sqlite3.Connection, path: Path) -> None:
    """Raise `StoreError` unless the database has DeepProf's mark, a recognized version, and exactly its tables."""
    (mark,), (version,) = (db.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version"))
    if mark != APPLICATION_ID:
        raise StoreError(path, "is a database, but no history of DeepProf", "name another store")
    if version > VERSION:
        raise StoreError(path, f"is of version {version}; this DeepProf reads {VERSION}", "update DeepProf")
    names = "SELECT sql FROM sqlite_master WHERE name NOT LIKE 'sqlite~_%' ESCAPE '~'"
    if {sql for (sql,) in db.execute(names)} != set(SCHEMAS.get(version, ())):
        raise StoreError(path, "has other tables than a history of DeepProf")


@contextmanager
def guarding(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into `OSError` where the system is the cause (a full disk), else into `StoreError`."""
    try:
        yield
    except sqlite3.Error as error:
        number = SYSTEM.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)  # higher bytes only hold details
        if number is not None:
            raise OSError(number, f"{os.strerror(number)} ({error})", str(path)) from error
        raise StoreError(path, f"is a damaged database ({error})", CHECK) from error
