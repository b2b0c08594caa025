"""Copies the rows that can still be read of a damaged database into a new one."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from deepprof.live.service.folder import StoreError
from deepprof.live.service.history.schema import SCHEMAS, SIDE_FILES, STORED_ROWS, VERSION, connect

# The tables in the order in which they are needed, with the types of their columns (`TYPES`; N: integer or null).
TABLES = {
    "sessions": "ititbiiiiiiNNN",
    "states": "ib",
    "iterations": "n" * len(STORED_ROWS),
    "marks": "ii",
    "sealed": "iiiii",
    "sealed_sessions": "iiii",
    "contexts": "iiiiiib",
    "texts": "tTt",
    "counters": "ti",
}
TYPES: dict[str, tuple[type, ...]] = {
    "i": (int,),
    "N": (int, type(None)),
    "n": (int, float, type(None)),
    "t": (str,),
    "T": (str, type(None)),
    "b": (bytes,),
}


def salvage(old: Path, new: sqlite3.Connection) -> None:
    """Copy all readable rows, from both ends of every table up to the damage, in one transaction."""
    db = _open_old(old)
    if db is None:
        return
    with closing(db):
        db.text_factory = _read_text
        new.execute("PRAGMA synchronous = FULL")
        new.execute("BEGIN IMMEDIATE")
        for table, types in TABLES.items():
            statement = f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(types))})"  # noqa: S608
            for row in _read_rows(db, table, types) if _is_ours(db, table) else ():
                with suppress(sqlite3.IntegrityError):
                    new.execute(statement, row)
        _copy_sequences(db, new)
        new.execute("COMMIT")


def _open_old(old: Path) -> sqlite3.Connection | None:
    """Return the damaged database, or None; where it cannot be opened with its log, the log is moved aside."""
    for _ in range(2):
        with suppress(StoreError, OSError):
            db = connect(old, writing=False)
            with suppress(sqlite3.Error):
                db.execute("SELECT count(*) FROM sqlite_master").fetchall()
                return db
            db.close()
        for side in SIDE_FILES:
            beside = old.with_name(old.name + side)
            if os.path.lexists(beside):
                beside.rename(beside.with_name(f"{beside.name}.unread"))
    return None


def _is_ours(db: sqlite3.Connection, table: str) -> bool:
    """Return whether the table is defined as in `SCHEMAS`: reading any other, or a view, could run foreign code."""
    with suppress(sqlite3.Error):
        found = db.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchall()
        return len(found) == 1 and found[0][0] in SCHEMAS[VERSION]
    return False


def _copy_sequences(db: sqlite3.Connection, new: sqlite3.Connection) -> None:
    """Ensure that no number that the old database used is used again, as far as its sequences can be read."""
    with suppress(sqlite3.Error, OverflowError):
        for table in ("sessions", "sealed"):
            query = "SELECT max(seq) FROM sqlite_sequence WHERE name = ? AND typeof(seq) = 'integer'"
            (given,) = db.execute(query, (table,)).fetchone()
            (known,) = new.execute(query, (table,)).fetchone()
            new.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
            new.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (table, max(given or 0, known or 0)))


def _read_text(content: bytes) -> str | bytes:
    """Return a text, or the bytes where they are not UTF-8: then the row is damaged."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def _read_rows(db: sqlite3.Connection, table: str, types: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a table that can be read and have values of the right types; some may come twice."""
    key = {"counters": "name", "texts": "rowid"}.get(table, "1")
    for order in (key, f"{key} DESC"):
        whole = False
        with suppress(sqlite3.Error, OverflowError):
            for row in db.execute(f"SELECT * FROM {table} ORDER BY {order}"):  # noqa: S608
                if _fits(row, types):
                    yield row
            whole = True
        if whole:
            return


def _fits(row: tuple[Any, ...], types: str) -> bool:
    return len(row) == len(types) and all(
        isinstance(value, TYPES[kind]) for value, kind in zip(row, types, strict=True)
    )
