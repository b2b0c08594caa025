"""Host and device on one clock: recorders convert the device's clock, and are wrong by up to some milliseconds.

A launch cannot begin after what it launched. And where the device idles for want of work, what ends its idleness was
launched a few microseconds before, always about as many; if the trace shows a millisecond each time, the clocks differ.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.metrics.breakdown.host_states import on_threads
from deepprof.metrics.host import WAITS, read_launches
from deepprof.metrics.names import rows_named

__all__ = ["on_one_clock"]

WORK = ("kernel", "memcpy", "memset", "graph")
LATENCY_NS = 5_000  # the least time from a launch call to an idle device's first kernel
MOST_LATENCY_NS = 40_000  # and the most: 5 to 12 µs on NVIDIA, up to 30 on AMD
MOST_LEAD_NS = 20_000_000  # clocks are converted worse than by a few milliseconds only where ids are mixed up
ROUNDING_NS = 2_000  # whole microseconds make a kernel begin before its launch
MIN_CLOCK_EVENTS = 8  # events or gaps that must agree
BEHIND = 0.005  # of all kernels, at least, begin before their launch: single ones may have a wrong id
EQUAL_NS = 20_000  # latencies of idle devices differ by less, the time in a queue by much more
STARTUP_NS = 20_000  # the most that a device needs between two queued kernels
MIN_LATENCY_SHARE = 0.25  # of the idle time ends with the same latency
LONG_NS = 50_000  # a call that waits this long waits for the device


def on_one_clock(trace: Trace) -> Trace:
    """Return the trace with the host's times moved onto the device's clock, itself where the two agree.

    Nor is it moved where calls would come before the clock's zero: negative times are times before the capture.
    """
    lead = measure_lead(trace)
    if not lead or int(trace.host_events["start_ns"][0]) + lead < 0:
        return trace
    way = "ahead of" if lead > 0 else "behind"
    note = f"the device's clock is {abs(lead) / 1e3:.0f} µs {way} the host's; the host's times were moved to fit"
    return replace(
        trace,
        host_events=trace.host_events.with_columns(pl.col("start_ns") + lead, pl.col("end_ns") + lead),
        annotations=move_ranges(trace.annotations, lead),
        memory_events=trace.memory_events.with_columns(pl.col("time_ns") + lead),
        notes=(*trace.notes, note),
    )


def move_ranges(annotations: pl.DataFrame, lead: int) -> pl.DataFrame:
    """Return the ranges with the host's own moved."""
    host = pl.col("side") == "host"
    moved = [pl.when(host).then(pl.col(name) + lead).otherwise(name).alias(name) for name in ("start_ns", "end_ns")]
    return annotations.with_columns(moved).sort("start_ns", maintain_order=True)


def measure_lead(trace: Trace) -> int:
    """Return by how many nanoseconds the device's clock is ahead of the host's (negative: behind), 0 if not clear."""
    linked = link(trace)
    if linked.height < MIN_CLOCK_EVENTS:
        return 0
    lead = lead_behind(linked) or lead_ahead(linked)
    return lead if abs(lead) <= MOST_LEAD_NS and (lead <= 0 or waits_agree(trace, linked)) else 0


def link(trace: Trace) -> pl.DataFrame:
    """Return a row per launch, in order: process, thread, launch_ns, latency_ns until its work began, the idle gap_ns
    before it, and end_ns.
    """
    launches = read_launches(trace).select("correlation", "process", "thread", "launch_ns")
    work = trace.device_events.filter(pl.col("activity").is_in(WORK))
    gap = pl.col("start_ns") - pl.col("end_ns").cum_max().shift(1).over("device")
    return (
        work.select("correlation", "start_ns", "end_ns", gap_ns=gap.fill_null(0))
        .join(launches, on="correlation", how="inner", maintain_order="left")
        .group_by("correlation")  # of a graph the first kernel's begin and the last one's end
        .agg(pl.col("process", "thread", "launch_ns", "start_ns", "gap_ns").first(), pl.col("end_ns").max())
        .with_columns(latency_ns=pl.col("start_ns") - pl.col("launch_ns"))
        .sort("launch_ns")
    )


def lead_behind(linked: pl.DataFrame) -> int:
    """Return the lead (negative) without which kernels begin before their launch, 0 where none do."""
    latency = linked["latency_ns"].sort()
    least = int(latency[max(MIN_CLOCK_EVENTS - 1, int(BEHIND * len(latency)))])
    return least - LATENCY_NS if least < -ROUNDING_NS else 0


def lead_ahead(linked: pl.DataFrame) -> int:
    """Return the lead that makes of the latency which ends much of the idle time a usual one, 0 if it is usual."""
    ends = linked.filter(pl.col("gap_ns") > 0).sort("latency_ns")
    if ends.height < MIN_CLOCK_EVENTS or int(ends["latency_ns"][0]) <= MOST_LATENCY_NS:
        return 0
    least = int(ends["latency_ns"][0])
    alike = ends.filter(pl.col("latency_ns") <= least + EQUAL_NS)
    clear = alike.height >= MIN_CLOCK_EVENTS and int(alike["gap_ns"].sum()) >= MIN_LATENCY_SHARE * int(
        ends["gap_ns"].sum()
    )
    return least - LATENCY_NS if clear and follows_launches(alike) else 0


def follows_launches(alike: pl.DataFrame) -> bool:
    """Return whether it is launches that the device followed, and not the work before in a queue that is always full.

    Then gaps are longer than a device needs between two queued kernels, or vary more than the latency; equal kernels
    wait equally long in a full queue, and the gaps between them are alike, too.
    """
    long = alike.filter(pl.col("gap_ns") >= STARTUP_NS)
    return int(long["gap_ns"].sum()) >= MIN_LATENCY_SHARE * int(alike["gap_ns"].sum()) or (
        spread(alike["latency_ns"]) < spread(alike["gap_ns"])
    )


def spread(values: pl.Series) -> float:
    """Return the distance between the quartiles."""
    return float(values.quantile(0.75) or 0) - float(values.quantile(0.25) or 0)


def waits_agree(trace: Trace, linked: pl.DataFrame) -> bool:
    """Return whether the host, where it waited, went on before the device was done, as its clock says.

    True without waits: they say nothing then.
    """
    calls = trace.host_events.filter((pl.col("category") == "runtime") & (pl.col("end_ns") > pl.col("start_ns")))
    own = on_threads(rows_named(calls, trace.names, WAITS), linked.select("process", "thread").unique())
    waits = own.filter(pl.col("end_ns") - pl.col("start_ns") >= LONG_NS)
    at = np.searchsorted(linked["launch_ns"].to_numpy(), waits["start_ns"].to_numpy()) - 1
    done = linked["end_ns"].cum_max().to_numpy()[at[at >= 0]]
    early = done - waits["end_ns"].to_numpy()[at >= 0]
    return not len(early) or float(np.median(early)) > 0
