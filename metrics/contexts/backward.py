"""Which forward operator each backward one belongs to, so that its time stands under the line that made it.

PyTorch gives a differentiable operator the number that its backward node will have. An operator that is not
differentiable only reads the number of the next one that is, so of several with one number the last is meant, and of
those within each other the outermost.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.metrics.contexts.slices import HostSlices

Int64s = npt.NDArray[np.int64]

ENGINE = "autograd::engine::evaluate_function"


def find_forward(slices: HostSlices) -> Int64s:
    """Return for each slice the row of the forward operator, if it is the outermost slice of a backward node, else -1.

    The forward operator begins before its backward node does: there are no circles.
    """
    times = {"start": pl.Series(slices.start), "end": pl.Series(slices.end)}
    rows = slices.rows.select(pl.col("process", "thread").fill_null(-1), "sequence", "forward_thread", **times)
    numbered = _outermost(rows.with_row_index("row").filter(pl.col("sequence") >= 0))
    backward = numbered.filter(pl.col("forward_thread") > 0)
    forward = numbered.filter((pl.col("forward_thread") <= 0) | pl.col("forward_thread").is_null())
    pairs = _pair(backward, forward)
    found = np.full(len(slices.start), -1, np.int64)
    found[pairs["row"].to_numpy()] = pairs["forward"].to_numpy()
    return found


def _outermost(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that lie in no other one of their number and thread."""
    key = ("process", "thread", "sequence", pl.col("forward_thread").fill_null(0) > 0)
    reach = pl.col("end").cum_max().shift(1).over(key, order_by="row")
    return rows.filter((pl.col("start") >= reach).fill_null(value=True))


def _pair(backward: pl.DataFrame, forward: pl.DataFrame) -> pl.DataFrame:
    """Return `row` of backward slices and that of the last `forward` one of their number before they begin.

    The recorder numbers forward threads in its own way: the thread is the one with most of these numbers.
    """
    by = ["process", "sequence"]
    threads = backward.select(*by, "forward_thread").join(forward.select(*by, "thread").unique(), on=by)
    counts = threads.group_by("process", "forward_thread", "thread").len()
    counts = counts.sort("len", "thread", descending=[True, False])
    chosen = counts.unique(["process", "forward_thread"], keep="first", maintain_order=True).drop("len")
    wanted = backward.drop("thread").join(chosen, on=["process", "forward_thread"]).sort("start")
    made = forward.select(*by, "thread", end="end", begun="start", forward="row").sort("end")
    keys = ["process", "thread", "sequence"]
    found = wanted.join_asof(made, left_on="start", right_on="end", by=keys, check_sortedness=False)
    return found.filter(pl.col("begun") < pl.col("start")).select("row", "forward")
