"""A recording of ranges alone, without a device and without operators: for how long the program loads data."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from deepprof.collectors.trace import Trace
from deepprof.metrics.breakdown.host_states import MAX_LOADER_KERNELS, are_loading, launches_within
from deepprof.metrics.names import with_names
from deepprof.metrics.spans import union


class _LoadingTime(Struct, frozen=True):
    """For how long the thread that does a program's work loads data, of which time, and the range that shows most."""

    loading_ns: int
    whole_ns: int
    name: str


def measure_loading(trace: Trace) -> _LoadingTime | None:
    """Return the loading of the thread that is longest in ranges that load nothing; None where no thread is in any.

    Threads that only load are workers, for which no one may have to wait. None too where anything shows that a device
    was in use, which may have worked meanwhile.
    """
    if trace.device_events.height or (trace.host_events["category"] == "runtime").any():
        return None
    on_host = (pl.col("side") == "host") & (pl.col("end_ns") > pl.col("start_ns"))
    ranges = with_names(trace.annotations.filter(on_host), trace.names)
    threads = ranges.with_columns(loads=are_loading(ranges["name"])).partition_by("process", "thread")
    thread = max(threads, key=_time_of_work, default=None)
    if thread is None or not _time_of_work(thread):
        return None
    loading = _only_loading(thread)
    longest = loading.group_by("name").agg(ns=(pl.col("end_ns") - pl.col("start_ns")).sum()).sort("ns", "name")["name"]
    return _LoadingTime(
        union(loading["start_ns"].to_numpy(), loading["end_ns"].to_numpy()).total_ns,
        int(np.max(thread["end_ns"].to_numpy()) - np.min(thread["start_ns"].to_numpy())),
        "" if longest.is_empty() else longest[-1],
    )


def _only_loading(ranges: pl.DataFrame) -> pl.DataFrame:
    """Return the ranges of a thread that load data; one around much else is the program around its loading."""
    work = ranges.filter(~pl.col("loads"))
    calls = work.select("process", "thread", launch_ns="start_ns", kernels=pl.lit(1))
    loading = ranges.filter("loads")
    return loading.filter(launches_within(loading, calls) <= MAX_LOADER_KERNELS)


def _time_of_work(ranges: pl.DataFrame) -> int:
    """Return for how long a thread is in ranges that load nothing and in none that loads."""
    work, loading = ranges.filter(~pl.col("loads")), ranges.filter("loads")
    both = union(ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy()).total_ns
    return both - union(loading["start_ns"].to_numpy(), loading["end_ns"].to_numpy()).total_ns if work.height else 0
