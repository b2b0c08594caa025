"""Checks of the history: the database by SQLite and by DeepProf's own rules, sealed files against the ledger."""

from __future__ import annotations

import errno
import os
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

import polars as pl

from deepprof.collectors.store.parquet_sizes import MalformedParquetError, read_sizes
from deepprof.live.service.folder import CHECK, StoreError, open_plain, require_kind
from deepprof.live.service.history.context_rows import find_damaged
from deepprof.live.service.history.salvage import salvage
from deepprof.live.service.history.schema import (
    DATABASE,
    SIDE_FILES,
    STORED_ROWS,
    VALUE_NBYTES,
    connect,
    guarding,
    has_contexts,
    is_empty,
    require_ours,
    set_up,
)
from deepprof.live.service.history.sealed import SEALED, SealedFile, list_sealed, path_of, reading, require_schema
from deepprof.live.service.journal import JournalPlace
from deepprof.live.service.store_problem import FsckContext
from deepprof.plurals import counted

PROBLEMS = 20  # most problems that SQLite lists of one database
PIECE_NBYTES = 1 << 20
RATIO, SLACK_NBYTES = 4, 1 << 20  # a file unpacks to at most RATIO times its rows' plain size, plus the slack

RESET = "UPDATE sessions SET at_segment = {}, at_offset = {}, at_length = 0 WHERE session = {}"
NEXT_ROW = (
    'max(1 + coalesce((SELECT max("row") FROM iterations), 0),'
    " 1 + coalesce((SELECT max(last_row) FROM sealed_sessions), 0),"
    " coalesce((SELECT max(first_row) FROM sessions), 0))"
)

# Rules between tables, each as: the problem, the query that counts it, the repair, and what is lost.
RULES = (
    (
        "counters that are missing",
        "SELECT 3 - count(*) FROM counters WHERE name IN ('next_row', 'sealed', 'synced')",
        f"INSERT OR IGNORE INTO counters VALUES ('next_row', {NEXT_ROW}), ('sealed', 0), ('synced', 0)",  # noqa: S608
        "nothing",
    ),
    (
        "iterations of no session",
        "SELECT count(*) FROM iterations WHERE session NOT IN (SELECT session FROM sessions)",
        "DELETE FROM iterations WHERE session NOT IN (SELECT session FROM sessions)",
        "{} iterations",
    ),
    (
        "states of no session",
        "SELECT count(*) FROM states WHERE session NOT IN (SELECT session FROM sessions)",
        "DELETE FROM states WHERE session NOT IN (SELECT session FROM sessions)",
        "nothing",
    ),
    (
        "ledger entries of no sealed file",
        "SELECT count(*) FROM sealed_sessions WHERE number NOT IN (SELECT number FROM sealed)",
        "DELETE FROM sealed_sessions WHERE number NOT IN (SELECT number FROM sealed)",
        "nothing",
    ),
    (
        "row numbers that would be given again",
        f"SELECT count(*) FROM counters WHERE name = 'next_row' AND value < {NEXT_ROW}",  # noqa: S608
        f"UPDATE counters SET value = {NEXT_ROW} WHERE name = 'next_row'",  # noqa: S608
        "nothing",
    ),
    (
        "rows said to be sealed that are not",
        "SELECT count(*) FROM iterations WHERE \"row\" <= (SELECT value FROM counters WHERE name = 'sealed')",
        "UPDATE counters SET value = (SELECT min(\"row\") FROM iterations) - 1 WHERE name = 'sealed'",
        "nothing",
    ),
)


CONTEXT_RULE = (
    "windows of contexts of no session",
    "SELECT count(*) FROM contexts WHERE session NOT IN (SELECT session FROM sessions)",
    "DELETE FROM contexts WHERE session NOT IN (SELECT session FROM sessions)",
    "{} windows of calling contexts",
)


def inspect_history(bench: FsckContext, end: JournalPlace, highest_session: int) -> None:
    """Check the history against itself, its files, and the journal's `end` and highest session; repair it if told to.

    Raises `StoreError` for a newer version.
    """
    path, folder = bench.store / DATABASE, bench.store / SEALED
    usable = [_is_kind(bench, path.with_name(DATABASE + side)) for side in ("", *SIDE_FILES)]
    _is_kind(bench, folder, is_folder=True)
    if not all(usable) and not bench.repair:
        return
    if not _sound_database(bench, path, expected=highest_session > 0 or bool(_files_in(folder))):
        _put_database_aside(bench, path)
        if not bench.repair:  # the other checks need the database, which cannot be read
            return
    if path.exists():
        _inspect_ledger(bench, path, folder)
        _inspect_rules(bench, path, end, highest_session)


