"""Rows of an RPD file that wait until all rows that began before have come, and are then emitted as a trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from deepprof.collectors.importers.amd.places import tells_order
from deepprof.collectors.importers.amd.rocprof_trace import RocmTrace, make_trace
from deepprof.collectors.importers.amd.rpd_tables import (
    CALLS,
    COPY_CALLS,
    KERNEL_CALLS,
    LINKS,
    MARKER,
    OPS,
    read_tables,
)
from deepprof.collectors.trace import Trace

if TYPE_CHECKING:
    from deepprof.live.agent.rpd.growing_database import Keys

TIMED = (OPS, CALLS)
LEAST_HOLD_NS, MOST_HOLD_NS = 2_000_000_000, 30_000_000_000
LAUNCHES = 1 << 18  # rows kept of every table on what a call launched: more than any queue has
MOST_HELD = 1 << 20  # rows; beyond that order is given up, and late rows are counted
ENOUGH_KERNELS = 1024  # to see whether streams or queues give the order of work
NAME_KEYS = ("description_id", "opType_id", "apiName_id", "domain_id")
CALL_KEYS = ("apiName_id", "domain_id")
MARKERS = rf"^{MARKER}$|(?i)roctx"  # only their arguments are names; those of calls hold addresses, all different
MOST_LOST = 1 << 16
ADVICE = "see docs/attach.md"
Rows = Mapping[str, pl.DataFrame]
LookUp = Callable[["Keys"], Rows]


@dataclass(slots=True, eq=False)
class HeldRows:
    """The rows of a file that were read and not emitted, and the state that must stay the same over its pieces.

    `by_stream` is whether the stream is `stream_id`, not `queue`; None until that is decided.
    """

    path: Path
    frames: dict[str, pl.DataFrame] = field(default_factory=dict)
    handles: dict[str, int] = field(default_factory=dict)
    by_stream: bool | None = None
    longest_ns: int = 0
    newest_ns: dict[str, int] = field(default_factory=dict)  # end of the last row of every timed table
    lost: set[int] = field(default_factory=set)  # keys of texts that never arrived
    missing: int = 0  # texts that the last `take` waited for

    def add(self, rows: Rows) -> None:
        """Take new rows."""
        for table, frame in rows.items():
            known = self.frames.get(table)
            self.frames[table] = frame if known is None or known.is_empty() else pl.concat([known, frame])
        for table in TIMED:
            if table in rows and "start" in rows[table].columns and "end" in rows[table].columns:
                self.look_at(table, rows[table])

    def look_at(self, table: str, rows: pl.DataFrame) -> None:
        """Learn from new rows how far their table has come, and how long they last."""
        longest, newest = rows.select((pl.col("end") - pl.col("start")).max(), newest=pl.col("end").max()).row(0)
        self.longest_ns = max(self.longest_ns - self.longest_ns // 64, longest or 0)
        if newest is not None:
            self.newest_ns[table] = max(self.newest_ns.get(table, newest), newest)

    @property
    def waiting(self) -> int:
        """Records that wait."""
        return sum(self.frames[table].height for table in TIMED if table in self.frames)

    @property
    def is_enough(self) -> bool:
        """Whether there are enough rows to see which column is the stream."""
        ops = self.frames.get(OPS)
        return self.by_stream is not None or (ops is not None and ops.height >= ENOUGH_KERNELS)

    def horizon_ns(self, growing: set[str]) -> int | None:
        """Return the time before which all rows have come, by estimate; None if nothing is available.

        Rows are written when they end, and each table is written separately: of those that are `growing` the one that
        lags decides. The longest recent row shows how much earlier than its end a row may begin.
        """
        ends = [end for table, end in self.newest_ns.items() if table in growing]
        if self.waiting > MOST_HELD or not ends:
            return max(self.newest_ns.values(), default=None)
        hold_ns = min(max(LEAST_HOLD_NS, self.longest_ns * 3 // 2), MOST_HOLD_NS)
        return min(ends) - hold_ns

    def take(self, until_ns: int, look_up: LookUp, *, patient: bool = False) -> Trace | None:
        """Return the records that begin before `until_ns`, None where there are none. `look_up` finds texts.

        The tracer writes texts separately: a `patient` caller gets None until all names are there.
        """
        given = {table: self.frames[table] for table in (LINKS, KERNEL_CALLS, COPY_CALLS) if table in self.frames}
        for table in TIMED:
            if table in self.frames:
                # A row without a start need not wait; the importer counts it.
                early = (pl.col("start") < until_ns).fill_null(True) if "start" in self.frames[table].columns else True
                given[table] = self.frames[table].filter(early)
        if not any(given[table].height for table in TIMED if table in given):
            return None
        texts = self.find_texts(given, look_up, patient=patient)
        if texts is None:
            return None
        loose, read = read_tables(_HeldTables({**given, **texts}), self.handles)
        self.keep_rest(given, until_ns)
        loose.device[:] = [self.fix_streams(rows) for rows in loose.device]
        return make_trace(RocmTrace(self.path, "rpd", ADVICE), loose, read)

    def find_texts(self, given: Rows, look_up: LookUp, *, patient: bool) -> Rows | None:
        """Return the texts that names are made of, None where some are still to come and the caller is `patient`."""
        keys = _text_keys(given, NAME_KEYS)
        names = look_up(keys)
        there = [texts["id"].to_numpy() for texts in names.values()]
        missing = set(np.setdiff1d(keys, np.concatenate([np.empty(0, np.int64), *there])).tolist()) - self.lost
        self.missing = len(missing) if patient else 0
        if self.missing:
            return None
        self.lost |= missing if len(self.lost) < MOST_LOST else set()
        markers = [texts.filter(pl.col("string").str.contains(MARKERS))["id"] for texts in names.values()]
        arguments = look_up(_text_keys(given, ("args_id",), pl.concat(markers) if markers else None))
        return {t: pl.concat([names[t], arguments[t]]).unique("id", maintain_order=True) for t in names}

    def keep_rest(self, given: Rows, until_ns: int) -> None:
        """Drop rows that were emitted, and launches that are long over."""
        for table in TIMED:
            if table in given and "start" in given[table].columns:
                self.frames[table] = self.frames[table].filter(pl.col("start") >= until_ns)
        for table in (LINKS, KERNEL_CALLS, COPY_CALLS):
            if table in given:
                self.frames[table] = self.frames[table].tail(LAUNCHES)

    def fix_streams(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return device rows whose stream will be found as in the pieces before, whatever this piece suggests."""
        looks = tells_order(rows.with_columns(device="agent"))
        if self.by_stream is None and rows.height:
            self.by_stream = looks
        if self.by_stream is None or looks == self.by_stream:
            return rows
        other = "queue" if self.by_stream else "stream_id"
        return rows.with_columns(pl.lit(None, pl.Int64).alias(other))


