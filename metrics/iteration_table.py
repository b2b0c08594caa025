"""The numbers of a loop: the per-iteration table and Table III (Gu et al., section V)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from deepprof.collectors.trace import WORK_ACTIVITIES, Trace
from deepprof.metrics.iteration import ITERATIONS, LOOP_METRICS, LoopMetrics, Spread
from deepprof.metrics.sequence import Sequence
from deepprof.metrics.series.statistics import bootstrap_median
from deepprof.metrics.spans import Spans, covered, union
from deepprof.mining.iterations import Iterations

Int64s = npt.NDArray[np.int64]

SLOW_START = 1.25  # a leading iteration is warm-up when it needs this much longer than the median of the others
UNSTEADY = 2.0  # times the usual work of an iteration, or that part of it: as much is not its work
FALLING, FEWEST_OF_THIRD = 1.15, 2  # times the last third's time, of this many iterations: the work shrinks
ALIKE = 1.05  # times the longest, or less than the shortest: an iteration at the capture's end is as the others
FEW_LEFT, SLOW_OF_FEW = 3, 2.0  # with so few it must be slower: three iterations are the commonest capture


class _Bounds(Struct, frozen=True, eq=False):
    """When iterations start, when their last kernels end, and until when they run, arrays of one length.

    An iteration runs until the next adjacent one starts; one that no other follows directly ends with its last kernel.
    """

    start: Int64s
    end: Int64s
    until: Int64s
    adjacent: npt.NDArray[np.bool_]  # another iteration follows directly


class Activity(Struct, frozen=True, eq=False):
    """The work on all streams of a device, without waits: events, and copies from the host, both sorted by start."""

    start_ns: Int64s
    end_ns: Int64s
    htod_start_ns: Int64s
    htod_end_ns: Int64s
    htod_nbytes: Int64s

    @classmethod
    def of(cls, trace: Trace, device: int) -> Activity:
        """Return the activity of a device of a trace."""
        events = trace.device_events.filter((pl.col("device") == device) & pl.col("activity").is_in(WORK_ACTIVITIES))
        htod = events.filter(pl.col("copy_kind") == "HtoD")
        nbytes = htod["nbytes"].fill_null(0).cast(pl.Int64)
        start, end, copying, copied = (
            rows[name].to_numpy() for rows in (events, htod) for name in ("start_ns", "end_ns")
        )
        return cls(start, end, copying, copied, nbytes.to_numpy())


def _bound(sequence: Sequence, found: Iterations) -> _Bounds:
    """Return the bounds of iterations that are given in symbols; overlapping kernels make no interval negative."""
    start, end = sequence.start_ns[found.first], _last_end(sequence, found)
    follows = (found.end[:-1] == found.first[1:]) & ~np.isin(found.first[1:], sequence.breaks)
    adjacent = np.append(follows, False)[: len(start)]
    until = np.maximum(np.where(adjacent, np.append(start[1:], 0)[: len(start)], end), start)
    return _Bounds(start, np.minimum(end, until), until, adjacent)


def measure_iterations(trace: Trace, sequence: Sequence, found: Iterations) -> pl.DataFrame:
    """Return one row per iteration with the schema `ITERATIONS`.

    Copies, assist and communication streams are attributed by time.
    """
    table = measure_rows(Activity.of(trace, sequence.device), sequence, found)
    columns = dict(table.values) | {
        "index": np.arange(len(found.first)),
        "warmup": np.zeros(len(found.first), np.bool_),
    }
    measured = as_table(replace(table, values=columns), ITERATIONS)
    return measured.with_columns(warmup=pl.col("complete") & (pl.col("index") < warmup_length(measured)))


def measure_coverage(
    trace: Trace, device: int, table: pl.DataFrame, activities: Collection[str] = WORK_ACTIVITIES
) -> float:
    """Return the share of the time of a device's activities in the recording that is in iterations (`ITERATIONS`)."""
    events = trace.device_events.filter((pl.col("device") == device) & pl.col("activity").is_in(activities))
    worked = union(events["start_ns"].to_numpy(), events["end_ns"].to_numpy())
    start = table["start_ns"].to_numpy()
    inside = covered(worked, start, start + (table["busy_ns"] + table["idle_ns"]).to_numpy())
    return float(inside.sum()) / worked.total_ns if worked.total_ns else 0.0