def _is_kind(bench: FsckContext, path: Path, *, is_folder: bool = False) -> bool:
    """Return whether `path` is missing or a plain file (or a directory); anything else is reported and put aside."""
    try:
        require_kind(path, folder=is_folder)
    except StoreError as error:
        bench.report(path, error.problem, "what it stood for")
        bench.put_aside(path)
        return False
    return True


def _files_in(folder: Path) -> list[int]:
    """Return the numbers of the sealed files in `folder`."""
    return list_sealed(folder) if folder.is_dir() and not folder.is_symlink() else []


def _sound_database(bench: FsckContext, path: Path, *, expected: bool) -> bool:
    """Return whether the database can be used as it is; the reason why not is reported."""
    if not path.exists():
        if expected:
            bench.report(path, "is missing", "sessions, and iterations that the journal does not give again")
        return not expected
    try:
        with closing(connect(path, writing=False)) as db, guarding(path):
            if is_empty(db):
                if expected:
                    bench.report(path, "is empty", "sessions, and iterations that the journal does not give again")
                return not expected
            require_ours(db, path)
            found = [line for (line,) in db.execute(f"PRAGMA integrity_check({PROBLEMS})")]
            _require_values(db, path)
    except StoreError as error:
        if error.advice == "update DeepProf":
            raise
        bench.report(path, error.problem, "what of it cannot be read")
        return False
    except OSError as error:
        if error.errno != errno.EIO or not _readable(path):
            raise
        bench.report(path, "SQLite cannot open it, or the log beside it", "what of it cannot be read")
        return False
    for line in found if found != ["ok"] else ():
        bench.report(path, f"SQLite finds: {' '.join(str(line).split())[:200]}", "what of it cannot be read")
    return found == ["ok"]


def _require_values(db: sqlite3.Connection, path: Path) -> None:
    """Raise `StoreError` where a value is larger than any that is read. Raises `sqlite3.Error`."""
    try:
        large = ("sessions", "states", "texts", *(("contexts",) if has_contexts(db) else ()))
        for table in large:  # one row at a time; the others hold numbers
            for _ in db.execute(f"SELECT * FROM {table}"):  # noqa: S608
                pass
    except sqlite3.DataError as error:
        what = f"holds a value of more than {VALUE_NBYTES >> 20} MiB, which DeepProf never writes"
        raise StoreError(path, what, CHECK) from error


def _readable(path: Path) -> bool:
    """Return whether the file can be read: then SQLite's input/output error means damage. Raises `OSError`."""
    return _sum_up(path)[0] >= 0


def _put_database_aside(bench: FsckContext, path: Path) -> None:
    """Move the database aside, and make a new one with all rows that can be read of it."""
    if not bench.repair:
        return
    old = bench.free_name(DATABASE)
    for side in ("", *SIDE_FILES):
        if os.path.lexists(path.with_name(DATABASE + side)):
            path.with_name(DATABASE + side).rename(old.with_name(old.name + side))
    with closing(connect(path, writing=True)) as new:
        set_up(new, path, known=False)
        salvage(old, new)


def _inspect_ledger(bench: FsckContext, path: Path, folder: Path) -> None:
    """Check each sealed file against the ledger, and that the folder contains nothing else."""
    listed = _list_ledger(path)
    for file in listed:
        _check_sealed(bench, path, folder, file)
    names = {path_of(folder, file.number).name for file in listed}
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name) if folder.is_dir() else ():
        if entry.name not in names:
            bench.report(Path(entry.path), "is not in the ledger: its rows are elsewhere, or the ledger was lost")
            bench.put_aside(Path(entry.path))


def _list_ledger(path: Path) -> list[SealedFile]:
    with closing(connect(path, writing=False)) as db, guarding(path):
        if is_empty(db):
            return []
        return [SealedFile(*values) for values in db.execute("SELECT number, nbytes, crc32, rows FROM sealed")]


