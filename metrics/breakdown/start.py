"""The start of a program in a recording without iterations: what loads, starts or allocates there happens only once.

Next to the calls that use something for the first time (`long_calls`), a start has calls that load code, allocations,
and pauses in which libraries read their files. In iterations these may recur, and are their own causes.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec.structs import replace

from deepprof.collectors.trace import Trace
from deepprof.metrics.breakdown.host_states import joined, on_threads, spans_of
from deepprof.metrics.breakdown.long_calls import BUILD, LONG_NS, QUEUES, SYNCHRONIZE, find_launches
from deepprof.metrics.breakdown.pauses import find_pauses
from deepprof.metrics.breakdown.timeline import Timeline
from deepprof.metrics.names import are_named, rows_named
from deepprof.metrics.operators import is_stand_in
from deepprof.metrics.spans import NOTHING, Spans, intersect, union

LEAST_STARTING, LEAST_FIRST_USE = 0.3, 0.05  # of a recording that is the start of a program
QUEUES_OR_WAITS = rf"{QUEUES}|{SYNCHRONIZE}"
FIRST_USE = "idle_first_use_ns"
ONCE = ("idle_allocator_ns", "idle_blocked_ns", "idle_host_ns")


def with_start(timeline: Timeline, trace: Trace) -> Timeline:
    """Return the timeline of a recording without iterations, in which the idle time of a start is that of a first use.

    Code and graphs that are built count in any such recording; allocations and other long calls that queue nothing do
    only in one that is the start of a program, until it uses nothing for the first time any more.
    """
    if timeline.host is None or is_stand_in(trace):
        return timeline
    rows = trace.host_events.filter((pl.col("category") == "runtime") & pl.col("end_ns").is_not_null())
    calls = on_threads(rows, timeline.host.threads)
    builds = union(*joined(spans_of(rows_named(calls, trace.names, BUILD)), timeline.host.captures))
    known = union(*joined(builds, timeline.host.first_use))
    pauses = _find_start_pauses(trace, calls, known)
    loaded = replace(timeline.repaint(union(*joined(builds, pauses)), ONCE, FIRST_USE), start_pauses=pauses)
    whole = int(loaded.bounds[-1] - loaded.bounds[0])
    if not known.total_ns or not is_start(loaded.starting.total_ns, loaded.totals_ns[FIRST_USE], whole):
        return loaded
    return loaded.repaint(_find_early_calls(trace, calls, int(known.ends[-1])), [*ONCE, "idle_launch_ns"], FIRST_USE)


def is_start(starting_ns: float, first_use_ns: float, whole_ns: float) -> bool:
    """Return whether much of the time is a program's start: a wait before the first work alone is none."""
    return starting_ns >= LEAST_STARTING * whole_ns and first_use_ns >= LEAST_FIRST_USE * whole_ns


def _find_early_calls(trace: Trace, calls: pl.DataFrame, until_ns: int) -> Spans:
    """Return the long calls up to `until_ns` that neither queue work nor wait for it."""
    early = calls.filter(pl.col("start_ns") < until_ns, pl.col("end_ns") - pl.col("start_ns") >= LONG_NS)
    return spans_of(
        early.filter(~pl.Series(are_named(trace.names, early["name_id"], QUEUES_OR_WAITS), dtype=pl.Boolean))
    )


def _find_start_pauses(trace: Trace, calls: pl.DataFrame, known: Spans) -> Spans:
    """Return the pauses of the threads in which most likely a library is read, though nothing is recorded.

    They are between two first uses (`known`), with no other call that queues work between these; the next one launches
    a kernel for the first time.
    """
    work = trace.device_events["correlation"].drop_nulls().unique()
    queueing = calls.filter(pl.col("correlation").is_in(work.implode()))
    if queueing.is_empty() or not known.total_ns:
        return NOTHING
    launches = find_launches(trace, calls)
    new = queueing["correlation"].is_in(launches.filter("new")["correlation"].implode()).to_numpy()
    ends = np.maximum.accumulate(queueing["end_ns"].to_numpy())
    since, until = np.append(calls["start_ns"][0], ends[:-1])[new], ends[new]
    first, last = np.searchsorted(known.ends, since, side="right"), np.searchsorted(known.starts, until) - 1
    several = first < last
    between = union(known.ends[first[several]], known.starts[last[several]])
    return intersect(find_pauses(spans_of(calls)), between)