def measure_steadiness(table: pl.DataFrame) -> float:
    """Return the share of the complete iterations in which the device works about as long as in the median one."""
    busy = table.filter("complete")["busy_ns"]
    usual = float(busy.median() or 0)  # type: ignore[arg-type]
    near = busy.is_between(usual / UNSTEADY, usual * UNSTEADY)
    return float(near.mean()) if len(busy) else 0.0  # type: ignore[arg-type]


def measure_again(trace: Trace, sequence: Sequence, table: pl.DataFrame) -> pl.DataFrame:
    """Return iterations with what `trace`, which may be a part of theirs, has in them; the schema is `ITERATIONS`.

    Their bounds, and what follows from these, stay; the kernels of `sequence`, their stream in `trace`, and the work of
    the device are measured again, over busy and idle time together.
    """
    start, end = table["start_ns"].to_numpy(), table["end_ns"].to_numpy()
    until = start + (table["busy_ns"] + table["idle_ns"]).to_numpy()
    at = _Bounds(start, np.minimum(end, until), until, table["interval_ns"].is_not_null().to_numpy())
    kernels = np.minimum(_count_between(sequence.start_ns, start, until), table["kernels"].to_numpy())
    columns = {"kernels": kernels, **_measure_activity(Activity.of(trace, sequence.device), at)}
    ratio = _masked(columns.pop("overlap_ratio"), table["overlap_ratio"].is_not_null().to_numpy())
    again = table.with_columns(overlap_ratio=ratio, **{name: pl.Series(values) for name, values in columns.items()})
    return again.cast(dict(ITERATIONS))  # type: ignore[arg-type]


class IterationColumns(Struct, frozen=True, eq=False):
    """The columns of `ITERATIONS` except index and warm-up, as arrays of one length.

    `iteration_ns` is valid only where the iteration is complete and `adjacent` to the next, `interval_ns` and
    `_overlap_ratio` where it is adjacent.
    """

    values: Mapping[str, npt.NDArray[Any]]
    adjacent: npt.NDArray[np.bool_]


def measure_rows(activity: Activity, sequence: Sequence, found: Iterations) -> IterationColumns:
    """Return the measured columns of every iteration, from the data of its stream and of its device."""
    at, last = _bound(sequence, found), _last_end(sequence, found)
    rows = {
        "start_ns": at.start,
        "end_ns": last,
        "kernels": found.end - found.first,
        "edits": found.edits,
        "complete": found.complete,
        "iteration_ns": at.until - at.start,
        "operation_ns": last - at.start,
        "interval_ns": at.until - at.end,
        **_measure_activity(activity, at),
    }
    return IterationColumns(rows, at.adjacent)


def as_table(measured: IterationColumns, schema: pl.Schema) -> pl.DataFrame:
    """Return the columns of a schema as a table, null where a value is not valid."""
    adjacent = measured.adjacent
    stands = dict.fromkeys(("interval_ns", "overlap_ratio"), adjacent)
    stands["iteration_ns"] = adjacent & measured.values["complete"]
    columns = {name: measured.values[name] for name in schema}
    table = pl.DataFrame({name: _masked(columns[name], stands.get(name)) for name in schema})
    return table if table.schema == schema else table.cast(schema)


def _measure_activity(seen: Activity, at: _Bounds) -> dict[str, npt.NDArray[Any]]:
    """Return the columns on what all streams of the device did during each iteration."""
    copying = union(seen.htod_start_ns, seen.htod_end_ns)
    busy = covered(union(seen.start_ns, seen.end_ns), at.start, at.until)
    return {
        "events": _count_between(seen.start_ns, at.start, at.until),
        "overlap_ratio": _overlap_ratio(copying, at.end, at.until),
        "htod_ns": covered(copying, at.start, at.until),
        "htod_bytes": _sum_between(seen, at.start, at.until),
        "busy_ns": busy,
        "idle_ns": at.until - at.start - busy,
    }


def _last_end(sequence: Sequence, found: Iterations) -> Int64s:
    """Return when the last of every iteration's kernels ended (not always the last to start)."""
    reach = np.maximum.accumulate(sequence.end_ns)
    return reach[found.end - 1] if len(found.end) else np.zeros(0, np.int64)


def _masked(values: npt.NDArray[Any], stands: npt.NDArray[np.bool_] | None) -> pl.Series:
    """Return the values, null where `stands` is false; None: all are valid."""
    column = pl.Series(values)
    return column if stands is None else column.set(pl.Series(~stands), None)


