"""Totals of an iteration over all streams of the device: kernels by short name, copies by direction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import polars as pl

from deepprof.collectors.names.functors import shorten_with_function
from deepprof.comparison.pairing import RunLoop
from deepprof.comparison.result import CopyChange, KernelChange
from deepprof.metrics.loop import Loop
from deepprof.metrics.top import select_work

MOST_NAMES = 5000  # names are shortened one by one; only a contrived trace has more
OTHERS = "(others)"
Totals = Mapping[str, tuple[float, int, int]]  # count, time and bytes per iteration


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
    """Return the totals of each short name."""
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
    """Return the copies of each direction, and memsets, that either run has."""
    before, after = _sum_copies(a), _sum_copies(b)
    none = (0.0, 0, 0)
    pairs = {name: (before.get(name, none), after.get(name, none)) for name in sorted({**before, **after})}
    return tuple(CopyChange(name, x[0], y[0], x[1], y[1], x[2], y[2]) for name, (x, y) in pairs.items())


def _sum_copies(side: RunLoop) -> Totals:
    """Return the totals of each direction."""
    copies = _work_of(side).filter(pl.col("activity").is_in(["memcpy", "memset"]))
    kind = pl.when(pl.col("activity") == "memset").then(pl.lit("memset"))
    direction = kind.otherwise(pl.col("copy_kind").cast(pl.String).fill_null("unknown"))
    rows = copies.group_by(direction=direction).agg(pl.len(), pl.col("ns").sum(), pl.col("nbytes").fill_null(0).sum())
    return _per_iteration({name: (count, ns, nbytes) for name, count, ns, nbytes in rows.iter_rows()}, side.loop)


def _per_iteration(totals: Mapping[str, tuple[int, int, int]], loop: Loop) -> Totals:
    """Return the totals over the number of usual iterations."""
    count = max(1, loop.usual.height)
    return {
        name: (round(n / count, 3), round(ns / count), round(size / count)) for name, (n, ns, size) in totals.items()
    }
