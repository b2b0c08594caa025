"""The kernels that run on a device in some windows of time, each with its part of that time.

Where several kernels run at once, each has an equal part, so that the parts of all add up to the time in which any of
them runs. Collectives have only the time in which nothing else computes, as in the table of parts.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.metrics.names import are_named
from deepprof.metrics.spans import Spans, divide, elapsed
from deepprof.metrics.streams import COLLECTIVE

Int64s = npt.NDArray[np.int64]
OUTSIDE = -1  # the window of a kernel that starts in none, and runs on into one


def list_running(trace: Trace, device: int, windows: tuple[Int64s, Int64s] | None = None) -> pl.DataFrame:
    """Return the kernels and graph launches that run in one of the windows, in the order of their start.

    `windows` are starts and ends, sorted and without overlap; None: all that was recorded is one. A row has `event`
    (the row of the device events), `window` (the number of that in which it starts, or `OUTSIDE`), `stream`,
    `start_ns`, `end_ns`, `name_id`, `ns` (its length), `part_ns` (its part of the windows' time) and `collective`.
    """
    events = trace.device_events.select("start_ns", "end_ns", "device", "stream", "activity", "name_id")
    wanted = (pl.col("device") == device) & pl.col("activity").is_in(["kernel", "graph"])
    rows = events.with_row_index("event").filter(wanted)
    rows = rows.with_columns(
        ns=pl.col("end_ns") - pl.col("start_ns"),
        collective=pl.Series(are_named(trace.names, rows["name_id"], COLLECTIVE), dtype=pl.Boolean)
        & (rows["activity"] == "kernel"),
    )
    rows = _place(rows, *(_span_all(rows) if windows is None else windows))
    return rows.select("event", "window", "stream", "start_ns", "end_ns", "name_id", "ns", "part_ns", "collective")


def _place(rows: pl.DataFrame, begin: Int64s, until: Int64s) -> pl.DataFrame:
    """Return the rows that run in one of the windows, with their `window` and their `part_ns`."""
    start, end = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    number = np.searchsorted(begin, start, side="right") - 1
    inside = (number >= 0) & (start < np.append(until, 0)[number])
    windows = Spans(begin, until)
    first, last = elapsed(windows, start), elapsed(windows, end)  # on a clock that runs in the windows only
    kept = inside | (last > first)
    placed = rows.with_columns(window=pl.Series(np.where(inside, number, OUTSIDE), dtype=pl.Int64))
    placed = placed.filter(pl.Series(kept, dtype=pl.Boolean))
    parts = divide(first[kept], last[kept], behind=placed["collective"].to_numpy())
    return placed.with_columns(part_ns=pl.Series(parts, dtype=pl.Float64))


def _span_all(rows: pl.DataFrame) -> tuple[Int64s, Int64s]:
    """Return one window around all rows, none around nothing."""
    first, last, end = rows.select(
        first=pl.col("start_ns").min(), last=pl.col("start_ns").max(), end=pl.col("end_ns").max()
    ).row(0)
    known = [] if first is None else [(first, max(last + 1, end))]  # one that uses no time starts in it, too
    return np.array([a for a, _ in known], np.int64), np.array([b for _, b in known], np.int64)
