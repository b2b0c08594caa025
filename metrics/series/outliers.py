"""Iterations that take clearly longer than those around them, and what is different in them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from deepprof.metrics.breakdown.costs import Cost, cost_of
from deepprof.metrics.breakdown.parts import PART_NAMES
from deepprof.metrics.loop import Loop
from deepprof.metrics.series.statistics import deviation, local_median
from deepprof.metrics.spans import NOTHING, Spans, covered, intersect, union

Float64s = npt.NDArray[np.float64]

MIN_OUTLIER_ITERATIONS = 8  # iterations: with fewer there is no usual time
AROUND = 11  # iterations whose median is the usual time: five in a row may be slow, and the median follows drift
CLEAR = 4.0  # deviations above the usual time, which normal noise exceeds once in 30,000 iterations
LARGE = 0.2  # of the usual time: less is noise that a short capture does not show
# Columns that show how an iteration differs, next to its time and its parts.
DIFFERENCES = ("kernels", "events", "edits", "launches", "waits", "allocations", "builds", "htod_bytes")
# Of the time of all iterations together. Less than 3 % is not reported, and one stall in a capture often reaches that.
WORTH, WARNING = 0.03, 0.1
CHANCE = 1  # a single slow iteration may be the profiler's or the system's: it is reported if it costs a tenth
RECORDED = "idle_unknown_ns"  # the part that holds the profiler's own work
MIN_PROFILER_SHARE = 0.5  # least share of the profiler's work in the additional time
REGULAR = 2 / 3  # least share of a cycle's places that are slow


class Outliers(Struct, frozen=True, eq=False):
    """The slow rows of `Loop.usual`, among `iterations` rows of `total_ns` together.

    `rows` has index, start_ns, iteration_ns, `extra_ns` above the usual time (Float64), and the differences from the
    usual rows' medians: the columns `PART_NAMES` and `DIFFERENCES` as Float64.
    """

    rows: pl.DataFrame
    iterations: int
    total_ns: int

    @property
    def extra_ns(self) -> float:
        """The sum of what the slow iterations used more than usual."""
        return float(self.rows["extra_ns"].sum())

    @property
    def share(self) -> float:
        """Share of `extra_ns` in the time of all iterations."""
        return self.extra_ns / max(1, self.total_ns)

    @property
    def headroom_ns(self) -> float:
        """What one iteration would save on average."""
        return self.extra_ns / max(1, self.iterations)

    def among(self, wanted: npt.NDArray[np.bool_]) -> Outliers:
        """Return the `wanted` slow iterations as outliers among the same iterations."""
        return Outliers(self.rows.filter(pl.Series(wanted)), self.iterations, self.total_ns)


def find_outliers(loop: Loop) -> Outliers | None:
    """Return the iterations that are clearly slower than those around them, None where too few were recorded."""
    usual = loop.measured
    if usual.height < MIN_OUTLIER_ITERATIONS:
        return None
    times = usual["iteration_ns"].to_numpy().astype(np.float64)
    level = local_median(times, AROUND)
    extra = times - level
    slow = extra > np.maximum(CLEAR * deviation(extra), LARGE * level)
    rows = usual.select("index", "start_ns", "iteration_ns", extra_ns=pl.Series(extra))
    differences = _differ(usual, ~slow)
    return Outliers(rows.hstack(differences).filter(pl.Series(slow)), usual.height, int(usual["iteration_ns"].sum()))


class _SlowIterations(Struct, frozen=True):
    """The slow iterations that are worth reporting, by kind: the profiler's, irregular ones, those of a cycle.

    `every` is the cycle's length in iterations, None without one. If irregular ones are reported, a cycle is not.
    """

    recorded: Outliers | None = None
    irregular: Outliers | None = None
    cyclic: Outliers | None = None
    every: int | None = None

    @property
    def told(self) -> tuple[Outliers, ...]:
        """All kinds that are worth reporting."""
        return tuple(each for each in (self.recorded, self.irregular, self.cyclic) if each is not None)


def find_slow(loop: Loop) -> _SlowIterations:
    """Return the slow iterations that cost enough to be reported."""
    outliers = find_outliers(loop)
    if outliers is None or outliers.share < WORTH:
        return _SlowIterations()
    own, recorded = _split_recorder(loop, outliers)
    irregular, cyclic, every = split_cycles(loop, own)
    told = irregular.share >= (WARNING if irregular.rows.height <= CHANCE else WORTH)
    return _SlowIterations(
        recorded if recorded.share >= WORTH else None,
        irregular if told else None,
        cyclic if not told and every is not None and cyclic.share >= WORTH else None,
        every,
    )


def _split_recorder(loop: Loop, outliers: Outliers) -> tuple[Outliers, Outliers]:
    """Return the outliers of the job itself, and those whose extra time is mostly the profiler's own work."""
    start, length = outliers.rows["start_ns"].to_numpy(), outliers.rows["iteration_ns"].to_numpy()
    host = loop.timeline.host if loop.timeline else None
    idle = intersect(host.recorder, loop.timeline.spans([RECORDED])) if loop.timeline and host else NOTHING
    recorded = covered(idle, start, start + length) >= MIN_PROFILER_SHARE * outliers.rows["extra_ns"].to_numpy()
    return outliers.among(~recorded), outliers.among(recorded)