def _text_keys(given: Rows, columns_wanted: Sequence[str], of: pl.Series | None = None) -> Keys:
    """Return the keys of all texts that the timed rows have in some columns; `of` names the calls whose rows count."""
    timed = [rows for table in TIMED if (rows := given.get(table)) is not None]
    if of is not None:
        timed = [
            rows.filter(pl.any_horizontal(pl.col(c).is_in(of.implode()) for c in CALL_KEYS if c in rows.columns))
            for rows in timed
            if "apiName_id" in rows.columns
        ]
    columns = [rows[key] for rows in timed for key in columns_wanted if key in rows.columns]
    keys = [column.drop_nulls().unique().to_numpy() for column in columns]
    return np.unique(np.concatenate([np.empty(0, np.int64), *keys]))


@dataclass(frozen=True, slots=True, eq=False)
class _HeldTables:
    """Held rows, with the interface by which `rpd_tables` reads a database."""

    frames: Rows

    def count(self, table: str) -> int:
        """Return the number of rows."""
        return self.frames[table].height if table in self.frames else 0

    def integers(self, table: str, columns: Mapping[str, int | None]) -> pl.DataFrame:
        """Return columns; those that are missing have their default value."""
        rows = self.frames.get(table)
        if rows is None:
            return pl.DataFrame(schema=dict.fromkeys(columns, pl.Int64))
        made: list[Any] = [pl.col(c) if c in rows.columns else pl.lit(v, pl.Int64).alias(c) for c, v in columns.items()]
        return rows.with_columns(made).select(list(columns))

    def texts(self, table: str, column: str) -> pl.Series:
        """Return a column of texts."""
        rows = self.frames.get(table)
        if rows is None or column not in rows.columns:
            return pl.Series(column, [None] * self.count(table), dtype=pl.String)
        return rows[column]
