"""The iteration as a list of kernels: the kernel at every position of the main stream, and its duration."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.trace import Trace
from deepprof.metrics.loop import Loop

MAX_TEMPLATE_ITERATIONS = 64  # iterations: more would not change a median, and each costs a row per kernel
CELLS = 1 << 22  # kernels of all these iterations together


class UsualIteration(Struct, frozen=True, eq=False):
    """The kernels of a usual iteration; `name_ids` are the trace's, `durations_ns` medians; arrays of one length."""

    name_ids: npt.NDArray[np.uint32]
    durations_ns: npt.NDArray[np.float64]


def take_template(loop: Loop, trace: Trace) -> UsualIteration:
    """Return the kernels of the loop's typical usual iteration, each with its median duration in similar iterations."""
    rows = trace.device_events.filter(
        (pl.col("device") == loop.device)
        & (pl.col("stream") == loop.stream)
        & pl.col("activity").is_in(["kernel", "graph"])
    )
    alike = choose_alike(loop.usual)
    first = np.searchsorted(rows["start_ns"].to_numpy(), alike["start_ns"].to_numpy())
    kernels = int(alike["kernels"][0])
    at = np.minimum(first[:, None] + np.arange(kernels), rows.height - 1)
    names = rows["name_id"].to_numpy()[at]
    durations = (rows["end_ns"] - rows["start_ns"]).to_numpy()[at]
    return UsualIteration(names[0], median_where(durations, names == names[0]))


def choose_alike(usual: pl.DataFrame) -> pl.DataFrame:
    """Return the iterations with the most common number of kernels, the most typical first.

    The most typical one has the median time of those with the fewest edits.
    """
    counts = usual["kernels"].value_counts().sort("count", "kernels", descending=[True, False])
    rows = usual.filter(pl.col("kernels") == counts["kernels"][0]).sort("edits", "iteration_ns")
    middle = ((rows["edits"] == rows["edits"][0]).sum() - 1) // 2
    others = rows.with_row_index("row").filter(pl.col("row") != middle).drop("row")
    most = max(1, min(MAX_TEMPLATE_ITERATIONS, CELLS // max(1, int(counts["kernels"][0]))))
    return pl.concat([rows[middle : middle + 1], others.gather_every(max(1, -(-others.height // most)))])


def median_where(values: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Return each column's median over its valid rows, of which there is at least one."""
    ordered = np.sort(np.where(valid, values, np.iinfo(np.int64).max), axis=0)
    count, column = valid.sum(axis=0), np.arange(values.shape[1])
    return np.asarray((ordered[(count - 1) // 2, column] + ordered[count // 2, column]) / 2)
