"""Which context uses more and more: from iteration to iteration, or over the windows of a running job."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.metrics.contexts.per_loop import LoopContexts
from deepprof.metrics.contexts.sent import SentContexts, is_left_out
from deepprof.metrics.series.trend import Trend, chance_of, find_trend, rises_throughout

CARRIED = 0.5  # of the growth around it: the part that a named context has at least
LEAST_GROWTH = 0.2  # of its first value

Floats = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]
Amount = Literal["host_ns", "device_ns"]

MIN_WINDOWS = 10
MOST_WINDOWS = 60  # of more, neighbours are put together
PRESENT = 0.8  # of the windows: a context that begins in fewer states nothing of passes
LEAST_SHARE = 0.05  # of the time in the last third of the windows
CHANCE = 0.01  # for all contexts together
STEADY = 0.6  # tau: a trend goes one way, mere variation does not
MOST_TESTED = 500


class _GrowingContext(Struct, frozen=True):
    """A context that uses more of `column` in every stage of a loop than in the one before; means per iteration."""

    context: int
    column: str
    first: float
    last: float

    @property
    def growth(self) -> float:
        """How much more an iteration of the last stage has than one of the first."""
        return self.last - self.first


def find_growing(seen: LoopContexts, column: str, least: float) -> _GrowingContext | None:
    """Return the innermost context that carries the largest growth of one of `COLUMNS`, if that is at least `least`.

    It grows in every stage of the loop (`STAGES`), and by a fifth in all.
    """
    stages = seen.stages_of(column)
    if not len(stages):
        return None
    growth = stages[-1] - stages[0]
    steady = (np.diff(stages, axis=0) > 0).all(axis=0) & (growth >= LEAST_GROWTH * stages[0])
    grown = np.where(steady & (growth >= least), growth, 0.0)
    if not grown.any():
        return None
    carrying = np.flatnonzero(grown >= CARRIED * grown.max())
    found = int(carrying[np.argmax(seen.table["depth"].to_numpy()[carrying])])
    return _GrowingContext(found, column, float(stages[0, found]), float(stages[-1, found]))


class RisingContext(Struct, frozen=True):
    """A context, a row of `SentContexts.contexts`, that uses more of `amount` from window to window.

    `before_ns` and `after_ns` are medians of the first and the last third of the windows, in a pass of usual length;
    `share_ratio` is its share of all time in the last third.
    """

    context: int
    amount: Amount
    before_ns: float
    after_ns: float
    share_ratio: float
    windows: int
    start_ns: int
    end_ns: int

    @property
    def growth_ns(self) -> float:
        """How much more it needs."""
        return self.after_ns - self.before_ns


def find_rising(sent: SentContexts, sums: pl.DataFrame) -> RisingContext | None:
    """Return the innermost context that carries the largest steady rise of host or device time, if there is one.

    `sums` have a row for every window and node. The first window is left out: there programs compile and warm up.
    """
    windows = _number_windows(sums)
    if windows is None:
        return None
    passes = _count_passes(sent, windows)
    found = [each for name in ("host_ns", "device_ns") if (each := _find(sent, windows, passes, name)) is not None]
    return max(found, key=lambda each: each.growth_ns, default=None)


def _number_windows(sums: pl.DataFrame) -> pl.DataFrame | None:
    """Return sums with their `window`, from 0 on; None where there are too few."""
    starts = sums["time_ns"].unique().sort()[1:]
    if len(starts) < MIN_WINDOWS:
        return None
    many = min(len(starts), MOST_WINDOWS)
    number = (np.arange(len(starts)) * many // len(starts)).astype(np.int64)
    return sums.join(pl.DataFrame({"time_ns": starts, "window": number}), on="time_ns")


def _count_passes(sent: SentContexts, sums: pl.DataFrame) -> Floats:
    """Return how many passes of a program each window has, next to the usual window: 1 for that."""
    counts = sent.count_windows(sums, 1 + int(sums["window"].max()))  # type: ignore[arg-type]
    own = sent.contexts.select(~is_left_out()).to_series().to_numpy()
    steady = counts[own & ((counts > 0).mean(axis=1) >= PRESENT)]
    if not len(steady):
        return np.ones(counts.shape[1])
    passes = np.median(steady / np.median(steady, axis=1, keepdims=True), axis=0)
    return np.where(passes > 0, passes, np.nan)


def _find(sent: SentContexts, sums: pl.DataFrame, passes: Floats, name: Amount) -> RisingContext | None:
    known = np.isfinite(passes)
    times = sent.measure_windows(name, sums, len(passes))[:, known] / passes[known]
    if times.shape[1] < MIN_WINDOWS:
        return None
    third = times.shape[1] // 3
    before, after = np.median(times[:, :third], axis=1), np.median(times[:, -third:], axis=1)
    share = after / max(1.0, float(after[0]))
    candidates = np.flatnonzero((share >= LEAST_SHARE) & (after > (1 + LEAST_GROWTH) * before))[:MOST_TESTED]
    rising = [row for row in candidates.tolist() if _rises(times[row], len(candidates))]
    if not rising:
        return None
    growth = after - before
    carrying = [row for row in rising if growth[row] >= CARRIED * max(growth[each] for each in rising)]
    row = max(carrying, key=lambda each: int(sent.contexts["depth"][each]))
    start, end = int(sums["time_ns"].min()), int((sums["time_ns"] + sums["window_ns"]).max())  # type: ignore[arg-type]
    return RisingContext(row, name, before[row], after[row], share[row], times.shape[1], start, end)


def _rises(times: Floats, tests: int) -> bool:
    """Return whether a series rises all along, and not by chance; this many are examined."""
    trend: Trend | None = find_trend(times)
    if trend is None or trend.tau < STEADY or trend.growth < LEAST_GROWTH:
        return False
    return chance_of(times, trend) * tests < CHANCE and rises_throughout(times, trend)
