"""What the threads that feed a device were doing, as spans of time: loading data, allocating, waiting, other work.

Only threads that launch many of the device's kernels are read: what a logger or a loader's worker does delays nothing
by itself. Between two runtime calls such a thread counts as launching, unless the pause is so long that it must have
done something else (`pauses`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from deepprof.collectors.trace import Trace
from deepprof.metrics.breakdown.long_calls import ALLOCATOR, BUILD, find_long_calls
from deepprof.metrics.breakdown.pauses import find_other_work, find_pauses, select_long
from deepprof.metrics.names import are_named, rows_named
from deepprof.metrics.spans import NOTHING, Spans, intersect, union

Int64s = npt.NDArray[np.int64]

BEFORE_NS = -(1 << 61)  # before any record; its negative is after all records
MAX_LOADER_KERNELS = (
    8  # kernels launched within a range that only loads data (a batch that is normalised on the device)
)
SPARSE = 0.2  # of a device's idle time: a host whose records cover less of it does not show what it did in the rest
FEEDS = 0.05  # of the busiest thread's kernels: a thread with fewer does side work, like decoding images
INPUT = (
    r"(?i)data[\s_-]?load|dataiter|next_?batch|(?:load|get|fetch|read|wait_for)_?(?:train(?:ing)?_?)?batch"
    r"|\breader\b|input_pipeline|iterator_?get_?next|data_?fetch|fetch_?data"
)
DIRECTORY = r"^.*[/\\]([^/\\]+\(\d+\): )"  # of a Python frame's file: it does not show what the frame does
WAIT = r"Synchronize|^(?:cuda|hip|cu)Mem(?:cpy|set)"
UNWAITED = "Async"
BEGIN_CAPTURE, END_CAPTURE = "BeginCapture", "EndCapture"
HELD_NS = 100_000  # an asynchronous copy returns after 5 to 20 µs; a longer one waits, as from pageable memory


class HostStates(Struct, frozen=True, eq=False):
    """Spans in which the launching threads do something other than launch, and when their calls begin (sorted).

    `waiting` is inside calls that wait for the device. `other` contains pauses that are too long for launching, and the
    building of code and graphs. `without` is the time before the threads' first call and after the last. `first_use`
    and `blocked` are inside calls that last far longer than others of their name (`long_calls`). In `captures`, which
    are in `other`, too, what is launched becomes part of a graph and does not run. `recorder` is the profiler's work.
    `threads` lists the launching threads. `recorded` is the time from the first record of every thread, of any kind, to
    its last. `unrecorded` is the rest, where that is this much that the records do not show what the host did.
    """

    threads: pl.DataFrame
    input: Spans
    allocator: Spans
    waiting: Spans
    other: Spans
    without: Spans
    first_use: Spans
    blocked: Spans
    captures: Spans
    recorder: Spans
    launches_ns: Int64s
    waits_ns: Int64s
    allocations_ns: Int64s
    builds_ns: Int64s
    recorded: Spans = NOTHING
    unrecorded: Spans = NOTHING


def read_states(trace: Trace, launches: pl.DataFrame, operators: Spans | None = None) -> HostStates:
    """Return what the threads of `launches` did.

    `launches` has a row per call: launch_ns, process, thread and kernels (how many). `operators` is when the threads
    computed themselves, if the trace has no device.
    """
    threads = _feeding_threads(launches)
    rows = trace.host_events.filter(pl.col("category").is_in(["runtime", "overhead"]) & pl.col("end_ns").is_not_null())
    calls = on_threads(rows.filter(pl.col("category") == "runtime"), threads)
    waits, allocations, builds = (
        _find_waits(trace, calls),
        rows_named(calls, trace.names, ALLOCATOR),
        rows_named(calls, trace.names, BUILD),
    )
    first_uses, blocked = find_long_calls(trace, calls)
    waiting, captures, launched = spans_of(waits), _find_captures(trace, calls), launches.sort("launch_ns")
    seen = spans_of(calls) if operators is None else operators
    pauses = _find_other_work(trace, calls, threads) if operators is None else find_pauses(seen)
    return HostStates(
        threads=threads,
        input=_input_spans(trace, threads, launches),
        allocator=spans_of(allocations),
        waiting=waiting,
        other=union(*joined(spans_of(builds), captures, pauses)),
        without=_time_without(seen),
        first_use=spans_of(first_uses),
        blocked=spans_of(blocked),
        captures=captures,
        recorder=spans_of(rows.filter(pl.col("category") == "overhead")),
        launches_ns=launched["launch_ns"].to_numpy(),
        waits_ns=waits["start_ns"].to_numpy(),
        allocations_ns=allocations["start_ns"].to_numpy(),
        builds_ns=builds["start_ns"].to_numpy(),
        recorded=_find_recorded(trace, threads) if operators is None else seen,
    )


def _find_other_work(trace: Trace, calls: pl.DataFrame, threads: pl.DataFrame) -> Spans:
    """Return when the threads neither make calls nor dispatch operators for long."""
    operators = trace.host_events.filter((pl.col("category") == "op") & pl.col("end_ns").is_not_null())
    return find_other_work(trace, calls, on_threads(operators, threads))


def _feeding_threads(launches: pl.DataFrame) -> pl.DataFrame:
    """Return process and thread of every thread that launches a good part of what the busiest one launches."""
    threads = launches.group_by("process", "thread", maintain_order=True).agg(pl.col("kernels").sum())
    return threads.filter(pl.col("kernels") >= FEEDS * pl.col("kernels").max()).select("process", "thread")


def on_threads(rows: pl.DataFrame, threads: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of the given threads, in their order."""
    return rows.join(threads, on=["process", "thread"], how="semi", nulls_equal=True, maintain_order="left")


