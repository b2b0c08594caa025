"""Iterations that take clearly longer than those around them, and what is different in them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.metrics.breakdown.parts import PART_NAMES
from deepprof.metrics.loop import Loop
from deepprof.metrics.series.statistics import deviation, local_median
from deepprof.metrics.spans import Spans, intersect, union

__all__ = ["FEWEST", "Outliers", "extra_spans", "find_outliers", "split_cycles"]

Float64s = npt.NDArray[np.float64]

FEWEST = 8  # iterations: with fewer there is no usual one
AROUND = 11  # iterations whose median is the usual time: five in a row may be slow, and drift is followed
CLEAR = 4.0  # deviations above it, which normal noise exceeds once in 30,000 iterations
LARGE = 0.2  # of the usual time: less is noise that a short capture does not show
# What says how an iteration differs, beside its time and its parts.
DIFFERENCES = ("kernels", "events", "edits", "launches", "waits", "allocations", "builds", "htod_bytes")
REGULAR = 2 / 3  # of the places where a cycle should be slow are, and of the slow ones lie there


@dataclass(frozen=True, slots=True)
class Outliers:
    """The slow rows of `Loop.usual`, among `iterations` rows of `total_ns` together.

    `rows` has index, start_ns, iteration_ns, `extra_ns` above the usual time (Float64), and the differences from the
    usual rows' medians: the columns `PART_NAMES` and `DIFFERENCES` as Float64.
    """

    rows: pl.DataFrame
    iterations: int
    total_ns: int

    @property
    def extra_ns(self) -> float:
        """What the slow iterations took more than usual, together."""
        return float(self.rows["extra_ns"].sum())

    @property
    def share(self) -> float:
        """Share of the time of all iterations that this is."""
        return self.extra_ns / max(1, self.total_ns)

    @property
    def headroom_ns(self) -> float:
        """What one iteration would save on average."""
        return self.extra_ns / max(1, self.iterations)

    def among(self, wanted: npt.NDArray[np.bool_]) -> Outliers:
        """Return some of the slow iterations as outliers among the same iterations."""
        return Outliers(self.rows.filter(pl.Series(wanted)), self.iterations, self.total_ns)


def find_outliers(loop: Loop) -> Outliers | None:
    """Return the iterations that are clearly slower than those around them, None where too few were recorded."""
    usual = loop.usual
    if usual.height < FEWEST:
        return None
    times = usual["iteration_ns"].to_numpy().astype(np.float64)
    level = local_median(times, AROUND)
    extra = times - level
    slow = extra > np.maximum(CLEAR * deviation(extra), LARGE * level)
    rows = usual.select("index", "start_ns", "iteration_ns", extra_ns=pl.Series(extra))
    differences = differ(usual, ~slow)
    return Outliers(rows.hstack(differences).filter(pl.Series(slow)), usual.height, int(usual["iteration_ns"].sum()))


def differ(usual: pl.DataFrame, ordinary: npt.NDArray[np.bool_]) -> pl.DataFrame:
    """Return by how much every row exceeds the median of the ordinary ones, in parts and counts."""
    columns = [pl.col(name).cast(pl.Float64).fill_null(0.0) for name in (*PART_NAMES, *DIFFERENCES)]
    values = usual.select(columns)
    return values.select(pl.all() - pl.all().filter(pl.Series(ordinary)).median())


def split_cycles(loop: Loop, outliers: Outliers) -> tuple[Outliers, Outliers, int | None]:
    """Return the outliers without rhythm, those of a cycle of the loop, and every how many iterations that comes.

    A cycle explains what lies at its places, if most of its places are slow.
    """
    none: npt.NDArray[np.bool_] = np.zeros(outliers.rows.height, bool)
    for cycle in loop.cycles:
        every = int(cycle["every"])
        inside = on_beat(loop.usual["index"].to_numpy(), outliers.rows["index"].to_numpy(), every)
        if inside is not None:
            return outliers.among(~inside), outliers.among(inside), every
    return outliers, outliers.among(none), None


def on_beat(indices: npt.NDArray[np.int64], slow: npt.NDArray[np.int64], every: int) -> npt.NDArray[np.bool_] | None:
    """Return which slow iterations come `every` so many, None where they do not come regularly."""
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