def _count_between(times: Int64s, start: Int64s, end: Int64s) -> Int64s:
    """Return how many of the sorted times are in each [start, end)."""
    return np.asarray(np.searchsorted(times, end) - np.searchsorted(times, start))


def _sum_between(seen: Activity, start: Int64s, end: Int64s) -> Int64s:
    """Return the bytes of the copies from the host that begin in each [start, end)."""
    sums, times = np.append(0, np.cumsum(seen.htod_nbytes)), seen.htod_start_ns
    return np.asarray(sums[np.searchsorted(times, end)] - sums[np.searchsorted(times, start)])


def _overlap_ratio(copying: Spans, start: Int64s, end: Int64s) -> npt.NDArray[np.float64]:
    """Return HtoD copy time inside each interval over the interval; 0 for an empty one."""
    ratio: npt.NDArray[np.float64] = covered(copying, start, end) / np.maximum(end - start, 1)
    return ratio


def warmup_length(table: pl.DataFrame) -> int:
    """Return how many leading iterations are warm-up: slower than the rest, or edited by autotuning.

    At most half of them, and never this many that fewer than two remain; of few iterations only far slower ones count.
    Where the rest gets faster and faster, the work shrinks, and none is warm-up.
    """
    complete = table.filter("complete")
    if complete.height < 3:
        return 0
    interval = complete["interval_ns"]
    duration = complete["operation_ns"] + interval.fill_null(interval.median() or 0)  # the last interval is unknown
    usual = float(duration.tail((complete.height + 1) // 2).median())  # type: ignore[arg-type]
    above = SLOW_START if complete.height > FEW_LEFT else SLOW_OF_FEW
    slow = ((duration > above * usual) | find_edited(complete)).to_list()
    leading = slow.index(False) if False in slow else 0
    leading = min(leading, complete.height // 2, complete.height - 2)
    return int(complete["index"][leading]) if leading and not _keeps_falling(duration[leading:]) else 0


def _keeps_falling(durations: pl.Series) -> bool:
    """Return whether the first third of iterations needs clearly longer than the last third."""
    third = len(durations) // 3
    if third < FEWEST_OF_THIRD:
        return False
    early, late = (float(part.median() or 0) for part in (durations.head(third), durations.tail(third)))  # type: ignore[arg-type]
    return early >= FALLING * late


def is_alike(value: float, others: pl.Series) -> bool:
    """Return whether a time is among others, or near them."""
    least, most = float(others.min()), float(others.max())  # type: ignore[arg-type]
    return least / ALIKE <= value <= most * ALIKE


def find_edited(table: pl.DataFrame) -> pl.Series:
    """Return which iterations have far more edits than complete ones usually have, as autotuning causes them."""
    median = table.filter("complete")["edits"].median()
    edited: pl.Series = table["edits"] > max(8, 4 * int(median or 0))  # type: ignore[arg-type]
    return edited


def summarize(table: pl.DataFrame) -> LoopMetrics:
    """Return Table III over the complete iterations after warm-up.

    The last one, which no other follows, counts only where it lasts as long as the others: the capture's end may have
    added to it, or taken from it.
    """
    used = table.filter(pl.col("complete") & ~pl.col("warmup"))
    before = used["operation_ns"].head(-1)
    if len(before) > 1 and used["iteration_ns"][-1] is None and not is_alike(used["operation_ns"][-1], before):
        used = used.head(-1)
    values = used.select(**{name: each.value for name, each in LOOP_METRICS.items()}).row(0, named=True)
    return LoopMetrics(
        **{name: value if name.endswith("_ratio") else round_to_int(value) for name, value in values.items()},
        iteration_ns=_spread(used["iteration_ns"].drop_nulls()),
        warmup_excluded=table.filter(pl.col("complete") & pl.col("warmup")).height,
    )


def _spread(values: pl.Series) -> Spread | None:
    """Return median, 5th and 95th percentile and the median's confidence interval, or None without values."""
    if not len(values):
        return None
    median, p5, p95 = (round(float(np.quantile(values.to_numpy(), q))) for q in (0.5, 0.05, 0.95))
    low, high = bootstrap_median(values.to_numpy()) or (None, None)
    return Spread(median, p5, p95, round_to_int(low), round_to_int(high))


def round_to_int(value: object) -> int | None:
    """Return the nearest integer, None for None."""
    return None if value is None else round(float(value))  # type: ignore[arg-type]
