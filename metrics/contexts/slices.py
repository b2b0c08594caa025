"""What the host had open: its functions, operators, ranges and calls as slices of time, nested on every thread."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.trace import Trace
from deepprof.metrics.contexts.frames import KIND, KINDS, OF_CATEGORIES
from deepprof.metrics.enclosure import order_slices
from deepprof.mining.spans import nest

Int64s = npt.NDArray[np.int64]

# Of slices with the same begin and end the outer one first.
OUTER_FIRST = ("range", "python", "operator", "runtime")
RANKS = np.array([OUTER_FIRST.index(kind) if kind in OUTER_FIRST else -1 for kind in KINDS])


class HostSlices(Struct, frozen=True, eq=False):
    """The slices of a trace's host in the order of `order_slices`, a row each: parents are before their children.

    `rows` has `kind`, `name_id`, `process`, `thread`, what links need, and `event`, the row of `host_events`, null for
    a range, of which `annotation` is the row of `annotations`, null for others. `track` numbers the threads by their
    first begin. A slice that ends after the one around it is cut there: [`start`, `end`) are nested. `parent` is the
    row of the slice around, -1 for none.
    """

    rows: pl.DataFrame
    track: Int64s
    start: Int64s
    end: Int64s
    parent: Int64s

    @property
    def threads(self) -> int:
        """How many threads there are."""
        return int(self.track.max(initial=-1)) + 1


def has_code(trace: Trace) -> bool:
    """Return whether the host recorded more than calls: functions, operators or ranges that work belongs to."""
    ranges = (trace.annotations["side"] == "host").any()
    return ranges or trace.host_events["category"].is_in(["op", "python"]).any()


def read_slices(trace: Trace) -> HostSlices:
    """Return what was open on the threads of the host; rows that never end hold nothing and are left out."""
    rows = _gather(trace)
    track = _number_threads(rows)
    start, end = rows["start_ns"].to_numpy(), np.maximum(rows["end_ns"].to_numpy(), rows["start_ns"].to_numpy())
    order = order_slices(track, start, end, RANKS[rows["kind"].to_physical().to_numpy()])
    track, start, end = track[order], start[order], end[order]
    parent, end = nest(track, start, end)
    return HostSlices(rows[order], track, start, end, parent)


def _number_threads(rows: pl.DataFrame) -> Int64s:
    """Return the number of every row's thread, in the order in which they first begin something."""
    key = ["process", "thread"]
    threads = rows.group_by(key).agg(pl.col("start_ns").min()).sort("start_ns", *key).with_row_index("track")
    numbered = rows.join(threads, on=key, how="left", nulls_equal=True, maintain_order="left")
    return numbered["track"].cast(pl.Int64).to_numpy()


def _gather(trace: Trace) -> pl.DataFrame:
    """Return the host's ranges, then its events; what never ends is left out."""
    kind = pl.col("category").cast(pl.String).replace_strict(OF_CATEGORIES, default="range")
    columns = ("start_ns", "end_ns", "process", "thread", "name_id")
    links = ("correlation", "external_id", "sequence", "forward_thread", "stack_id")
    events = trace.host_events.with_row_index("event").select(*columns, *links, "event", kind=kind)
    ranges = trace.annotations.with_row_index("annotation").filter(pl.col("side") == "host")
    ranges = ranges.select(*columns, "annotation", kind=pl.lit("range"))
    return pl.concat([ranges, events], how="diagonal").drop_nulls("end_ns").cast({"kind": KIND})


def find_open(slices: HostSlices, moments: pl.DataFrame) -> Int64s:
    """Return the row of the innermost slice that is open at each of `moments`, -1 for none.

    They have `process`, `thread` and `time_ns`.
    """
    key = ["process", "thread"]
    threads = slices.rows.select(key).with_columns(track=pl.Series(slices.track, dtype=pl.Int64)).unique()
    placed = moments.join(threads, on=key, how="left", nulls_equal=True, maintain_order="left")
    track, time = placed["track"].fill_null(-1).to_numpy(), placed["time_ns"].to_numpy()
    row, end = _last_begun(slices, track, time), np.append(slices.end, 0)
    while (closed := np.flatnonzero((row >= 0) & (end[row] <= time))).size:
        row[closed] = slices.parent[row[closed]]
    return row


def _last_begun(slices: HostSlices, track: Int64s, time: Int64s) -> Int64s:
    """Return the row of the last slice on the same track that begins at the time or before, -1 for none."""
    times = np.sort(slices.start)
    size = len(times) + 1
    keys = slices.track * size + np.searchsorted(times, slices.start) + 1
    found = np.searchsorted(keys, track * size + np.searchsorted(times, time, side="right"), side="right") - 1
    return np.where((found >= 0) & (np.append(slices.track, -1)[found] == track), found, -1)
