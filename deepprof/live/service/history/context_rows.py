"""Windows of calling contexts as rows of the database: minutes at first, merged into hours later, at last removed."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from deepprof.live.service.context_windows import HOUR_NS, MINUTE_NS, TREE, ContextWindow, merge_windows
from deepprof.live.service.session.saving import pack, unpack

log = logging.getLogger(__name__)

MOST_WINDOWS = 8192  # that one question may span
HOURS = 64  # that one call merges at most
SHARE = 4  # windows use at most one in this many of the bytes that the history may have
COUNT = "SELECT count(*) FROM contexts WHERE session = ? AND start_ns < ? AND start_ns + length_ns > ?"
SPAN = COUNT.replace("count(*)", "start_ns, length_ns, folded, tree") + " ORDER BY start_ns, length_ns"
EARLIEST = "SELECT min(start_ns) FROM contexts WHERE session = ?"
ONE = "SELECT start_ns, length_ns, folded, tree FROM contexts WHERE session = ? AND start_ns = ? AND length_ns = ?"
REMOVE = "DELETE FROM contexts WHERE session = ? AND start_ns < ? AND start_ns + length_ns > ?"
MINUTES = (
    "SELECT session, start_ns, length_ns FROM contexts WHERE length_ns < ? AND start_ns < ?"
    " ORDER BY session, start_ns LIMIT ?"
)


@dataclass(slots=True, eq=False)
class _SavedTree:
    """A tree as it is stored."""

    tree: pl.DataFrame


def _pack_tree(tree: pl.DataFrame) -> bytes:
    """Return a tree as bytes, with a checksum."""
    return pack(_SavedTree(tree.rechunk()))


def _unpack_tree(data: object) -> pl.DataFrame:
    """Return the tree that `_pack_tree` has written. Raises `sqlite3.DatabaseError` for anything else."""
    try:
        tree = unpack(data if isinstance(data, bytes) else b"", _SavedTree).tree
    except ValueError as error:
        raise sqlite3.DatabaseError(f"a window of contexts: {error}") from error
    if tree.schema != TREE:
        raise sqlite3.DatabaseError("a window of contexts has other columns")
    return tree


def put_windows(db: sqlite3.Connection, session: int, windows: Sequence[ContextWindow], now_unix_ns: int) -> None:
    """Add windows of a session; one whose time is available already, as it came late, is merged with what is there."""
    for window in windows:
        place = session, window.start_ns, window.length_ns
        try:
            known = [_to_window(row) for row in db.execute(ONE, place)]
        except sqlite3.DatabaseError as error:  # else nothing could be saved any more
            log.error("window-damaged", extra={"session": session, "problem": str(error)[:200]})
            known = []
        _put(db, session, merge_windows([*known, window], window.start_ns, window.length_ns), now_unix_ns)


def _put(db: sqlite3.Connection, session: int, window: ContextWindow, unix_ns: int) -> None:
    tree = _pack_tree(window.tree)
    known = "DELETE FROM contexts WHERE session = ? AND start_ns = ? AND length_ns = ?"
    db.execute(known, (session, window.start_ns, window.length_ns))
    values = session, window.start_ns, window.length_ns, unix_ns, window.folded, len(tree), tree
    db.execute("INSERT INTO contexts VALUES (?, ?, ?, ?, ?, ?, ?)", values)


def _to_window(row: tuple[int, int, int, object]) -> ContextWindow:
    start_ns, length_ns, folded, tree = row
    return ContextWindow(start_ns, length_ns, _unpack_tree(tree), folded)


def count_windows(db: sqlite3.Connection, session: int, start_ns: int, end_ns: int) -> int:
    """Return how many windows of a session overlap a time."""
    return int(db.execute(COUNT, (session, end_ns, start_ns)).fetchone()[0])


def read_windows(db: sqlite3.Connection, session: int, start_ns: int, end_ns: int) -> Iterator[ContextWindow]:
    """Yield the windows of a session that overlap a time, oldest first."""
    for row in db.execute(SPAN, (session, end_ns, start_ns)):
        yield _to_window(row)


def find_earliest(db: sqlite3.Connection, session: int) -> int | None:
    """Return when the earliest window began that is kept of a session, None without any."""
    found: int | None = db.execute(EARLIEST, (session,)).fetchone()[0]
    return found


def list_hours(db: sqlite3.Connection, before_ns: int) -> list[tuple[int, int]]:
    """Return sessions and beginnings of the next hours before a time that have minutes."""
    last = before_ns // HOUR_NS * HOUR_NS
    rows = db.execute(MINUTES, (HOUR_NS, last, HOURS * HOUR_NS // MINUTE_NS)).fetchall()
    places = ((session, start // HOUR_NS * HOUR_NS) for session, start, _ in rows)
    return list(dict.fromkeys(places))


def merge_hour(db: sqlite3.Connection, session: int, hour_ns: int) -> None:
    """Make one window of all windows of an hour."""
    rows = db.execute(SPAN, (session, hour_ns + HOUR_NS, hour_ns)).fetchall()
    windows = [_to_window(row) for row in rows]
    at = session, hour_ns + HOUR_NS, hour_ns
    (unix_ns,) = db.execute(COUNT.replace("count(*)", "max(unix_ns)"), at).fetchone()
    db.execute(REMOVE, at)
    _put(db, session, merge_windows(windows, hour_ns, HOUR_NS), unix_ns)


def drop_windows(db: sqlite3.Connection, before_unix_ns: int, max_nbytes: int) -> int:
    """Delete windows that came before a time, and the oldest ones while all take more than a share of `max_nbytes`."""
    gone = db.execute("DELETE FROM contexts WHERE unix_ns < ?", (before_unix_ns,)).rowcount
    (nbytes,) = db.execute("SELECT coalesce(sum(nbytes), 0) FROM contexts").fetchone()
    surplus = nbytes - max_nbytes // SHARE
    rows = db.execute("SELECT rowid, nbytes FROM contexts ORDER BY unix_ns, rowid") if surplus > 0 else ()
    last = []
    for rowid, size in rows:
        if surplus <= 0:
            break
        last.append((rowid,))
        surplus -= size
    db.executemany("DELETE FROM contexts WHERE rowid = ?", last)
    return gone + len(last)


def find_damaged(db: sqlite3.Connection) -> list[int]:
    """Return the row ids of windows that cannot be read."""
    damaged = []
    for rowid, tree in db.execute("SELECT rowid, CASE typeof(tree) WHEN 'blob' THEN tree END FROM contexts"):
        try:
            _unpack_tree(tree)
        except sqlite3.DatabaseError:
            damaged.append(rowid)
    return damaged
