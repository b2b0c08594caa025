"""Why work takes less time than its roof allows: more than 100 % of a roof shows that the roof does not hold for it."""

from __future__ import annotations

import polars as pl

from deepprof.metrics.cost.roofs import DevicePeaks

CACHED = "the operands came from a cache, or fewer bytes were moved than the shapes state"
FITTING = "the operands of a call fit in the device's cache of {size:.0f} MiB"
MISJUDGED = "the peak or the type of the arithmetic is wrong, or less was computed than the shapes state"
MIB = 1024**2


def explain_above(peaks: DevicePeaks | None) -> pl.Expr:
    """Return why a row is above its roof, null where it is not.

    The rows are single calls, with `nbytes` and what `roofs.add_roofs` adds. One tensor that is an operand twice is
    counted twice: recorded shapes do not state which operands are the same memory.
    """
    size = None if peaks is None else peaks.cache_nbytes
    fitting = pl.lit(None, pl.String) if size is None else pl.lit(FITTING.format(size=size / MIB))
    fits = pl.col("nbytes") <= (-1 if size is None else size)
    why = pl.when(pl.col("compute_ns") >= pl.col("memory_ns")).then(pl.lit(MISJUDGED)).when(fits).then(fitting)
    return pl.when(pl.col("roof_ratio") > 1).then(why.otherwise(pl.lit(CACHED))).alias("above_roof")