def _find_recorded(trace: Trace, threads: pl.DataFrame) -> Spans:
    """Return the time from the first to the last record of every thread: calls, operators, functions and ranges."""
    columns = ("process", "thread", "start_ns", pl.col("end_ns").fill_null(pl.col("start_ns")))
    ranges = trace.annotations.filter(pl.col("side") == "host")
    rows = pl.concat([each.select(columns) for each in (trace.host_events, ranges)])
    extents = rows.group_by("process", "thread").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    return spans_of(on_threads(extents, threads))


def with_unrecorded(states: HostStates, idle: Spans) -> HostStates:
    """Return the states with the time in which the threads were not recorded, where the device idles mostly then."""
    seen = states.recorded
    if intersect(seen, idle).total_ns >= SPARSE * idle.total_ns:
        return states
    return replace(states, unrecorded=Spans(np.append(BEFORE_NS, seen.ends), np.append(seen.starts, -BEFORE_NS)))


def _find_waits(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """Return the calls in which the host waits for the device.

    Asynchronous copies are among them that took too long, or returned only after the copy was done.
    """
    rows = rows_named(calls, trace.names, WAIT)
    returning = trace.names.gather(rows["name_id"]).str.contains(UNWAITED, literal=True).fill_null(value=False)
    copies = trace.device_events.filter(pl.col("activity") == "memcpy")
    done = copies.group_by("correlation").agg(done_ns=pl.col("end_ns").max())
    known = rows.join(done, on="correlation", how="left", maintain_order="left")
    held = (known["end_ns"] - known["start_ns"] > HELD_NS) | (known["end_ns"] >= known["done_ns"]).fill_null(
        value=False
    )
    return rows.filter(~returning | held)


def spans_of(rows: pl.DataFrame) -> Spans:
    """Return the union of the rows' times."""
    return union(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())


def _find_captures(trace: Trace, calls: pl.DataFrame) -> Spans:
    """Return when a thread captures a graph: from the call that begins it to the one that ends it."""
    rows = rows_named(calls, trace.names, f"{BEGIN_CAPTURE}|{END_CAPTURE}").sort("start_ns", maintain_order=True)
    begins = pl.Series(are_named(trace.names, rows["name_id"], BEGIN_CAPTURE), dtype=pl.Boolean)
    following = [pl.col("end_ns").shift(-1), pl.col("begins").shift(-1)]
    pairs = rows.with_columns(begins=begins).with_columns(
        [each.over("process", "thread").name.suffix("_next") for each in following]
    )
    return spans_of(pairs.filter("begins", ~pl.col("begins_next")).select("start_ns", end_ns="end_ns_next"))


def joined(*several: Spans) -> tuple[Int64s, Int64s]:
    """Return the starts and the ends of all spans."""
    return np.concatenate([s.starts for s in several]), np.concatenate([s.ends for s in several])


def _time_without(calls: Spans) -> Spans:
    """Return the time before the first call and after the last; all if no calls."""
    starts = np.array([BEFORE_NS, *calls.ends[-1:]])
    return Spans(starts, np.array([*calls.starts[:1], -BEFORE_NS]))


def long_without(states: HostStates, bounds: tuple[int, int]) -> Spans:
    """Return the time within `bounds` before the first call and after the last, where it is too long for launching."""
    return select_long(_within(states.without, bounds))


def long_unrecorded(states: HostStates, bounds: tuple[int, int]) -> Spans:
    """Return the time within `bounds` in which the threads were not recorded, where it is too long for launching."""
    return select_long(_within(states.unrecorded, bounds))


def _within(spans: Spans, bounds: tuple[int, int]) -> Spans:
    return intersect(spans, Spans(*np.array(bounds, np.int64)[:, None]))


def are_loading(names: pl.Series) -> pl.Series:
    """Return which names are of what loads data."""
    return names.str.replace(DIRECTORY, "$1").str.contains(INPUT).fill_null(value=False)


def _input_spans(trace: Trace, threads: pl.DataFrame, launched: pl.DataFrame) -> Spans:
    """Return when the threads load data, as their ranges, operators and Python frames show.

    A range in which its own thread launches many kernels is the training around the loading, and is left out; launches
    of other threads do not matter.
    """
    ids = are_loading(trace.names).arg_true()
    annotations = trace.annotations.filter((pl.col("side") == "host") & (pl.col("end_ns") > pl.col("start_ns")))
    host = trace.host_events.filter((pl.col("category") != "runtime") & pl.col("end_ns").is_not_null())
    loads = pl.col("name_id").is_in(ids.implode())
    kinds = ((annotations, loads), (host, loads | (pl.col("category") == "dataloader")))
    columns = ("process", "thread", "start_ns", "end_ns")
    rows = pl.concat([rows.filter(wanted).select(columns) for rows, wanted in kinds])
    loading = on_threads(rows, threads)
    return spans_of(loading.filter(launches_within(loading, launched) <= MAX_LOADER_KERNELS))


def launches_within(rows: pl.DataFrame, launched: pl.DataFrame) -> pl.Series:
    """Return how many kernels each row's own thread launches within its time."""
    place = ("process", "thread")
    marks = rows.with_row_index("row")
    edges = [marks.select(*place, "row", at=name, kernels=pl.lit(0, pl.Int64)) for name in ("start_ns", "end_ns")]
    calls = launched.select(
        *place, row=pl.lit(None, pl.UInt32), at="launch_ns", kernels=pl.col("kernels").cast(pl.Int64)
    )
    ordered = pl.concat([*edges, calls]).sort(*place, "at", "row", nulls_last=[False, False, False, True])
    before = ordered.with_columns(pl.col("kernels").cum_sum()).drop_nulls("row")  # a launch at a mark comes after it
    counts = before.group_by("row").agg(pl.col("kernels").max() - pl.col("kernels").min())
    return counts.sort("row")["kernels"]
