"""What recorders and systems do to a trace: each needs one and returns it disturbed; the job in it stays the same.

Tables in, tables out: times bent, names changed, records left out. Nothing here changes why a device waits.
`benchmarks/cases/additions.py` adds records.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec.structs import replace

from deepprof.collectors.time_range import POINTS, cut
from deepprof.collectors.trace import RECORD_TABLES, Accounting, Trace

__all__ = [
    "bend_time",
    "cut_part",
    "drop_calls",
    "drop_launches",
    "drop_operators",
    "drop_ranges",
    "move_device_clock",
    "numbered",
    "overlap_kernels",
    "rebuild",
    "rename",
    "round_times",
    "stall_host",
]

Int64s = npt.NDArray[np.int64]
Times = Callable[[Int64s], Int64s]

SIDES = {"device_events": "collectives", "host_events": "operands"}  # joined by row number
TIMES = ("start_ns", "end_ns", "time_ns")
KNOT_NS = 200_000  # between two places where bent time changes its pace
SEED = 2_025


def numbered(trace: Trace, table: str) -> pl.DataFrame:
    """Return a table with its rows' numbers in `row`, by which `rebuild` finds what belongs to them."""
    rows: pl.DataFrame = getattr(trace, table)
    return rows.with_columns(pl.int_range(pl.len(), dtype=pl.UInt32).alias("row"))


def rebuild(trace: Trace, **tables: pl.DataFrame) -> Trace:
    """Return `trace` with other record tables, which are sorted; rows without a number are new."""
    changed: dict[str, pl.DataFrame] = {}
    for table, rows in tables.items():
        ordered = rows.sort(rows.columns[0], maintain_order=True)
        if "row" in ordered.columns:
            places = ordered.select(event="row").with_row_index("place").drop_nulls()
            side = getattr(trace, SIDES[table]).join(places, on="event", how="inner", maintain_order="left")
            changed[SIDES[table]] = side.with_columns(event=pl.col("place").cast(pl.UInt32)).drop("place")
        changed[table] = ordered.drop("row", strict=False)
    kept = sum(changed.get(table, getattr(trace, table)).height for table in RECORD_TABLES)
    return replace(trace, accounting=Accounting(kept, kept), **changed)  # type: ignore[arg-type]


def move(rows: pl.DataFrame, to: Times) -> pl.DataFrame:
    """Return the rows with their times mapped; missing ones stay missing."""
    columns = [rows[name] for name in TIMES if name in rows.columns]
    return rows.with_columns(
        pl.Series(each.name, to(each.fill_null(0).to_numpy())).set(each.is_null(), None) for each in columns
    )


def remap(trace: Trace, host: Times, device: Times) -> Trace:
    """Return the trace with other times on the host and on the device; neither map may turn time back."""
    on_device = pl.col("side") == "device"
    sides = ((trace.annotations.filter(~on_device), host), (trace.annotations.filter(on_device), device))
    return rebuild(
        trace,
        device_events=move(numbered(trace, "device_events"), device),
        host_events=move(numbered(trace, "host_events"), host),
        annotations=pl.concat([move(*each) for each in sides]),
        **{table: move(getattr(trace, table), host) for table in POINTS},
    )


def move_device_clock(trace: Trace, offset_ns: int) -> Trace:
    """Return the trace as if the device's clock were `offset_ns` ahead of the host's."""
    return remap(trace, lambda times: times, lambda times: times + offset_ns)


