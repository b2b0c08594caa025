"""Host and device on one clock: recorders convert the device's clock with errors of up to some milliseconds.

A launch cannot begin after the work that it launched. Where the device idles for lack of work, the work that ends the
idle time was launched a few microseconds before, always about as many; if the trace shows a millisecond each time, the
clocks differ.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec.structs import replace

from deepprof.collectors.trace import WORK_ACTIVITIES, Trace
from deepprof.metrics.breakdown.host_states import on_threads
from deepprof.metrics.host import WAITS, read_launches
from deepprof.metrics.names import rows_named

LATENCY_NS = 5_000  # the least time from a launch call to an idle device's first kernel
MOST_LATENCY_NS = 40_000  # the most time from such a launch call: 5 to 12 µs on NVIDIA, up to 30 on AMD
MOST_LEAD_NS = 20_000_000  # errors of more than a few milliseconds come only from mixed-up ids
ROUNDING_NS = 2_000  # times in whole microseconds can make a kernel begin before its launch
MIN_CLOCK_EVENTS = 8  # events or gaps that must agree
BEHIND = 0.005  # least share of kernels that begin before their launch: single ones may have a wrong id
EQUAL_NS = 20_000  # latencies of idle devices differ by less, times in a queue by much more
STARTUP_NS = 20_000  # the most that a device needs between two queued kernels
MIN_LATENCY_SHARE = 0.25  # least share of the idle time that ends with the same latency
LONG_NS = 50_000  # a call that waits this long waits for the device


def on_one_clock(trace: Trace) -> Trace:
    """Return the trace with the host's times moved onto the device's clock, unchanged if the two agree.

    It is unchanged too if calls would come before the clock's zero: negative times are times before the capture.
    """
    lead = measure_lead(trace)
    if not lead or int(trace.host_events["start_ns"][0]) + lead < 0:
        return trace
    way = "ahead of" if lead > 0 else "behind"
    note = f"the device's clock is {abs(lead) / 1e3:.0f} µs {way} the host's; the host's times were moved to fit"
    return replace(
        trace,
        host_events=trace.host_events.with_columns(pl.col("start_ns") + lead, pl.col("end_ns") + lead),
        annotations=_move_ranges(trace.annotations, lead),
        memory_events=trace.memory_events.with_columns(pl.col("time_ns") + lead),
        segments=trace.segments.with_columns(pl.col("time_ns") + lead),
        failed_allocations=trace.failed_allocations.with_columns(pl.col("time_ns") + lead),
        notes=(*trace.notes, note),
    )


def _move_ranges(annotations: pl.DataFrame, lead: int) -> pl.DataFrame:
    """Return the ranges, those of the host moved by `lead`."""
    host = pl.col("side") == "host"
    moved = [pl.when(host).then(pl.col(name) + lead).otherwise(name).alias(name) for name in ("start_ns", "end_ns")]
    return annotations.with_columns(moved).sort("start_ns", maintain_order=True)


def measure_lead(trace: Trace) -> int:
    """Return by how many nanoseconds the device's clock is ahead of the host's (negative: behind), 0 if not clear."""
    linked = _link(trace)
    if linked.height < MIN_CLOCK_EVENTS:
        return 0
    lead = _lead_behind(linked) or _lead_ahead(linked)
    return lead if abs(lead) <= MOST_LEAD_NS and (lead <= 0 or _waits_agree(trace, linked)) else 0


def _link(trace: Trace) -> pl.DataFrame:
    """Return a row per launch, in order.

    Columns: process, thread, launch_ns, latency_ns until its work began, the idle gap_ns before the work, and end_ns.
    """
    launches = read_launches(trace).select("correlation", "process", "thread", "launch_ns")
    work = trace.device_events.filter(pl.col("activity").is_in(WORK_ACTIVITIES))
    gap = pl.col("start_ns") - pl.col("end_ns").cum_max().shift(1).over("device")
    return (
        work.select("correlation", "start_ns", "end_ns", gap_ns=gap.fill_null(0))
        .join(launches, on="correlation", how="inner", maintain_order="left")
        .group_by("correlation")  # of a graph: the begin of the first kernel and the end of the last
        .agg(pl.col("process", "thread", "launch_ns", "start_ns", "gap_ns").first(), pl.col("end_ns").max())
        .with_columns(latency_ns=pl.col("start_ns") - pl.col("launch_ns"))
        .sort("launch_ns")
    )


def _lead_behind(linked: pl.DataFrame) -> int:
    """Return the (negative) lead that explains kernels which begin before their launch, 0 if none do."""
    latency = linked["latency_ns"].sort()
    least = int(latency[max(MIN_CLOCK_EVENTS - 1, int(BEHIND * len(latency)))])
    return least - LATENCY_NS if least < -ROUNDING_NS else 0


def _lead_ahead(linked: pl.DataFrame) -> int:
    """Return the lead that makes the latency at the end of much of the idle time a usual one, 0 if it already is."""
    ends = linked.filter(pl.col("gap_ns") > 0).sort("latency_ns")
    if ends.height < MIN_CLOCK_EVENTS or int(ends["latency_ns"][0]) <= MOST_LATENCY_NS:
        return 0
    least = int(ends["latency_ns"][0])
    alike = ends.filter(pl.col("latency_ns") <= least + EQUAL_NS)
    clear = alike.height >= MIN_CLOCK_EVENTS and int(alike["gap_ns"].sum()) >= MIN_LATENCY_SHARE * int(
        ends["gap_ns"].sum()
    )
    return least - LATENCY_NS if clear and _follows_launches(alike) else 0


def _follows_launches(alike: pl.DataFrame) -> bool:
    """Return whether the device followed the launches, and not the previous work in a queue that is always full.

    After launches, gaps are longer than a device needs between two queued kernels, or vary more than the latency; in a
    full queue equal kernels wait equally long, and the gaps between them are alike, too.
    """
    long = alike.filter(pl.col("gap_ns") >= STARTUP_NS)
    return int(long["gap_ns"].sum()) >= MIN_LATENCY_SHARE * int(alike["gap_ns"].sum()) or (
        _spread(alike["latency_ns"]) < _spread(alike["gap_ns"])
    )


def _spread(values: pl.Series) -> float:
    return float(values.quantile(0.75) or 0) - float(values.quantile(0.25) or 0)


def _waits_agree(trace: Trace, linked: pl.DataFrame) -> bool:
    """Return whether, by the recorded times, the host's waits ended before the device was done.

    True without waits: nothing can be compared then.
    """
    calls = trace.host_events.filter((pl.col("category") == "runtime") & (pl.col("end_ns") > pl.col("start_ns")))
    own = on_threads(rows_named(calls, trace.names, WAITS), linked.select("process", "thread").unique())
    waits = own.filter(pl.col("end_ns") - pl.col("start_ns") >= LONG_NS)
    at = np.searchsorted(linked["launch_ns"].to_numpy(), waits["start_ns"].to_numpy()) - 1
    done = linked["end_ns"].cum_max().to_numpy()[at[at >= 0]]
    early = done - waits["end_ns"].to_numpy()[at >= 0]
    return not len(early) or float(np.median(early)) > 0
