"""What two loops are compared by: their times and parts, what the device computes, kernels by name, and copies.

Kernels and copies are those of all streams of the device; all that is added up is in whole nanoseconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.names.functors import shorten_with_function
from deepprof.comparison.pairing import RunLoop
from deepprof.metrics.breakdown.costs import divide
from deepprof.metrics.breakdown.parts import COUNTS, PART_NAMES
from deepprof.metrics.kernels.computed_work import Work, round_parts
from deepprof.metrics.kernels.kernel_titles import OTHERS
from deepprof.metrics.loop import Loop
from deepprof.metrics.series.statistics import bootstrap_change
from deepprof.metrics.top import select_work
from deepprof.results.comparison_result import (
    CopyChange,
    CountChange,
    KernelChange,
    PartChange,
    TimeChange,
    Verdict,
    WorkChange,
    WorkInBoth,
)

SAME = 0.01  # two runs of one program on one machine differ this much by clocks and heat alone
KINDS = ("category", "precision", "unit")
MOST_NAMES = 5000  # names are shortened one by one; only a contrived trace has more
Totals = Mapping[str, tuple[float, int, int]]  # count, time and bytes per iteration


def compare_times(a_ns: npt.ArrayLike, b_ns: npt.ArrayLike) -> TimeChange:
    """Return the change from the iteration times `a_ns` to `b_ns`, of which there is at least one each."""
    a, b = (np.asarray(times, np.float64) for times in (a_ns, b_ns))
    before, after = float(np.median(a)), float(np.median(b))
    ratio = after / max(before, 1.0)
    interval = bootstrap_change(a, b)
    low, high = (None, None) if interval is None else (1 + interval[0], 1 + interval[1])
    return TimeChange(
        a_ns=round(before),
        b_ns=round(after),
        a_iterations=len(a),
        b_iterations=len(b),
        ratio=ratio,
        low=low,
        high=high,
        verdict=_judge(ratio, low, high),
    )


def _judge(ratio: float, low: float | None, high: float | None) -> Verdict:
    if abs(ratio - 1) < SAME:
        return "same"
    if low is not None and low > 1:
        return "slower"
    return "faster" if high is not None and high < 1 else "unclear"


def compare_parts(a: pl.DataFrame, b: pl.DataFrame) -> tuple[PartChange, ...]:
    """Return the change of every part of the mean of `Loop.usual`; they add up to that of the iteration time."""
    before, after = (divide(_sum_columns(rows), rows.height) for rows in (a, b))
    return tuple(PartChange(name, before[name], after[name]) for name in PART_NAMES)


def _sum_columns(rows: pl.DataFrame) -> dict[str, int]:
    return {name: int(rows[name].fill_null(0).sum()) for name in PART_NAMES}


def compare_counts(a: pl.DataFrame, b: pl.DataFrame) -> tuple[CountChange, ...]:
    """Return the change of what the host does per iteration."""
    return tuple(CountChange(name, _average(a[name]), _average(b[name])) for name in COUNTS)


def _average(values: pl.Series) -> float:
    """Return the mean, 0 where nothing is available."""
    return round(float(values.fill_null(0).mean() or 0), 3)  # type: ignore[arg-type]


def compare_work(a: Loop, b: Loop) -> WorkInBoth:
    """Return the kinds of work of the usual iterations of two loops, in whole nanoseconds that add up."""
    before, after = _read_times(a.work), _read_times(b.work)
    kinds = ((kind, before.get(kind, 0), after.get(kind, 0)) for kind in {**before, **after})
    rows = [WorkChange(category, precision, unit, x, y) for (category, precision, unit), x, y in kinds]
    return WorkInBoth(
        rows=tuple(sorted(rows, key=_order)),
        a_matrix_unit_ratio=None if a.work is None else a.work.matrix_unit_ratio,
        b_matrix_unit_ratio=None if b.work is None else b.work.matrix_unit_ratio,
    )


def _order(row: WorkChange) -> tuple[Any, ...]:
    """Return what rows are sorted by: the difference, the time, the kind."""
    return -abs(row.difference_ns), -max(row.a_ns, row.b_ns), row.category, row.precision or "", row.unit or ""


def _read_times(work: Work | None) -> Mapping[tuple[Any, Any, Any], int]:
    if work is None:
        return {}
    times = work.table["time_ns"].to_numpy()
    return dict(zip(work.table.select(KINDS).rows(), round_parts(times, work.time_ns), strict=True))


def _work_of(side: RunLoop) -> pl.DataFrame:
    """Return the device's kernels, copies and memsets that begin in a usual iteration, with their time in `ns`."""
    begin = side.loop.usual["start_ns"].to_numpy()
    return select_work(side.trace, side.loop.device, begin, begin + side.loop.usual["iteration_ns"].to_numpy())


def compare_kernels(a: RunLoop, b: RunLoop) -> tuple[KernelChange, ...]:
    """Return the kernels whose count or time changed, the largest difference first.

    Times are sums: kernels that overlap are both counted.
    """
    before, after = _sum_kernels(a), _sum_kernels(b)
    none = (0.0, 0, 0)
    pairs = {name: (before.get(name, none), after.get(name, none)) for name in {**before, **after}}
    rows = [KernelChange(name, x[0], y[0], x[1], y[1]) for name, (x, y) in pairs.items() if x != y]
    return tuple(sorted(rows, key=lambda row: (-abs(row.difference_ns), row.name)))


def _sum_kernels(side: RunLoop) -> Totals:
    kernels = _work_of(side).filter(pl.col("activity").is_in(["kernel", "graph"]))
    by_id = (
        kernels.group_by("name_id").agg(pl.len(), pl.col("ns").sum()).sort("ns", "name_id", descending=[True, False])
    )
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    names = side.trace.names.gather(by_id["name_id"]).fill_null("").to_list()
    for row, (name, count, ns) in enumerate(zip(names, by_id["len"], by_id["ns"], strict=True)):
        total = totals[shorten_with_function(name) if row < MOST_NAMES else OTHERS]
        total[0], total[1] = total[0] + count, total[1] + ns
    return _per_iteration({name: (count, ns, 0) for name, (count, ns) in totals.items()}, side.loop)


def compare_copies(a: RunLoop, b: RunLoop) -> tuple[CopyChange, ...]:
    """Return the copies of every direction, and memsets, that either run has."""
    before, after = _sum_copies(a), _sum_copies(b)
    none = (0.0, 0, 0)
    pairs = {name: (before.get(name, none), after.get(name, none)) for name in sorted({**before, **after})}
    return tuple(CopyChange(name, x[0], y[0], x[1], y[1], x[2], y[2]) for name, (x, y) in pairs.items())


def _sum_copies(side: RunLoop) -> Totals:
    copies = _work_of(side).filter(pl.col("activity").is_in(["memcpy", "memset"]))
    kind = pl.when(pl.col("activity") == "memset").then(pl.lit("memset"))
    direction = kind.otherwise(pl.col("copy_kind").cast(pl.String).fill_null("unknown"))
    rows = copies.group_by(direction=direction).agg(pl.len(), pl.col("ns").sum(), pl.col("nbytes").fill_null(0).sum())
    return _per_iteration({name: (count, ns, nbytes) for name, count, ns, nbytes in rows.iter_rows()}, side.loop)


def _per_iteration(totals: Mapping[str, tuple[int, int, int]], loop: Loop) -> Totals:
    count = max(1, loop.usual.height)
    return {
        name: (round(n / count, 3), round(ns / count), round(size / count)) for name, (n, ns, size) in totals.items()
    }