def round_times(trace: Trace, to_ns: int = 1_000) -> Trace:
    """Return the trace with starts and durations cut to whole microseconds, as old profilers write them."""

    def rounded(rows: pl.DataFrame) -> pl.DataFrame:
        start, length = pl.col("start_ns") // to_ns * to_ns, pl.col("end_ns") - pl.col("start_ns")
        return rows.with_columns(start_ns=start, end_ns=start + length // to_ns * to_ns)

    tables = {table: rounded(numbered(trace, table)) for table in SIDES}
    return rebuild(trace, **tables, annotations=rounded(trace.annotations))


def bounds_of(trace: Trace) -> tuple[int, int]:
    """Return the first and the last time of the records on host and device."""
    tables = [rows for rows in (trace.device_events, trace.host_events) if rows.height]
    starts, ends = ([rows[name] for rows in tables] for name in ("start_ns", "end_ns"))
    return min(int(each.min()) for each in starts), max(int(each.max()) for each in ends)  # type: ignore[arg-type]


def bend_time(trace: Trace, share: float) -> Trace:
    """Return the trace with everything up to `share` faster or slower for a while, host and device alike."""
    first, last = bounds_of(trace)
    random = np.random.default_rng(SEED)
    paces = 1 + share * random.uniform(-1, 1, (last - first) // KNOT_NS + 2)
    knots = KNOT_NS * np.arange(len(paces) + 1)
    bent = np.append(0, np.cumsum(paces * KNOT_NS))

    def bend(times: Int64s) -> Int64s:
        return np.asarray(np.interp(times - first, knots, bent).astype(np.int64) + first)

    return remap(trace, bend, bend)


def stall_host(trace: Trace, count: int, longest_ns: int) -> Trace:
    """Return the trace with `count` pauses of the whole job, at launches that an idle device waits for.

    That is system noise where the device has nothing queued: it pauses with the host, and kernels stay as long.
    """
    random = np.random.default_rng(SEED + 1)
    calls = trace.host_events.filter(pl.col("category") == "runtime").select("correlation", call_ns="start_ns")
    events = trace.device_events.join(calls.unique("correlation"), on="correlation", how="left").sort("start_ns")
    waited = events.filter(pl.col("call_ns") > pl.col("end_ns").cum_max().shift(1))["call_ns"].to_numpy()
    at = np.sort(random.choice(waited, min(count, len(waited)), replace=False))
    lengths = (longest_ns * random.uniform(0.2, 1, len(at)) ** 2).astype(np.int64)
    delays = np.append(0, np.cumsum(lengths))

    def later(times: Int64s) -> Int64s:
        return np.asarray(times + delays[np.searchsorted(at, times, side="right")])

    return remap(trace, later, later)


def drop_launches(trace: Trace, share: float) -> Trace:
    """Return the trace without a `share` of its runtime calls that launch something."""
    rows = numbered(trace, "host_events")
    linked = rows["correlation"].is_in(trace.device_events["correlation"].drop_nulls().unique().implode())
    drawn = pl.Series(np.random.default_rng(SEED + 2).random(rows.height) < share)
    lost = (rows["category"] == "runtime") & linked & drawn
    return rebuild(trace, host_events=rows.filter(~lost.fill_null(value=False)))


def drop_calls(trace: Trace) -> Trace:
    """Return the trace without its runtime calls: operators and ranges are left, and what ran on the device."""
    rows = numbered(trace, "host_events")
    return rebuild(trace, host_events=rows.filter(pl.col("category") != "runtime"))


def drop_operators(trace: Trace) -> Trace:
    """Return the trace without the CPU's operators and Python frames."""
    rows = numbered(trace, "host_events")
    return rebuild(trace, host_events=rows.filter(pl.col("category").is_in(["runtime", "overhead"])))


def drop_ranges(trace: Trace) -> Trace:
    """Return the trace without the ranges that the user or the framework wrote."""
    return rebuild(trace, annotations=trace.annotations.clear())


def rename(trace: Trace, pattern: str, value: str) -> Trace:
    """Return the trace with other names, as other drivers and recorders write them."""
    return replace(trace, names=trace.names.str.replace(pattern, value))


def cut_part(trace: Trace, first: float, last: float) -> Trace:
    """Return what was recorded from one share of the capture's time to another."""
    begin, end = bounds_of(trace)
    return cut(trace, begin + round(first * (end - begin)), begin + round(last * (end - begin)))


def overlap_kernels(trace: Trace, ns: int = 1_500) -> Trace:
    """Return the trace with kernels that end shortly after the next one of their stream began (programmatic launch)."""
    following = pl.col("start_ns").shift(-1).over("device", "stream")
    close = (pl.col("activity") == "kernel") & (following - pl.col("end_ns") < 2 * ns)
    end = pl.when(close).then(following + ns).otherwise("end_ns")
    return rebuild(trace, device_events=numbered(trace, "device_events").with_columns(end_ns=end))
