"""A rank that keeps what it is given, and contains whoever gives it to the promises made."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import polars as pl

from deepprof.collectors.time_range import SIDE_TABLES
from deepprof.collectors.trace import RECORD_TABLES, TABLES, check_table
from deepprof.live.agent.traces import EARLIEST

__all__ = ["FakeRank", "Opening", "TurningClock"]


class FakeRank:
    """Takes what `Rank` takes; `log` has batches of records as numbers, gaps as words and the end as a dict."""

    def __init__(self, identity: Any = None) -> None:
        self.identity, self.names, self.log = identity, {}, []
        self.tables: dict[str, list[pl.DataFrame]] = {}
        self.watermark_ns = EARLIEST

    def name_ids(self, texts):
        return np.array([self.names.setdefault(text, len(self.names)) for text in texts], np.uint32)

    def send(self, tables, until_ns):
        assert until_ns >= self.watermark_ns
        for name, rows in tables.items():
            check_table(name, rows, TABLES[name], len(self.names))
            if name in RECORD_TABLES and rows.height:
                assert rows.to_series(0)[0] >= self.watermark_ns
                assert rows.to_series(0)[-1] < until_ns
            if name in SIDE_TABLES and rows.height:
                assert int(rows["event"].max()) < tables[SIDE_TABLES[name]].height
            self.tables.setdefault(name, []).append(rows)
        self.watermark_ns = until_ns
        self.log.append(sum(rows.height for name, rows in tables.items() if name in RECORD_TABLES))

    def gap(self, reason, lost=0):
        self.log.append(reason)

    def end(self, dropped=None):
        self.log.append(dict(dropped or {}))

    @property
    def records(self) -> int:
        return sum(entry for entry in self.log if isinstance(entry, int))

    def rows(self, table: str) -> pl.DataFrame:
        """All rows of a table, names as texts."""
        rows = pl.concat([pl.DataFrame(schema=TABLES[table]), *self.tables.get(table, [])])
        if "name_id" not in rows.columns:
            return rows
        texts = list(self.names)
        return rows.with_columns(name=pl.Series([texts[i] for i in rows["name_id"]], dtype=pl.String)).drop("name_id")


class Opening(list[FakeRank]):
    """Opens ranks, and has them all; raises `error` where one is set."""

    error: Exception | None = None

    def __call__(self, identity: Any) -> FakeRank:
        if self.error is not None:
            raise self.error
        self.append(FakeRank(identity))
        return self[-1]


class TurningClock:
    """Time that passes when someone sleeps, or when it is instructed to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def now_s(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0.001)
