"""The shape of a rank's memory over an iteration: how far it rises, when it is at its peak, how long it stays up.

Programs ramp up in the forward pass and down in the backward pass (PASTA, its figures of memory over one iteration).
Iterations are separated as in `metrics.series.memory`: by the host, which allocates.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.table_schema import TableSchema
from deepprof.collectors.trace import Trace
from deepprof.metrics.loop import Loop
from deepprof.metrics.operators import is_stand_in
from deepprof.metrics.series.memory import HOST_MEMORY, begins

Int64s = npt.NDArray[np.int64]

I64, RATIO = pl.Int64(), pl.Float64()
MEMORY_SHAPES = TableSchema.of(
    "The memory of one whole iteration of a loop.",
    {
        "iteration": (I64, "the iteration's index in the loop"),
        "peak_nbytes": (I64, "the most in use; without totals in the recording, above what it began with"),
        "kept_nbytes": (I64, "the least in use: parameters, the optimizer's state and whatever else is never released"),
        "kept_ratio": (RATIO, "that over the peak; null without totals"),
        "ramp_ratio": (RATIO, "the share of the iteration until the peak is first reached"),
        "tail_ratio": (RATIO, "the share of the iteration from there on until less than half of the rise is in use"),
    },
)


def measure_memory_shapes(loop: Loop, trace: Trace) -> pl.DataFrame:
    """Return the memory of the loop's complete iterations after warm-up, with the schema `MEMORY_SHAPES`.

    The last one, which ends nowhere, is left out, and so is what began before the first memory event. Without memory
    events of the loop's device the table is empty.
    """
    rows = trace.memory_events.filter(pl.col("device") == (HOST_MEMORY if is_stand_in(trace) else loop.device))
    index, begin = begins(loop, trace)
    if not rows.height or len(begin) < 2:
        return pl.DataFrame(schema=MEMORY_SHAPES)
    absolute = not rows["allocated_nbytes"].null_count()
    in_use = rows["allocated_nbytes"].cast(I64) if absolute else rows["nbytes"].cum_sum()
    steps = _cut_steps(rows["time_ns"].to_numpy(), in_use.to_numpy(), begin)
    found = _describe(steps).with_columns(
        iteration=pl.Series(index[steps["window"].unique(maintain_order=True).to_numpy()], dtype=I64),
        kept_ratio=pl.when(pl.lit(absolute) & (pl.col("peak_nbytes") > 0)).then(
            pl.col("kept_nbytes") / pl.col("peak_nbytes")
        ),
    )
    return found.select(list(MEMORY_SHAPES)).cast(dict(MEMORY_SHAPES))  # type: ignore[arg-type]


def _cut_steps(times: Int64s, in_use: Int64s, begin: Int64s) -> pl.DataFrame:
    """Return `window`, `begin_ns`, `length_ns`, `time_ns`, `until_ns`, `in_use`: what is in use from when until when.

    A window reaches from one of `begin` to the next; one that begins before the first of `times` is left out.
    """
    bounds = begin[begin >= times[0]]
    first = len(begin) - len(bounds)
    carried = in_use[np.searchsorted(times, bounds, side="right") - 1]
    inside = (times > bounds[0]) & ~np.isin(times, bounds) if len(bounds) else np.zeros(len(times), np.bool_)
    joined = pl.DataFrame(
        {
            "time_ns": np.concatenate([bounds, times[inside]]),
            "in_use": np.concatenate([carried, in_use[inside]]),
        }
    ).sort("time_ns", maintain_order=True)
    time = joined["time_ns"].to_numpy()
    window = np.searchsorted(bounds, time, side="right") - 1
    ends = np.append(bounds, 0)
    steps = joined.with_columns(
        window=pl.Series(window + first, dtype=I64),
        until_ns=pl.col("time_ns").shift(-1),
        begin_ns=pl.Series(ends[window], dtype=I64),
        length_ns=pl.Series(ends[np.minimum(window + 1, len(bounds))] - ends[window], dtype=I64),
    )
    return steps.filter((pl.col("window") < len(begin) - 1) & (pl.col("until_ns") > pl.col("time_ns")))


def _describe(steps: pl.DataFrame) -> pl.DataFrame:
    """Return peak, least, ramp and tail of each window, in order."""
    peak, kept = pl.col("in_use").max(), pl.col("in_use").min()
    reached = pl.col("time_ns").get(pl.col("in_use").arg_max())
    left = pl.col("until_ns").filter(2 * pl.col("in_use") >= peak + kept).max()
    length = pl.col("length_ns").first()
    return steps.group_by("window", maintain_order=True).agg(
        peak_nbytes=peak,
        kept_nbytes=kept,
        ramp_ratio=(reached - pl.col("begin_ns").first()) / length,
        tail_ratio=(left - reached) / length,
    )
