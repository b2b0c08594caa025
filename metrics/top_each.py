"""What takes the time of single iterations: the first kernels and the copies of each; `metrics.top` has means."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.metrics.kernels.classify import KernelKinds
from deepprof.metrics.kernels.computed_work import list_kernels
from deepprof.metrics.kernels.kernel_titles import title_kernels
from deepprof.metrics.kernels.readable_names import name_instructions
from deepprof.metrics.loop import Loop
from deepprof.metrics.top import select_work, total_calls

Int64s = npt.NDArray[np.int64]
KERNELS_EACH = 8  # names of an iteration


def kernels_of_each(trace: Trace, loop: Loop, kinds: KernelKinds, most: int = KERNELS_EACH) -> pl.DataFrame:
    """Return `index`, `name`, `calls` and `time_ns` of the `most` kernel names that take most of each iteration.

    `time_ns` is their part of the time, as in `metrics.top`. Iterations are in order, their longest names first.
    """
    trace = name_instructions(trace)
    work = list_kernels(trace, kinds, loop.device, _windows_of(loop))
    label, names = title_kernels(work, trace, kinds)
    each = work.with_columns(label=label, index=loop.iterations["index"].gather(work["window"]))
    summed = each.group_by("index", "label").agg(calls=pl.len(), ns=pl.col("part_ns").sum())
    first = summed.sort("index", "ns", "label", descending=[False, True, False]).group_by("index", maintain_order=True)
    rows = first.head(most)
    title = pl.lit(names.gather(rows["label"])).alias("name")
    return rows.select("index", title, "calls", time_ns=pl.col("ns").round().cast(pl.Int64))


def copies_of_each(trace: Trace, loop: Loop) -> pl.DataFrame:
    """Return `index`, `direction`, `calls`, `nbytes` and `time_ns` of the copies of each iteration.

    `direction` and `nbytes` are null where they are not recorded.
    """
    work = _select_each(trace, loop).filter(pl.col("activity") == "memcpy")
    nbytes = pl.col("nbytes")
    rows = work.group_by("index", direction=pl.col("copy_kind").cast(pl.String)).agg(
        nbytes=pl.when(nbytes.is_not_null().any()).then(nbytes.cast(pl.Int64, strict=False).sum()), **total_calls()
    )
    return rows.sort("index", "direction").select("index", "direction", "calls", "nbytes", time_ns="ns")


def _select_each(trace: Trace, loop: Loop) -> pl.DataFrame:
    """Return the device's events that start in an iteration, with its `index` and their duration in `ns`."""
    begin, until = _windows_of(loop)
    work = select_work(trace, loop.device, begin, until)
    row = np.searchsorted(begin, work["start_ns"].to_numpy(), side="right") - 1
    return work.with_columns(index=loop.iterations["index"].gather(np.maximum(row, 0)))


def _windows_of(loop: Loop) -> tuple[Int64s, Int64s]:
    """Return starts and ends: an iteration runs until the next adjacent one, or to its own end where none follows."""
    begin = loop.iterations["start_ns"].to_numpy()
    return begin, begin + (loop.iterations["busy_ns"] + loop.iterations["idle_ns"]).to_numpy()
