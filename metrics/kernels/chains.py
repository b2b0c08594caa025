"""Chains of operators on the same data: their time, and how much of it one kernel would still need."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.metrics.kernels.operator_runs import number_runs

Bools = npt.NDArray[np.bool_]

FEWEST = 2  # kernels that make a chain
# Of the longest kernel's time: it moves three tensors at most as a rule, and one made of all moves two, the first and
# the last of the chain. Compiled code also computes faster than operators do: at least half of the time stays.
KEPT, LEAST_KEPT = 2 / 3, 1 / 2


def find_chains(typed: pl.DataFrame, claimed: Bools) -> pl.DataFrame:
    """Return the chains of operators that a compiler could fuse, in the order of time.

    `typed` are kernels as `LoopWork.typed` returns them; the time of those that are `claimed` by another cause does not
    count, but they do not end a chain. A row has `run` (its number), `kernels`, `different` (of them: the same
    operator on several tensors is no chain), `taken_ns`, `longest_ns` and `saved_ns`, what one kernel for all would
    save: it needs two thirds of the longest, and with several tensors of one of the operations on all of them.
    """
    numbers = number_runs(typed, typed["of_operator"].to_numpy())
    rows = typed.with_columns(run=pl.Series(numbers)).filter((pl.col("run") >= 0) & ~pl.Series(claimed))
    sums = rows.group_by("run", maintain_order=True).agg(
        kernels=pl.len(),
        different=pl.col("operation").n_unique(),
        taken_ns=pl.col("part_ns").sum(),
        longest_ns=pl.col("part_ns").max(),
    )
    one = pl.max_horizontal("longest_ns", pl.col("taken_ns") / pl.col("different"))
    taken = pl.col("taken_ns")
    return sums.filter(pl.col("different") >= FEWEST).with_columns(
        saved_ns=taken - KEPT * one, most_ns=taken - LEAST_KEPT * one
    )


def mark_chains(typed: pl.DataFrame, chains: pl.DataFrame, claimed: Bools) -> Bools:
    """Return which rows of `typed` belong to one of these chains."""
    numbers = number_runs(typed, typed["of_operator"].to_numpy())
    return np.isin(numbers, chains["run"].to_numpy()) & ~claimed
