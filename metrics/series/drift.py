"""Whether the iteration time rises over a capture, at once or gradually, and which part causes it."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.metrics.breakdown.parts import PART_NAMES
from deepprof.metrics.loop import Loop
from deepprof.metrics.series.changes import LevelChange, can_find_changes, find_changes
from deepprof.metrics.series.statistics import bootstrap_change
from deepprof.metrics.series.trend import find_trend

Float64s = npt.NDArray[np.float64]

MIN_DRIFT_ITERATIONS = 12  # iterations: two thirds are compared, so at least four on either side
FEWEST_COMPARED = 5  # iterations that a median's interval needs
MATERIAL = 0.1  # of the iteration time: clocks and shared hosts vary by some per cent
CHANCE = 0.01
STEADY = 0.5  # tau: a trend goes one way, mere variation does not
SEPARATED = 0.9  # least share of the pairs in which the later iteration is the slower one


class Drift(Struct, frozen=True, eq=False):
    """Iterations that become slower from `before_ns` to `after_ns`, medians of the early and the late ones.

    `kind`: a `shift` at iteration `at`, a `trend` over all, or `ends` that differ, if the library that finds shifts
    is not installed. `parts` has the differences of the medians of `PART_NAMES` in ns. `separation` is the share of
    pairs of an early and a late iteration in which the late one is slower. `early` and `late` have the columns of
    `Loop.table`.
    """

    kind: Literal["shift", "trend", "ends"]
    at: int | None
    before_ns: float
    after_ns: float
    separation: float
    parts: dict[str, float]
    early: pl.DataFrame
    late: pl.DataFrame

    @property
    def lost_ns(self) -> float:
        """How much longer a late iteration needs."""
        return self.after_ns - self.before_ns

    @property
    def share(self) -> float:
        """Share of `lost_ns` in a late iteration."""
        return self.lost_ns / max(1.0, self.after_ns)


def find_drift(loop: Loop) -> Drift | None:
    """Return how the iterations became slower, None if they did not, or too little, or too few were recorded."""
    rows = loop.usual
    if rows.height < MIN_DRIFT_ITERATIONS:
        return None
    times = rows["iteration_ns"].to_numpy().astype(np.float64)
    if not _rises(times):
        return None
    changes = find_changes(times)
    single = _shift_at(rows, changes) if len(changes) == 1 else None
    found = single or _find_slope(rows, times) or _shift_at(rows, changes)  # a slope looks like several jumps
    return found if found or can_find_changes() else _compare_ends(rows, times)


def _rises(times: Float64s) -> bool:
    """Return whether the last iterations are slower at all; only then is the library that finds shifts loaded."""
    sizes = (FEWEST_COMPARED, len(times) // 3)
    return any(float(np.median(times[-k:])) >= (1 + MATERIAL / 2) * float(np.median(times[:k])) for k in sizes)


def _shift_at(rows: pl.DataFrame, changes: tuple[LevelChange, ...]) -> Drift | None:
    """Return the drift from the first level to the last one; levels in between do not count."""
    if not changes:
        return None
    largest = max(changes, key=lambda change: change.after - change.before)
    first, last = changes[0].at, changes[-1].at
    return _compare(rows.head(first), rows.tail(rows.height - last), "shift", int(rows["index"][largest.at]))


def _find_slope(rows: pl.DataFrame, times: Float64s) -> Drift | None:
    """Return the drift along a line from the first third to the last one."""
    trend = find_trend(times)
    if trend is None or trend.p_value >= CHANCE or trend.tau < STEADY or trend.growth < MATERIAL:
        return None
    third = rows.height // 3
    return _compare(rows.head(third), rows.tail(third), "trend", None)


def _compare_ends(rows: pl.DataFrame, times: Float64s) -> Drift | None:
    """Return the drift from the first iterations to the last ones, if chance does not explain it."""
    size = max(FEWEST_COMPARED, rows.height // 3)
    change = bootstrap_change(times[:size], times[-size:])
    if change is None or change[0] < MATERIAL:
        return None
    return _compare(rows.head(size), rows.tail(size), "ends", None)


def _compare(
    early: pl.DataFrame,
    late: pl.DataFrame,
    kind: Literal["shift", "trend", "ends"],
    at: int | None,
) -> Drift | None:
    """Return the drift between early and late iterations, None where it is small or not clear."""
    before, after = (float(part["iteration_ns"].median()) for part in (early, late))  # type: ignore[arg-type]
    separation = separate(early["iteration_ns"].to_numpy(), late["iteration_ns"].to_numpy())
    if after < (1 + MATERIAL) * before or separation < SEPARATED:
        return None
    medians = [part.select(pl.col(PART_NAMES).fill_null(0).median()).row(0) for part in (early, late)]
    parts = {name: float(b - a) for name, a, b in zip(PART_NAMES, *medians, strict=True)}
    return Drift(kind, at, before, after, separation, parts, early, late)


def separate(early: npt.NDArray[np.int64], late: npt.NDArray[np.int64]) -> float:
    """Return the share of all pairs in which the late value is larger, equal ones counted half."""
    ordered = np.sort(early)
    below = np.searchsorted(ordered, late, side="left") + np.searchsorted(ordered, late, side="right")
    return float(below.mean() / 2 / len(ordered))
