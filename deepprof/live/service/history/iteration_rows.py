"""Iterations as rows of the database: tables are written and read, a piece at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import chain

import numpy as np
import polars as pl

from deepprof.live.service.history.schema import COLUMNS, STORED_ROWS
from deepprof.live.service.views import HISTORY

PIECE_ROWS = 1 << 14  # rows that are Python objects at a time
KEYS = {"session": pl.Int64(), "row": pl.Int64()}
GROUP_ROWS = 16  # rows that one statement inserts: a call per row would double the cost
ONE = f"({', '.join('?' * len(STORED_ROWS))})"
RANGE = 'session = ? AND "row" BETWEEN ? AND ?'


def require_history(iterations: pl.DataFrame) -> None:
    """Raise ValueError unless the table has the schema HISTORY."""
    if dict(iterations.schema) != dict(HISTORY):
        raise ValueError(f"iterations have the columns {dict(iterations.schema)}, not those of HISTORY")


def insert_rows(db: sqlite3.Connection, first: int, parts: Sequence[tuple[int, pl.DataFrame]]) -> int:
    """Add sessions' iterations, numbered from `first` on in the order of `parts`, and return the next number."""
    sessions = np.repeat([session for session, _ in parts], [rows.height for _, rows in parts])
    following = first + len(sessions)
    keys = pl.DataFrame({"session": sessions, "row": np.arange(first, following)}, schema_overrides=KEYS)
    given = pl.concat([HISTORY.to_frame(), *(rows for _, rows in parts if rows.height)])
    for piece in pl.concat([keys, given], how="horizontal").iter_slices(PIECE_ROWS):
        whole = piece.height - piece.height % GROUP_ROWS
        _insert_piece(db, piece[:whole], GROUP_ROWS)
        _insert_piece(db, piece[whole:], 1)
    return following


def _insert_piece(db: sqlite3.Connection, rows: pl.DataFrame, group: int) -> None:
    """Insert rows, `group` at a time; their number must be a multiple of `group`."""
    values = chain.from_iterable(zip(*(column.to_list() for column in rows), strict=True))
    grouped = zip(*[values] * (group * rows.width), strict=True)
    db.executemany(f"INSERT INTO iterations ({COLUMNS}) VALUES {', '.join([ONE] * group)}", grouped)  # noqa: S608


def read_rows(db: sqlite3.Connection, session: int, first: int, last: int, limit: int = -1) -> pl.DataFrame:
    """Return the session's rows numbered `first` to `last`, at most `limit` (-1: all), as STORED_ROWS."""
    query = f'SELECT {COLUMNS} FROM iterations WHERE {RANGE} ORDER BY "row" LIMIT ?'  # noqa: S608
    found = db.execute(query, (session, first, last, limit))
    pieces = [STORED_ROWS.to_frame()]
    while rows := found.fetchmany(PIECE_ROWS):
        pieces.append(_to_frame(rows))
    return pl.concat(pieces)


def _to_frame(rows: list[tuple[int | float | None, ...]]) -> pl.DataFrame:
    """Return rows of the database as a table; SQLite has no booleans."""
    try:
        columns = zip(STORED_ROWS.items(), zip(*rows, strict=True), strict=True)
        return pl.DataFrame([_to_series(name, kind, values) for (name, kind), values in columns])
    except (TypeError, OverflowError, pl.exceptions.PolarsError) as error:
        raise sqlite3.DatabaseError("an iteration's values are no numbers") from error


def _to_series(name: str, kind: pl.DataType, values: tuple[int | float | None, ...]) -> pl.Series:
    if kind == pl.Boolean():
        return pl.Series(name, values, dtype=pl.Int64()).cast(kind)
    return pl.Series(name, values, dtype=kind)


def delete_rows(db: sqlite3.Connection, session: int, first: int, last: int) -> int:
    """Delete the session's rows numbered `first` to `last`, and return how many there were."""
    return db.execute(f"DELETE FROM iterations WHERE {RANGE}", (session, first, last)).rowcount  # noqa: S608
