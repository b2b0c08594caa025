"""Whether equal kernels last longer and longer: the same calls, iteration by iteration, against themselves.

A call is a kernel of one name and launch shape at one place among those of its iteration. Its lengths are divided by
their median over iterations, and the median of these ratios over all calls, weighted with the calls' time, is how slow
the device is in an iteration. Single calls that something disturbs do not move it, and it grows only if most of the
work does, as with a falling clock: work that itself grows does so in some kernels.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.metrics.series.drift import separate
from deepprof.metrics.series.trend import find_trend

Float64s = npt.NDArray[np.float64]

FEWEST_ITERATIONS = 6  # with fewer no order of lengths is unlikely by chance
MATERIAL = 0.1  # of the length: clocks settle by some per cent after the start
CHANCE = 0.01
SEPARATED = 0.9  # least share of the pairs in which the later iteration is the slower one
EVEN = 0.8  # of the time is in calls that slow down by at least half as much
CALL = ("name_id", "stream", "grid", "block", "place")


class SlowingKernels(Struct, frozen=True, eq=False):
    """Calls that became slower from early to late iterations.

    `kinds` are the rows of the table of kinds that they are of, `slowness` is the ratio of every iteration, 1 in a
    usual one, and `growth` by how much a late one exceeds an early one. `lost_ns` is what a mean iteration lasts longer
    than early ones, and `even_ratio` the share of the time in calls that slow down by at least half as much."""

    kinds: pl.Series
    slowness: Float64s
    growth: float
    lost_ns: float
    even_ratio: float


def find_slowing(kernels: pl.DataFrame, launch_shapes: pl.DataFrame, iterations: int) -> SlowingKernels | None:
    """Return how the kernels became slower, None where they did not, or too few iterations show it.

    `kernels` are of `kernels.computed_work.list_kernels`, without collectives; `launch_shapes` are the trace's.
    """
    if iterations < FEWEST_ITERATIONS:
        return None
    calls = _list_calls(kernels, launch_shapes, iterations)
    if calls.is_empty():
        return None
    slowness = _measure_slowness(calls, iterations)
    third = max(2, iterations // 3)
    early, late = slowness[:third], slowness[-third:]
    growth = float(np.median(late) / np.median(early)) - 1
    trend = find_trend(slowness)
    if trend is None or trend.tau <= 0 or trend.p_value >= CHANCE or growth < MATERIAL:
        return None
    even = _share_even(calls, third, iterations, growth)
    if separate(early, late) < SEPARATED or even < EVEN:  # type: ignore[arg-type]
        return None
    usual_ns = float(calls.select("call", "usual_ns").unique()["usual_ns"].sum())
    lost_ns = float(np.clip(slowness - np.median(early), 0, None).mean()) * usual_ns
    return SlowingKernels(calls["kind"].unique(), slowness, growth, lost_ns, even)


def _list_calls(kernels: pl.DataFrame, launch_shapes: pl.DataFrame, iterations: int) -> pl.DataFrame:
    """Return the kernels of calls that every iteration has, with `call`, `usual_ns` and `ratio` to that."""
    shapes = launch_shapes.select(pl.col("event").cast(pl.Int64), "grid", "block")
    rows = kernels.cast({"event": pl.Int64}).join(shapes, on="event", how="left", maintain_order="left")
    place = pl.int_range(pl.len()).over("window", *CALL[:-1])
    numbered = rows.with_columns(place=place).with_columns(call=pl.struct(CALL).rank("dense"))
    steady = numbered.filter(pl.len().over("call") == iterations)
    usual = steady.with_columns(usual_ns=pl.col("ns").median().over("call")).filter(pl.col("usual_ns") > 0)
    return usual.with_columns(ratio=pl.col("ns") / pl.col("usual_ns"))


def _measure_slowness(calls: pl.DataFrame, iterations: int) -> Float64s:
    ordered = calls.sort("window", "ratio").with_columns(
        below=pl.col("usual_ns").cum_sum().over("window"), whole=pl.col("usual_ns").sum().over("window")
    )
    middle = ordered.filter(2 * pl.col("below") >= pl.col("whole")).group_by("window", maintain_order=True).first()
    slowness = np.ones(iterations)
    slowness[middle["window"].to_numpy()] = middle["ratio"].to_numpy()
    return slowness


def _share_even(calls: pl.DataFrame, third: int, iterations: int, growth: float) -> float:
    """Return the share of the time in calls that slow down by at least half of `growth`."""
    early = pl.col("ns").filter(pl.col("window") < third).median()
    late = pl.col("ns").filter(pl.col("window") >= iterations - third).median()
    each = calls.group_by("call").agg(pl.col("usual_ns").first(), growth=late / early - 1)
    alike = each.filter(pl.col("growth") >= growth / 2)
    return float(alike["usual_ns"].sum()) / float(each["usual_ns"].sum())
