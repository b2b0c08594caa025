"""Measures the miner's iterations: each is emitted when the next iteration has begun, or when none follows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from deepprof.live.service.session.activity import HeldActivity
from deepprof.live.service.session.columns import Columns, Int64s
from deepprof.live.service.session.main_stream import MainStream
from deepprof.live.service.views import HISTORY
from deepprof.metrics.iteration_table import IterationColumns, as_table, measure_rows
from deepprof.mining.iterations import Iterations
from deepprof.mining.online import IterationBatch

WIDTH = 6  # first, end, matched, edits, complete, loop


@dataclass(slots=True, eq=False)
class LatestIteration:
    """The miner's last iteration, as a row of `WIDTH` numbers, and the number of iterations emitted before it.

    Loops of the stream are numbered from `loops` on: there may have been others on another stream.
    """

    index: int = 0
    loops: int = 0
    last: Int64s = field(default_factory=lambda: np.empty((0, WIDTH), np.int64).ravel())

    @property
    def first(self) -> int | None:
        """The position where the held-back iteration begins."""
        return int(self.last[0]) if len(self.last) else None

    def take(
        self,
        batches: Sequence[IterationBatch],
        main: MainStream,
        activity: HeldActivity,
        device: int,
        *,
        ends: bool = False,
    ) -> Iterator[IterationColumns]:
        """Yield iterations, those of every loop together; the last one is kept back unless the stream `ends`."""
        found = np.concatenate([self.last.reshape(-1, WIDTH), *(_as_rows(batch) for batch in batches)])
        if not len(found) or (len(found) == 1 and not ends):
            self.last = found.ravel()
            return
        for run in np.split(found, np.flatnonzero(np.diff(found[:, 5])) + 1):
            held = run[-1, 0] == found[-1, 0] and not ends
            measured = self._measure(run, main, activity, device, len(run) - held)
            if len(measured.adjacent):
                self.index += len(measured.adjacent)
                yield measured
        self.last = np.empty(0, np.int64) if ends else found[-1].copy()

    def _measure(
        self, run: Int64s, main: MainStream, activity: HeldActivity, device: int, count: int
    ) -> IterationColumns:
        """Return the columns of `HISTORY` for the first `count` iterations of a loop."""
        first, end, matched, edits, complete, _ = run.T
        low, high = main.first, main.position
        place, behind = np.clip(first, low, high - 1), np.clip(end, low + 1, high)
        whole = (complete != 0) & (first >= low) & (main.start[place - low] >= activity.whole_from)
        rows = Iterations(place - low, behind - low, matched, edits, whole)
        measured = measure_rows(activity.measured(), main.held(device), rows)
        places = {"device": device, "stream": main.stream, "loop": self.loops + int(run[0, 5])}
        columns: Columns = {name: values[:count] for name, values in measured.values.items()}
        columns |= {name: np.full(count, value, np.int64) for name, value in places.items()}
        columns |= {"index": self.index + np.arange(count), "warmup": np.zeros(count, np.bool_)}
        return IterationColumns(columns, measured.adjacent[:count])


NOTHING = pl.DataFrame(schema=HISTORY)  # shared: most batches give no iteration, and making a table is slow


def as_history(parts: Sequence[IterationColumns]) -> pl.DataFrame:
    """Return iterations as a table with the schema `HISTORY`."""
    if not parts:
        return NOTHING
    columns = {name: np.concatenate([part.values[name] for part in parts]) for name in HISTORY}
    return as_table(IterationColumns(columns, np.concatenate([part.adjacent for part in parts])), HISTORY)


def as_measured(rows: pl.DataFrame) -> IterationColumns:
    """Return a table with the schema `HISTORY` as arrays, 0 for null."""
    filled = rows.with_columns(pl.col("iteration_ns", "interval_ns", "overlap_ratio").fill_null(0))
    return IterationColumns(
        {name: filled[name].to_numpy() for name in HISTORY}, rows["interval_ns"].is_not_null().to_numpy()
    )


def _as_rows(batch: IterationBatch) -> Int64s:
    columns = (batch.first, batch.end, batch.matched, batch.edits, batch.complete.astype(np.int64), batch.loop)
    rows: Int64s = np.stack(columns, axis=1)
    return rows
