"""What the launching threads of a program wait for in another one: a lock, a queue, an engine that does the work.

Such a thread is in a call, a frame or a range in which threads wait for each other. Where no operator and no frame
shows what it does, it waits if another thread works meanwhile, and hardly while it makes calls.
"""

from __future__ import annotations

import re

import polars as pl
from msgspec import Struct

from deepprof.collectors.trace import Trace
from deepprof.metrics.breakdown.host_states import HostStates, on_threads
from deepprof.metrics.breakdown.program_places import KINDS, MIN_NAMED_SHARE, Place, find_own_place, find_place_beside
from deepprof.metrics.names import rows_named
from deepprof.metrics.spans import Spans, covered, union

# Calls of the operating system, and frames, in which a thread waits for another one of its process.
LOCKS = (
    r"^pthread_(?:mutex_\w*lock|cond_\w*wait|rwlock_\w*lock|join)|^sem_\w*wait$"
    r"|\b(?:threading|queue)\.py\(\d+\): |futures[/\\]_base\.py\(\d+\): result|\brun_backward\b"
    r"|<(?:built-in )?(?:method|function) '?acquire\b"
)
# Of these, what only another thread can end: elsewhere a program that has nothing to do waits, too.
HELD = r"^pthread_(?:mutex_\w*lock|rwlock_\w*lock|join)|\brun_backward\b"
# Ranges of a thread that does hardly anything in them: PyTorch computes gradients in its own thread.
ENGINE = r"(?i)\bbackward\b"
LITTLE = 0.1  # of such a range: its own thread's operators and calls
WORDS = {"other": "call", "python": "frame", "range": "range"}  # category of a wait: word in a place


class AwaitedThread(Struct, frozen=True):
    """What launching threads wait for: `waits_in` is what they are in, `runs` what the other thread does.

    Either may be unknown (None), not both.
    """

    waits_in: Place | None
    runs: Place | None


def find_awaited(trace: Trace, spans: Spans, host: HostStates | None) -> AwaitedThread | None:
    """Return what the launching threads of `host` wait for in most of `spans`; None where they do not wait."""
    if host is None or not spans.total_ns:
        return None
    waits = _find_waits(trace, spans, host.threads)
    if waits.is_empty():
        alone = not {*KINDS} & {*(find_own_place(trace, spans, host.threads) or {})}
        runs = find_place_beside(trace, spans, host.threads, within=host.other) if alone else None
        return None if runs is None else AwaitedThread(None, runs)
    longest = waits.group_by("category", "name_id").agg(pl.col("inside").sum(), begin=pl.col("start_ns").min())
    category, name, *_ = longest.sort("inside", "begin", descending=[True, False]).row(0)
    runs = find_place_beside(trace, spans, waits.select("process", "thread").unique())
    engine = category == "range" and not _is_recorded(trace, waits)
    certain = engine or re.search(HELD, trace.name(name)) is not None
    return AwaitedThread({WORDS[category]: trace.name(name)}, runs) if certain or runs is not None else None


def _is_recorded(trace: Trace, waits: pl.DataFrame) -> bool:
    """Return whether another thread of the process works in the waits: its own records show then when it does."""
    others = (
        _list_work(trace)
        .join(waits.select("process").unique(), on="process", nulls_equal=True, how="semi")
        .join(waits.select("process", "thread").unique(), on=["process", "thread"], nulls_equal=True, how="anti")
    )
    inside = union(waits["start_ns"].to_numpy(), waits["end_ns"].to_numpy())
    return bool(covered(inside, others["start_ns"].to_numpy(), others["end_ns"].to_numpy()).any())


def _find_waits(trace: Trace, spans: Spans, threads: pl.DataFrame) -> pl.DataFrame:
    """Return the rows in which one of the threads waits for others in most of the spans; empty where none does."""
    rows = on_threads(_list_waits(trace), threads)
    inside = covered(spans, rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
    within = rows.with_columns(inside=pl.Series(inside)).filter(pl.col("inside") > 0)
    names = within.group_by("process", "thread", "name_id").agg(pl.col("inside").sum())
    most = names.filter(pl.col("inside") >= MIN_NAMED_SHARE * spans.total_ns)
    return within.join(most, on=["process", "thread", "name_id"], nulls_equal=True, how="semi")


def _list_waits(trace: Trace) -> pl.DataFrame:
    """Return all rows in which a thread may wait for another one, with their `category`."""
    columns = ("process", "thread", "start_ns", "end_ns", "name_id")
    kinds = trace.host_events.filter(pl.col("category").is_in(["other", "python"]) & pl.col("end_ns").is_not_null())
    locks = rows_named(kinds, trace.names, LOCKS).select(*columns, pl.col("category").cast(pl.String))
    ranges = trace.annotations.filter((pl.col("side") == "host") & (pl.col("end_ns") > pl.col("start_ns")))
    engines = _leave_work(trace, rows_named(ranges, trace.names, ENGINE))
    return pl.concat([locks, engines.select(*columns, category=pl.lit("range"))])


def _leave_work(trace: Trace, ranges: pl.DataFrame) -> pl.DataFrame:
    work, left = _list_work(trace), [ranges.clear()]
    for own in ranges.partition_by("process", "thread"):
        rows = on_threads(work, own.select("process", "thread").unique())
        start, end = own["start_ns"].to_numpy(), own["end_ns"].to_numpy()
        busy = covered(union(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()), start, end)
        left.append(own.filter(pl.Series(busy <= LITTLE * (end - start), dtype=pl.Boolean)))
    return pl.concat(left)


def _list_work(trace: Trace) -> pl.DataFrame:
    return trace.host_events.filter(pl.col("category").is_in(["op", "runtime"]) & pl.col("end_ns").is_not_null())