def _check_sealed(bench: FsckContext, path: Path, folder: Path, file: SealedFile) -> None:
    """Check one file; a file that is missing or not as it was written is removed from the ledger."""
    where = path_of(folder, file.number)
    try:
        what = "is missing" if not require_kind(where) else _find_fault(where, file, path)
    except StoreError as error:
        what = error.problem
    if what:
        bench.report(where, what, counted(file.rows, "iteration"))
        if os.path.lexists(where):
            bench.put_aside(where)
        for table in ("sealed", "sealed_sessions"):
            _change(bench, path, f"DELETE FROM {table} WHERE number = {file.number}")  # noqa: S608


def _find_fault(where: Path, file: SealedFile, path: Path) -> str:
    """Return how a sealed file differs from its entry in the ledger, "" where it does not. Raises `StoreError`."""
    nbytes, crc = _sum_up(where)
    if nbytes != file.nbytes:
        return f"has {nbytes} bytes where the ledger says {file.nbytes}"
    if crc != file.crc32:
        return "is damaged: its content is not what was written"
    try:
        sizes = read_sizes(where)
    except MalformedParquetError as error:
        return f"is no sound Parquet file: it {error}"
    if sizes.rows != file.rows or sizes.nbytes > RATIO * 8 * len(STORED_ROWS) * file.rows + SLACK_NBYTES:
        return f"has {sizes.rows} rows of {sizes.nbytes} bytes where the ledger says {file.rows} rows"
    require_schema(where)
    with reading(where):
        keys = pl.scan_parquet(where, glob=False).select("session", "row").collect()
    counts = keys.group_by("session").agg(pl.len().alias("rows"), pl.col("row").max()).sort("session").rows()
    with closing(connect(path, writing=False)) as db, guarding(path):
        query = "SELECT session, rows, last_row FROM sealed_sessions WHERE number = ? ORDER BY session"
        return "" if db.execute(query, (file.number,)).fetchall() == counts else "has other sessions than the ledger"


def _sum_up(path: Path) -> tuple[int, int]:
    nbytes, crc = 0, 0
    with os.fdopen(open_plain(path, os.O_RDONLY), "rb") as file:
        while piece := file.read(PIECE_NBYTES):
            nbytes, crc = nbytes + len(piece), zlib.crc32(piece, crc)
    return nbytes, crc


def _inspect_rules(bench: FsckContext, path: Path, end: JournalPlace, highest_session: int) -> None:
    """Check the rules between tables, and the agreement with the journal."""
    with closing(connect(path, writing=False)) as db, guarding(path):
        if is_empty(db):
            return
        rules = (*RULES, CONTEXT_RULE) if has_contexts(db) else RULES
        counts = [db.execute(count).fetchone()[0] for _, count, _, _ in rules]
        damaged = find_damaged(db) if has_contexts(db) else []
        given = db.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'sessions'").fetchone()[0]
        beyond = "at_segment > ? OR (at_segment = ? AND at_offset + at_length > ?)"
        at = (end.segment, end.segment, end.offset)
        far = [number for (number,) in db.execute(f"SELECT session FROM sessions WHERE {beyond}", at)]  # noqa: S608
    for (what, _, mend, lost), count in zip(rules, counts, strict=True):
        if count:
            bench.report(path, f"has {count} {what}", lost.format(count))
            _change(bench, path, mend)
    for rowid in damaged:
        bench.report(path, "a window of calling contexts is damaged", "1 window of calling contexts")
        _change(bench, path, f"DELETE FROM contexts WHERE rowid = {rowid}")  # noqa: S608
    for session in far:
        bench.report(path, f"session {session} stands for more than the journal has", "raw records, no iterations")
        _change(bench, path, RESET.format(end.segment, end.offset, session))
    if highest_session > given:
        what = f"knows no session above {given}, and the journal has {highest_session}"
        bench.report(path, what, "iterations of the sessions between")
        _number_beyond(bench, path, highest_session)


def _number_beyond(bench: FsckContext, path: Path, session: int) -> None:
    """Ensure that no new session gets a number up to `session`."""
    _change(bench, path, "DELETE FROM sqlite_sequence WHERE name = 'sessions'")
    _change(bench, path, f"INSERT INTO sqlite_sequence VALUES ('sessions', {session})")  # noqa: S608


def _change(bench: FsckContext, path: Path, statement: str) -> None:
    """Change the database durably, but only when repairing."""
    if bench.repair:
        with closing(connect(path, writing=True)) as db, guarding(path):
            db.execute("PRAGMA synchronous = FULL")
            db.execute(statement)
