"""Removal of data that is too old or too much: sealed files first, hot rows if that is not enough."""

from __future__ import annotations

import sqlite3

from deepprof.live.service.history.iteration_rows import delete_rows

ALIVE = (
    "EXISTS (SELECT 1 FROM sealed_sessions JOIN sessions USING (session)"
    " WHERE sealed_sessions.number = sealed.number AND last_row >= first_row)"
)
NO_ROWS = (
    "NOT EXISTS (SELECT 1 FROM iterations WHERE iterations.session = sessions.session)"
    " AND NOT EXISTS (SELECT 1 FROM sealed_sessions WHERE sealed_sessions.session = sessions.session)"
    " AND NOT EXISTS (SELECT 1 FROM contexts WHERE contexts.session = sessions.session)"
)
SESSIONS = 100_000  # most that are kept, so that a client that begins anew every second cannot fill the disk
PART = 8  # one in this many hot rows is removed at a time where there are too many


def drop_dead_files(db: sqlite3.Connection) -> list[int]:
    """Drop the files from the ledger whose rows were all replaced or deleted; returns their numbers."""
    return _drop(db, f"SELECT number FROM sealed WHERE NOT {ALIVE}")  # noqa: S608


def drop_files(db: sqlite3.Connection, before_unix_ns: int, max_nbytes: int) -> list[int]:
    """Drop the files whose rows were added before a time, and the oldest ones while the total exceeds `max_nbytes`."""
    gone = _drop(db, "SELECT number FROM sealed WHERE given_unix_ns < ?", before_unix_ns)
    files = db.execute("SELECT number, nbytes FROM sealed ORDER BY number").fetchall()
    surplus = _used_nbytes(db) + sum(nbytes for _, nbytes in files) - max_nbytes
    last = 0
    for number, nbytes in files:
        if surplus <= 0:
            break
        last, surplus = number, surplus - nbytes
    return gone + _drop(db, "SELECT number FROM sealed WHERE number <= ?", last)


def _drop(db: sqlite3.Connection, query: str, *values: int) -> list[int]:
    """Drop the files that `query` names from the ledger."""
    numbers = [number for (number,) in db.execute(query, values)]
    for number in numbers:
        db.execute("DELETE FROM sealed_sessions WHERE number = ?", (number,))
        db.execute("DELETE FROM sealed WHERE number = ?", (number,))
    return numbers


def drop_rows(db: sqlite3.Connection, before_unix_ns: int, max_nbytes: int) -> int:
    """Delete hot rows added before a time, then an eighth of them at a time while the database is too large."""
    (sealed,), (following,) = (
        db.execute("SELECT value FROM counters WHERE name = ?", (name,)).fetchone() for name in ("sealed", "next_row")
    )
    aged = 'SELECT coalesce(max("row"), 0) FROM marks WHERE unix_ns < ?'
    last = max(sealed, db.execute(aged, (before_unix_ns,)).fetchone()[0])
    rows = _drop_until(db, sealed, last)
    while _used_nbytes(db) > max_nbytes and last < following - 1:
        first, last = last, min(following - 1, last + max(1, (following - 1 - sealed) // PART))
        rows += _drop_until(db, first, last)
    return rows


def _drop_until(db: sqlite3.Connection, sealed: int, last: int) -> int:
    """Delete the hot rows up to the number `last`, as if they had been sealed."""
    if last <= sealed:
        return 0
    sessions = [session for (session,) in db.execute("SELECT session FROM sessions")]
    rows = sum(delete_rows(db, session, 0, last) for session in sessions)
    db.execute("UPDATE counters SET value = ? WHERE name = 'sealed'", (last,))
    db.execute('DELETE FROM marks WHERE "row" <= ?', (last,))
    return rows


def drop_sessions(db: sqlite3.Connection, before_unix_ns: int) -> int:
    """Delete closed sessions without rows that are too old or too many, old states, and the texts of deleted jobs."""
    old = f"DELETE FROM sessions WHERE closed AND latest_unix_ns < ? AND {NO_ROWS}"  # noqa: S608
    gone = db.execute(old, (before_unix_ns,)).rowcount
    many = (
        f"DELETE FROM sessions WHERE closed AND {NO_ROWS} AND session <="  # noqa: S608
        " (SELECT session FROM sessions ORDER BY session DESC LIMIT 1 OFFSET ?)"
    )
    gone += db.execute(many, (SESSIONS,)).rowcount
    fresh = "SELECT session FROM sessions WHERE NOT closed OR latest_unix_ns >= ?"
    db.execute(f"DELETE FROM states WHERE session NOT IN ({fresh})", (before_unix_ns,))  # noqa: S608
    db.execute("DELETE FROM texts WHERE job IS NOT NULL AND job NOT IN (SELECT job FROM sessions)")
    return gone


def _used_nbytes(db: sqlite3.Connection) -> int:
    """Return the bytes of the database's pages that are in use."""
    pages, free, size = (
        db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)
