"""What takes the time of single iterations: the first kernels and the copies of each; `metrics.top` has means."""

from __future__ import annotations

import numpy as np
import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.metrics.kernels.readable_names import name_instructions
from deepprof.metrics.loop import Loop
from deepprof.metrics.top import label_kernels, select_work, total_calls

KERNELS_EACH = 8  # names of an iteration


def kernels_of_each(trace: Trace, loop: Loop, most: int = KERNELS_EACH) -> pl.DataFrame:
    """Return `index`, `name`, `calls` and `time_ns` of the `most` kernel names that take most of each iteration.

    `time_ns` is how long at least one call of the name runs. Iterations are in order, their longest names first.
    """
    trace = name_instructions(trace)
    work = _select_each(trace, loop).filter(pl.col("activity").is_in(["kernel", "graph"]))
    label, names = label_kernels(work, trace)
    summed = work.group_by("index", label=label).agg(**total_calls())
    first = summed.sort("index", "ns", "label", descending=[False, True, False]).group_by("index", maintain_order=True)
    rows = first.head(most)
    return rows.select("index", pl.lit(names.gather(rows["label"])).alias("name"), "calls", time_ns="ns")


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
    """Return the device's events that start in an iteration, with its `index` and their duration in `ns`.

    An iteration runs until the next adjacent one starts, or to its own end where none follows directly.
    """
    table = loop.iterations
    begin = table["start_ns"].to_numpy()
    work = select_work(trace, loop.device, begin, begin + (table["busy_ns"] + table["idle_ns"]).to_numpy())
    row = np.searchsorted(begin, work["start_ns"].to_numpy(), side="right") - 1
    return work.with_columns(index=table["index"].gather(np.maximum(row, 0)))
