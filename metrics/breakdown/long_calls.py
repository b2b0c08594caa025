"""Calls that last far longer than others of their name: those that use something for the first time, and blocked ones.

Either takes milliseconds in a call that otherwise returns in microseconds. A first use loads code or starts a library,
and happens once; a blocked call waits for something that the trace does not show, such as a lock, and may happen again.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from deepprof.collectors.trace import WORK_ACTIVITIES, Trace
from deepprof.metrics.names import rows_named

FAR = 20  # times what calls of its name usually take: a launch that is profiled uses 5 to 60 µs
LONG_NS = 300_000  # the least time of such a call: a call that only queues work uses 3 to 20 µs, profiled ones more
FIRST_CALLS = 3  # of a name: they do not show what the name usually takes
LIBRARY_NS = 50_000_000  # an allocation or a free that lasts longer starts a library: memory alone uses 0.1 to 10 ms
ALLOCATOR = (
    r"(?i)^(?:cuda|hip|cu)(?:ext)?(?:malloc|free|mem(?:alloc|free|create|release|map|unmap|setaccess|address)"
    r"|host(?:alloc|malloc|free|register|unregister))"
)
LOAD = r"(?:Module|Library)Load"
BUILD = rf"{LOAD}|BeginCapture|GraphInstantiate|^nvrtcCompile|^hiprtcCompile"
SYNCHRONIZE = "Synchronize"  # a wait of any length is what it is for
COPY, UNWAITED = r"Mem(?:cpy|set)", "Async"
QUEUES = rf"Launch|{COPY}|Event|StreamWait"  # what such calls do needs no library
GRAPH = "Graph"  # its launch lasts as long as it is large, and a copy that is no asynchronous one as long as the device


def find_long_calls(trace: Trace, calls: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the calls that use something for the first time, and those that are blocked; `calls` are sorted by start.

    Allocations that are no first use stay allocations.
    """
    loads, long = rows_named(calls, trace.names, LOAD), _find_long(trace, calls)
    if loads.is_empty() and long.is_empty():
        return loads, loads
    launches = find_launches(trace, calls)
    first, memory = _are_first(trace, launches, long), _are(long, trace, ALLOCATOR)
    first_uses = pl.concat([long.filter(first).select(calls.columns), _before_new(loads, launches)])
    return first_uses, long.filter(~first & ~memory).select(calls.columns)


def _find_long(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """Return the calls far longer than usual with their `length` and their `number` among those of their name."""
    length, number = pl.col("end_ns") - pl.col("start_ns"), pl.int_range(pl.len())
    measured = calls.with_columns(length=length, number=number.over("name_id"))
    later = pl.col("length").filter(pl.col("number") >= FIRST_CALLS).median().over("name_id").fill_null(0)
    usual = pl.min_horizontal(later, pl.col("length").median().over("name_id"))
    far = (pl.col("length") >= LONG_NS) & (pl.col("length") >= FAR * pl.col("usual"))
    long = measured.with_columns(usual=usual).filter(far)
    takes = _are(long, trace, GRAPH) | (_are(long, trace, COPY) & ~_are(long, trace, UNWAITED))
    return long.filter(~_are(long, trace, f"{SYNCHRONIZE}|{BUILD}") & ~(takes & (long["usual"] == 0)))


def find_launches(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """Return the launches with their `kernel`, and whether each is the `new` one: the recording's first of it."""
    kernels = trace.device_events.filter((pl.col("activity") == "kernel") & pl.col("correlation").is_not_null())
    new = kernels.group_by("name_id").agg(pl.col("correlation").sort_by("start_ns").first())["correlation"]
    named = kernels.group_by("correlation").agg(kernel=pl.col("name_id").sort_by("start_ns").first())
    launches = calls.join(named, on="correlation", how="inner", maintain_order="left")
    return launches.with_columns(new=pl.col("correlation").is_in(new.implode()))


def _before_new(loads: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Return the calls that load code for a kernel that is launched next, and for the first time."""
    following = np.searchsorted(launches["start_ns"].to_numpy(), loads["start_ns"].to_numpy())
    new = np.append(launches["new"].to_numpy(), False)
    return loads.filter(pl.Series(new[following], dtype=pl.Boolean))


def _are_first(trace: Trace, launches: pl.DataFrame, long: pl.DataFrame) -> pl.Series:
    """Return which of the long calls use something for the first time.

    A long launch of a kernel that was not launched before loads its code, though other kernels' code may be loaded.
    """
    early, memory = long["number"] < FIRST_CALLS, _are(long, trace, ALLOCATOR)
    starts_library = memory & early & (long["length"] >= LIBRARY_NS)
    others = early & ~_are(long, trace, f"{ALLOCATOR}|{QUEUES}")
    before = ~memory & (long["start_ns"] < _first_work(trace)).fill_null(value=False)
    return starts_library | others | before | _load_code(launches, long)


def _load_code(launches: pl.DataFrame, long: pl.DataFrame) -> pl.Series:
    """Return which of the long calls launch a kernel for the first time, and last long only then."""
    there = launches.filter(pl.col("correlation").is_in(long["correlation"].drop_nulls().implode()))
    again = there.filter(~pl.col("new"))["kernel"].unique()
    once = there.filter("new", ~pl.col("kernel").is_in(again.implode()))["correlation"]
    return long["correlation"].is_in(once.implode()).fill_null(value=False)


def _are(rows: pl.DataFrame, trace: Trace, pattern: str) -> pl.Series:
    """Return which rows have a name with `pattern`."""
    return trace.names.gather(rows["name_id"]).str.contains(pattern).fill_null(value=False)


def _first_work(trace: Trace) -> int:
    """Return when the first kernel begins, or where there is none the first work: a batch may be copied before."""
    work = trace.device_events.filter(pl.col("activity").is_in(WORK_ACTIVITIES)).select("activity", "start_ns")
    kernels = work.filter(pl.col("activity").is_in(["kernel", "graph"]))
    first = (work if kernels.is_empty() else kernels)["start_ns"].min()
    return 0 if first is None else first  # type: ignore[return-value]
