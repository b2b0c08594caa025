"""What iterations leave behind, line by line: memory that is allocated in an iteration and never released.

A leak leaves something in nearly all iterations. A cache that fills and stops, the optimizer's state, gradients that
are kept for some iterations, a queue of batches: all of these leave something in few, or release it later. What the
last iterations leave may be released after the recording, and is not counted.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.table_schema import TableSchema
from deepprof.collectors.trace import Trace
from deepprof.metrics.loop import Loop
from deepprof.metrics.memory.device_memory import DeviceMemory
from deepprof.metrics.memory.floors import begins

Int64s = npt.NDArray[np.int64]

I64, F64, TEXT = pl.Int64(), pl.Float64(), pl.String()

FEWEST_LEAVING = 6  # iterations that are examined: as for other growth
STILL_OPEN = 2  # last iterations that are not: what they leave may be released after the recording
STEADY = 0.9  # of the iterations leave something: a cache that fills, or contains the last ones, does so in fewer

GROWTH = TableSchema.of(
    "What one line of code leaves in use, iteration after iteration; null where the line is not known.",
    {
        "function": (TEXT, "the innermost function of the user's or a library's code"),
        "file": (TEXT, "its file"),
        "line": (pl.UInt32(), "its line"),
        "nbytes": (F64, "what it leaves per iteration"),
        "iterations": (I64, "of how many iterations something is never released"),
        "is_steady": (pl.Boolean(), "whether nearly all of at least six iterations leave something"),
        "looked_at": (I64, "how many iterations were looked at"),
        "blocks": (F64, "blocks per iteration"),
        "operator": (TEXT, "the outermost operator with most of it; of a backward pass its forward one"),
        "layer": (TEXT, "the layer with most of it"),
    },
)
LINE = ("function", "file", "line")


def list_growth(memory: DeviceMemory) -> pl.DataFrame:
    """Return what each line leaves in use, as a table `GROWTH`, steady lines first, then the largest."""
    if memory.loop is None:
        return pl.DataFrame(schema=GROWTH)
    begin = _begins_of_rest(memory.loop, memory.known.trace)
    looked_at = max(0, len(begin) - 1 - STILL_OPEN)
    if not looked_at:
        return pl.DataFrame(schema=GROWTH)
    left = memory.blocks.filter(pl.col("end_ns").is_null() & pl.col("begin_ns").is_between(begin[0], begin[looked_at]))
    at = np.searchsorted(begin, left["begin_ns"].to_numpy(), side="right") - 1
    left = left.with_columns(iteration=pl.Series(at)).filter(pl.col("iteration") < looked_at)
    steady = (pl.col("iterations") >= STEADY * looked_at) & (looked_at >= FEWEST_LEAVING)
    lines = _add_up_lines(left, looked_at).with_columns(looked_at=looked_at, is_steady=steady)
    ordered = lines.sort("is_steady", "nbytes", descending=True, maintain_order=True)
    return ordered.select(list(GROWTH)).cast(dict(GROWTH))  # type: ignore[arg-type]


def may_grow(memory: DeviceMemory) -> bool:
    """Return whether enough iterations leave something: without, no line is steady, and owners need not be found."""
    if memory.loop is None:
        return False
    begin = _begins_of_rest(memory.loop, memory.known.trace)
    looked_at = max(0, len(begin) - 1 - STILL_OPEN)
    if looked_at < FEWEST_LEAVING:
        return False
    left = memory.paired.table.filter(pl.col("end_ns").is_null())["begin_ns"].to_numpy()
    at = np.searchsorted(begin, left, side="right") - 1
    return len(np.unique(at[(at >= 0) & (at < looked_at)])) >= STEADY * looked_at


def _begins_of_rest(loop: Loop, trace: Trace) -> Int64s:
    """Return the begins of usual iterations behind the last interruption: releases in it were not recorded."""
    begin = begins(loop, trace)[1]
    return begin[begin >= max(trace.breaks_ns)] if trace.breaks_ns else begin


def _add_up_lines(left: pl.DataFrame, looked_at: int) -> pl.DataFrame:
    """Return the lines of blocks: what they leave, in how many iterations, and where most of it is from."""
    largest = left.group_by(*LINE, "operator", "layer", maintain_order=True).agg(pl.col("nbytes").sum())
    most = largest.sort("nbytes", descending=True, maintain_order=True).unique(LINE, keep="first", maintain_order=True)
    lines = left.group_by(LINE, maintain_order=True).agg(
        iterations=pl.col("iteration").n_unique(),
        blocks=pl.len() / looked_at,
        nbytes=pl.col("nbytes").sum() / looked_at,
    )
    return lines.join(most.drop("nbytes"), on=LINE, how="left", nulls_equal=True, maintain_order="left")
