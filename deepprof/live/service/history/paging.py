"""Iterations page by page: session by session, in the order of their rows, from sealed files and the database."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from deepprof.live.service.history.iteration_rows import read_rows
from deepprof.live.service.history.schema import STORED_ROWS
from deepprof.live.service.history.sealed import read_sealed
from deepprof.live.service.views import HISTORY

PAGE_SCHEMA = pl.Schema({"rank": pl.Int64(), **HISTORY})
TOKEN = re.compile(r"([1-9]\d{0,18})\.(\d{1,19})")
LAST_ROW = 2**63 - 1
KEYS = {"session": pl.Int64(), "rank": pl.Int64()}
# Each rank's latest session: a job that runs again under the same name is another run.
KNOWN = (
    "SELECT session, rank, first_row FROM sessions WHERE job = ? AND session >= ? {} AND session ="
    " (SELECT max(session) FROM sessions AS later WHERE later.job = sessions.job AND later.rank = sessions.rank)"
    " ORDER BY session"
)
FILES = "SELECT number, rows, last_row FROM sealed_sessions WHERE session = ? AND last_row >= ? ORDER BY number"
HOT = (
    'SELECT count(*), max("row") FROM'
    ' (SELECT "row" FROM iterations WHERE session = ? AND "row" >= ? ORDER BY "row" LIMIT ?)'
)


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """A query for iterations of a job, of one rank or device where named: `limit` rows behind the token `after`."""

    job: str
    rank: int | None
    device: int | None
    after: str
    limit: int


@dataclass(slots=True)
class _PagePlan:
    """The sources of a page: sessions per sealed file, sessions with hot rows, and the last planned row (`end`).

    `rows` is at least the number of planned rows; `whole`: no rows follow.
    """

    files: dict[int, list[int]] = field(default_factory=dict)
    hot: list[tuple[int, int, int]] = field(default_factory=list)  # session, first and last row
    rows: int = 0
    end: tuple[int, int] = (0, 0)
    whole: bool = True


def _parse_token(token: str) -> tuple[int, int]:
    """Return the session and the row behind which a page begins; raises ValueError for an invalid token."""
    if not token:
        return 0, 0
    match = TOKEN.fullmatch(token)
    if match is None or max(place := (int(match[1]), int(match[2]))) >= LAST_ROW:
        raise ValueError("no page token that was ever given out")
    return place


def read_page(db: sqlite3.Connection, folder: Path, asked: HistoryQuery) -> tuple[pl.DataFrame, str]:
    """Return a page and the next one's token, as `History.iterations` does, from one snapshot of the ledger."""
    place = _parse_token(asked.after)
    sessions = _list_sessions(db, asked.job, asked.rank, place[0])
    while True:
        plan = _make_plan(db, sessions, place, asked.limit)
        rows = _read_plan(db, folder, plan, place)
        rows = rows if asked.device is None else rows.filter(pl.col("device") == asked.device)
        cut = rows.height > asked.limit
        rows = rows.head(asked.limit)
        place = rows.select("session", "row").row(-1) if cut else plan.end
        if rows.height or plan.whole:
            more = cut or not plan.whole
            return _show(rows, {session: rank for session, rank, _ in sessions}), f"{place[0]}.{place[1]}" * more


def list_sessions(db: sqlite3.Connection, job: str, rank: int | None) -> list[int]:
    """Return the latest session of every rank of a job, or of one rank."""
    return [session for session, _, _ in _list_sessions(db, job, rank, 0)]


def _list_sessions(db: sqlite3.Connection, job: str, rank: int | None, since: int) -> list[tuple[int, int, int]]:
    """Return session, rank and first row of the job's sessions from `since` on."""
    if rank is None:
        return db.execute(KNOWN.format(""), (job, since)).fetchall()
    return db.execute(KNOWN.format("AND rank = ?"), (job, since, rank)).fetchall()


def _make_plan(
    db: sqlite3.Connection, sessions: Sequence[tuple[int, int, int]], place: tuple[int, int], limit: int
) -> _PagePlan:
    """Return the sources of the next `limit` rows behind `place`, and perhaps of some more."""
    plan = _PagePlan()
    for session, _, first_row in sessions:
        if session < place[0]:
            continue
        start = max(first_row, place[1] + 1 if session == place[0] else 0)
        hot = db.execute(HOT, (session, start, limit + 1)).fetchone()
        for number, rows, last in (*db.execute(FILES, (session, start)), (None, *hot)):
            if not rows:
                continue
            if plan.rows > limit:  # more than asked for, so that it is available whether another page follows
                plan.whole = False
                return plan
            _add_part(plan, number, (session, start, last))
            plan.rows += rows
        plan.whole = hot[0] <= limit  # else there may be more
        if not plan.whole:
            return plan
    return plan


def _add_part(plan: _PagePlan, number: int | None, part: tuple[int, int, int]) -> None:
    """Add a session's rows in the file `number`, or its hot rows where it is None.

    `part` is the session, its first and its last row.
    """
    if number is None:
        plan.hot.append(part)
    else:
        plan.files.setdefault(number, []).append(part[0])
    plan.end = part[0], part[2]


def _read_plan(db: sqlite3.Connection, folder: Path, plan: _PagePlan, place: tuple[int, int]) -> pl.DataFrame:
    """Return the planned rows behind `place`, in order."""
    behind = (pl.col("session") > place[0]) | (pl.col("row") > place[1])
    parts = [STORED_ROWS.to_frame()]
    for number, sessions in plan.files.items():
        parts.append(read_sealed(folder, number, pl.col("session").is_in(sessions) & behind))
    parts += [read_rows(db, *part) for part in plan.hot]
    return pl.concat(parts).sort("session", "row")


def _show(rows: pl.DataFrame, ranks: Mapping[int, int]) -> pl.DataFrame:
    """Return the rows for the caller: with the rank, without the columns that only the store needs."""
    known = pl.DataFrame({"session": list(ranks), "rank": list(ranks.values())}, schema_overrides=KEYS)
    return rows.join(known, on="session", how="left", maintain_order="left").select(PAGE_SCHEMA.names())