def cost_beside_slow(loop: Loop, parts: Sequence[str]) -> Cost | None:
    """Return what `parts` cost in the iterations that `find_slow` does not report, as a share of all the time."""
    told = [index for each in find_slow(loop).told for index in each.rows["index"].to_list()]
    whole = cost_of(loop, parts)
    if whole is None or not told:
        return whole
    rest = loop.iterations.filter(~pl.col("index").is_in(told))
    cost = cost_of(replace(loop, iterations=rest), parts)
    if cost is None:
        return None
    return replace(cost, mean_ns=cost.mean_ns * cost.iterations / whole.iterations, whole_ns=whole.whole_ns)


def _differ(usual: pl.DataFrame, ordinary: npt.NDArray[np.bool_]) -> pl.DataFrame:
    """Return by how much every row exceeds the median of the ordinary ones, in parts and counts."""
    columns = [pl.col(name).cast(pl.Float64).fill_null(0.0) for name in (*PART_NAMES, *DIFFERENCES)]
    values = usual.select(columns)
    return values.select(pl.all() - pl.all().filter(pl.Series(ordinary)).median())


def split_cycles(loop: Loop, outliers: Outliers) -> tuple[Outliers, Outliers, int | None]:
    """Return the irregular outliers, those of a cycle of the loop, and the cycle's length in iterations.

    A cycle explains the outliers at its places, if most of its places are slow.
    """
    none: npt.NDArray[np.bool_] = np.zeros(outliers.rows.height, bool)
    for cycle in loop.cycles:
        every = int(cycle["every"])
        inside = _on_beat(loop.measured["index"].to_numpy(), outliers.rows["index"].to_numpy(), every)
        if inside is not None:
            return outliers.among(~inside), outliers.among(inside), every
    return outliers, outliers.among(none), None


def _on_beat(indices: npt.NDArray[np.int64], slow: npt.NDArray[np.int64], every: int) -> npt.NDArray[np.bool_] | None:
    """Return which slow iterations recur at every `every`-th iteration, None if they do not come regularly."""
    if every < 2 or not len(slow):
        return None
    phases, counts = np.unique(slow % every, return_counts=True)
    phase, hits = phases[np.argmax(counts)], int(counts.max())
    places = int((indices % every == phase).sum())
    return slow % every == phase if hits >= 2 and hits >= REGULAR * places else None


def extra_spans(loop: Loop, rows: pl.DataFrame, parts: tuple[str, ...]) -> Spans:
    """Return when the device spends its time on `parts` within the iterations `rows` (start_ns, iteration_ns)."""
    start = rows["start_ns"].to_numpy()
    windows = union(start, start + rows["iteration_ns"].to_numpy())
    return windows if loop.timeline is None else intersect(loop.timeline.spans(parts), windows)
