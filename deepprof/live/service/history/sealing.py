"""Hot rows that are old enough become a sealed file, which the ledger lists in the transaction that deletes them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import polars as pl

from deepprof.live.service.history.iteration_rows import delete_rows, read_rows
from deepprof.live.service.history.schema import STORED_ROWS
from deepprof.live.service.history.sealed import SealedFile, write_sealed

__all__ = ["HOT_ROWS", "WINDOW_NS", "WINDOW_ROWS", "enter", "next_number", "next_window", "write_window"]

WINDOW_ROWS = 1 << 18  # of one file: 12 MB, and 100 MB of memory while it is made
WINDOW_NS = 3600 * 10**9  # rows that do not fill a file wait this much longer; else every call would make a file
HOT_ROWS = 1 << 20  # beyond this, rows are sealed whatever their age: the database stays within some 110 MB
HOT_SESSIONS = (
    "SELECT session FROM sessions WHERE EXISTS (SELECT 1 FROM iterations WHERE"
    ' iterations.session = sessions.session AND "row" BETWEEN ? AND ?) ORDER BY session'
)


def next_window(
    db: sqlite3.Connection, older_than_unix_ns: int, window_ns: int, hot_rows: int
) -> tuple[int, int] | None:
    """Return the first and last number of the rows to seal next, None where there are none."""
    (sealed,), (following,) = (
        db.execute("SELECT value FROM counters WHERE name = ?", (name,)).fetchone() for name in ("sealed", "next_row")
    )
    aged = 'SELECT coalesce(max("row"), 0) FROM marks WHERE unix_ns <= ?'
    last = max(db.execute(aged, (older_than_unix_ns,)).fetchone()[0], following - 1 - hot_rows)
    if last <= sealed:
        return None
    first_mark = 'SELECT unix_ns FROM marks WHERE "row" > ? ORDER BY "row" LIMIT 1'
    oldest = db.execute(first_mark, (sealed,)).fetchone()
    if last - sealed < WINDOW_ROWS and oldest is not None and oldest[0] > older_than_unix_ns - window_ns:
        return None
    return sealed + 1, min(last, sealed + WINDOW_ROWS)


def next_number(db: sqlite3.Connection) -> int:
    """Return the number of the next sealed file: none is used twice."""
    found = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'sealed'").fetchone()
    return 1 + (found[0] if found else 0)


def write_window(db: sqlite3.Connection, folder: Path, first: int, last: int) -> tuple[SealedFile, pl.DataFrame] | None:
    """Write the hot rows of this range to a file; return it, and rows and last row per session. None without rows."""
    sessions = [session for (session,) in db.execute(HOT_SESSIONS, (first, last))]
    rows = pl.concat([STORED_ROWS.to_frame(), *(read_rows(db, session, first, last) for session in sessions)])
    if rows.is_empty():
        return None
    counts = rows.group_by("session", maintain_order=True).agg(pl.len().alias("rows"), pl.col("row").max())
    return write_sealed(folder, next_number(db), rows), counts


def enter(db: sqlite3.Connection, written: tuple[SealedFile, pl.DataFrame] | None, first: int, last: int) -> None:
    """List the file in the ledger, and delete its rows from the database, in the caller's transaction."""
    if written is not None:
        file, counts = written
        given = 'SELECT coalesce(max(unix_ns), 0) FROM marks WHERE "row" BETWEEN ? AND ?'
        following = 'SELECT unix_ns FROM marks WHERE "row" >= ? ORDER BY "row" LIMIT 1'
        (latest,) = db.execute(given, (first, last)).fetchone()
        latest = max(latest, *(db.execute(following, (last,)).fetchone() or (0,)))
        db.execute(
            "INSERT INTO sealed VALUES (?, ?, ?, ?, ?)", (file.number, file.nbytes, file.crc32, file.rows, latest)
        )
        for session, rows, last_row in counts.iter_rows():
            db.execute("INSERT INTO sealed_sessions VALUES (?, ?, ?, ?)", (session, file.number, rows, last_row))
            delete_rows(db, session, first, last)
    db.execute("UPDATE counters SET value = ? WHERE name = 'sealed'", (last,))
    db.execute('DELETE FROM marks WHERE "row" <= ?', (last,))
