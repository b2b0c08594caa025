"""Pauses between the calls of the launching threads, and which of them are too long for launching.

Between two calls a framework dispatches operators, many of which launch nothing (views, shapes, bookkeeping). A pause
is launching where one operator follows another, and while an operator prepares the call that it makes next. It is other
work where no operator begins or ends for longer than a dispatch takes: the thread computes, reads or writes, in one
operator or in none.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.metrics.breakdown.long_calls import ALLOCATOR, BUILD, COPY, SYNCHRONIZE
from deepprof.metrics.names import are_named
from deepprof.metrics.spans import Spans, covered, union

Int64s = npt.NDArray[np.int64]

PAUSE_NS = 1_000_000  # between two runtime calls: frameworks dispatch an operator in 5 to 200 µs, profiled ones in 500
USUAL_PAUSE = 0.95  # of the pauses between calls are no longer: where more are, the program launches that slowly
FAR_PAUSE = 10  # times that: in a program that launches every 3 µs half a millisecond is no launching either
FAST_PAUSE, FARTHEST_PAUSE = 0.75, 100  # times what this many are no longer than: host work among few, fast launches
SHORT_PAUSE_NS = 200_000  # an operator's dispatch, however short the others are
PREPARING_NS = 5_000_000  # in an operator before its call: choosing an algorithm uses 1 to 3 ms, profiled with stacks
PREPARES_NOTHING = rf"{SYNCHRONIZE}|{COPY}|{ALLOCATOR}|{BUILD}"  # calls for which an operator computes on the host


def select_long(spans: Spans) -> Spans:
    """Return the spans that are too long for launching, whatever the other pauses are."""
    long = spans.ends - spans.starts > PAUSE_NS
    return Spans(spans.starts[long], spans.ends[long])


def find_pauses(calls: Spans) -> Spans:
    """Return the pauses between calls that are too long for launching: longer than `PAUSE_NS`, or than most by far."""
    starts, ends = calls.ends[:-1], calls.starts[1:]
    long = ends - starts > _longest_dispatch(calls)
    return Spans(starts[long], ends[long])


def _longest_dispatch(calls: Spans) -> float:
    """Return how long a pause between calls may be that is launching, in ns."""
    lengths = calls.starts[1:] - calls.ends[:-1]
    fast, usual = np.quantile(lengths, [FAST_PAUSE, USUAL_PAUSE]) if len(lengths) else (0.0, 0.0)
    return float(np.clip(min(FAR_PAUSE * usual, FARTHEST_PAUSE * fast), SHORT_PAUSE_NS, PAUSE_NS))


def find_other_work(trace: Trace, calls: pl.DataFrame, operators: pl.DataFrame) -> Spans:
    """Return the long pauses between `calls` without the time in which `operators` of their threads are dispatched."""
    made = union(calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy())
    pauses = find_pauses(made)
    start, end = operators["start_ns"].to_numpy(), operators["end_ns"].to_numpy()
    near = covered(pauses, start, end) > 0
    start, end = start[near], end[near]
    bounds = np.unique(np.concatenate([pauses.starts, pauses.ends, start, end]))
    since, until = bounds[:-1], bounds[1:]
    quiet = (covered(pauses, since, until) > 0) & (until - since > SHORT_PAUSE_NS)
    since, until = since[quiet], until[quiet]
    prepared = np.isin(until, _list_prepared(trace, calls)) & (until - since <= PREPARING_NS)
    inside = covered(union(start, end), since, until) == until - since
    return union(since[~(prepared & inside)], until[~(prepared & inside)])


def _list_prepared(trace: Trace, calls: pl.DataFrame) -> Int64s:
    """Return the starts of the calls for which an operator computes nothing on the host."""
    others = np.asarray(are_named(trace.names, calls["name_id"], PREPARES_NOTHING), bool)
    starts: Int64s = calls["start_ns"].to_numpy()[~others]
    return starts
