"""Kernels that run one after the other on a stream, and what of their time a kernel made of several would keep.

A compiler joins the functions of each element, casts, copies and reductions that follow each other on the same data: of
what they move only the first read and the last write remain.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.metrics.kernels.loop_work import LoopWork
from deepprof.metrics.operators import is_stand_in

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

JOINED = (
    "elementwise",
    "cast",
    "reduction",
    "random",
    "layout",
)  # what a compiler fuses with what is before or behind it
UNCLEAR = ("cast",)  # on a CPU, where the operator may do nothing, or copy from a device
# Libraries of operators that run as they are called; compilers fuse by themselves, libraries of products have none.
OPERATOR_LIBRARIES = r"^(?:PyTorch ATen|TensorFlow)"
SINGLE = r"^wrapped_"  # XLA's name of an instruction in a program with no other that could be joined to it
COMPILED = r"^XLA"  # operators, too, where each is a program of its own
EXECUTION = r"^GpuExecutable::Execute|^TpuExecutable::Execute"  # ranges of the host around one program of XLA
MODULES = "XlaModule"  # the NVTX domain in which XLA names the program that runs
FEW = 2.0  # kernels for each program: a block of a model has more
FOREACH = ("foreach", "fused")  # algorithms over lists of tensors
ORDER = ("window", "stream", "start_ns", "event")


def list_typed(seen: LoopWork) -> pl.DataFrame:
    """Return the kernels of the usual iterations with their kinds, stream by stream in the order of time.

    The columns are those of `list_kernels` and of the table of kinds; `of_operator` is whether a single operator of a
    framework launched it, so that a compiler could fuse it, and `operation` a number of what it computes.
    """
    compiled = pl.col("library").str.contains(COMPILED)
    joined = JOINED if not is_stand_in(seen.trace) else [each for each in JOINED if each not in UNCLEAR]
    single = pl.col("name").str.contains(SINGLE) & (pl.col("category") == "elementwise")
    alone = (pl.lit(_are_single_programs(seen.trace)) | single) & compiled
    kinds = seen.kinds.table.with_columns(
        compiled=compiled.fill_null(value=False),
        of_operator=pl.col("category").is_in(joined)
        & (pl.col("library").str.contains(OPERATOR_LIBRARIES) | alone).fill_null(value=False)
        & ~pl.col("algorithm").is_in(FOREACH).fill_null(value=False),
    ).with_row_index("kind")
    rows = seen.kernels.join(kinds.cast({"kind": pl.Int64}), on="kind", how="left", maintain_order="left")
    # XLA numbers its kernels in each program anew: equal names are no equal operations.
    own = pl.when("compiled").then(-2 - pl.col("event").cast(pl.Int64)).otherwise("kind")
    return rows.with_columns(
        pl.col("category").fill_null("unknown"), pl.col("of_operator").fill_null(value=False), operation=own
    ).sort(ORDER, maintain_order=True)


def _are_single_programs(trace: Trace) -> bool:
    """Return whether XLA's programs have hardly more than one kernel each: every operator is compiled for itself."""
    named = trace.names.gather(trace.host_events["name_id"]).str.contains(EXECUTION)
    programs = int(named.sum()) + trace.annotations.filter(pl.col("domain") == MODULES).height
    kernels = trace.device_events.filter(pl.col("activity").is_in(["kernel"])).height
    return programs > 0 and kernels <= FEW * programs


def sum_typed(seen: LoopWork, rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows of `list_typed` added up as in `Work.kernels`, per iteration, the one with most time first."""
    many = max(1, seen.iterations)
    keys = ("kind", "name", "operator", "category", "library", "algorithm", "sure")
    sums = rows.group_by(keys).agg(
        kernels=pl.len() / many, time_ns=pl.col("part_ns").sum() / many, mean_ns=pl.col("ns").mean()
    )
    return sums.sort("time_ns", "kind", descending=[True, False])


def number_runs(typed: pl.DataFrame, wanted: Bools) -> Int64s:
    """Return for each row of `list_typed` the number of its run of `wanted` ones, -1 for those that are not wanted.

    A run ends at another kernel, at the end of its stream and at that of its iteration.
    """
    place = typed.select(pl.struct("window", "stream").rle_id()).to_series().to_numpy()
    begins = wanted & ~(np.append(False, wanted[:-1]) & (place == np.append(-1, place[:-1])))
    return np.where(wanted, np.cumsum(begins) - 1, -1)


def widen(marked: Bools, by: int) -> Bools:
    """Return the marks with so many rows before and behind each."""
    sums = np.concatenate([[0], np.cumsum(marked)])
    rows = np.arange(len(marked))
    return np.asarray(sums[np.minimum(rows + by + 1, len(marked))] > sums[np.maximum(rows - by, 0)])
