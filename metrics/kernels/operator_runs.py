"""Kernels that run one after the other on a stream, and what of their time a kernel made of several would keep.

A compiler joins the functions of every element, casts, copies and reductions that follow each other on the same data:
of what they move only the first read and the last write remain."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.metrics.kernels.loop_work import LoopWork

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def sum_typed(seen: LoopWork, rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows of `LoopWork.typed` added up as in `Work.kernels`, per iteration, the one with most time first."""
    many = max(1, seen.iterations)
    keys = ("kind", "name", "operator", "category", "library", "algorithm", "sure")
    sums = rows.group_by(keys).agg(
        kernels=pl.len() / many, time_ns=pl.col("part_ns").sum() / many, mean_ns=pl.col("ns").mean()
    )
    return sums.sort("time_ns", "kind", descending=[True, False])


def number_runs(typed: pl.DataFrame, wanted: Bools) -> Int64s:
    """Return for each row of `LoopWork.typed` the number of its run of `wanted` ones, -1 for those that are not wanted.

    A run ends at another kernel, at the end of its stream and at that of its iteration.
    """
    place = typed.select(pl.struct("window", "stream").rle_id()).to_series().to_numpy()
    begins = wanted & ~(np.append(False, wanted[:-1]) & (place == np.append(-1, place[:-1])))
    return np.where(wanted, np.cumsum(begins) - 1, -1)


def widen(marked: Bools, by: int) -> Bools:
    """Return the marks with this many rows before and behind each."""
    sums = np.concatenate([[0], np.cumsum(marked)])
    rows = np.arange(len(marked))
    return np.asarray(sums[np.minimum(rows + by + 1, len(marked))] > sums[np.maximum(rows - by, 0)])
