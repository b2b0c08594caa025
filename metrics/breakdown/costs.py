"""What one part of the time costs an iteration, and whether it does so in most of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from deepprof.metrics.loop import Loop
from deepprof.metrics.spans import NOTHING, Spans, intersect, union

__all__ = ["Cost", "cost_of", "mean_of", "regular", "spans_of_parts", "threads_of"]

OUTLIER = 1.5  # times the median: an iteration that takes longer is not what the loop usually costs
FEWEST = 2  # iterations: one proves nothing


@dataclass(frozen=True, slots=True)
class Cost:
    """Mean time of some parts over regular iterations.

    `share` is of the iteration time, `steadiness` the share of the iterations that have at least half of the mean.
    """

    mean_ns: float
    whole_ns: float
    steadiness: float
    iterations: int
    bounds: tuple[int, int]

    @property
    def share(self) -> float:
        """Share of the iteration's time."""
        return self.mean_ns / max(1.0, self.whole_ns)


def regular(loop: Loop) -> pl.DataFrame:
    """Return the rows of `Loop.usual` that are no outliers: rules on what every iteration costs rest on them."""
    usual = loop.usual
    return usual.filter(pl.col("iteration_ns") <= OUTLIER * pl.col("iteration_ns").median())


def cost_of(loop: Loop, parts: Sequence[str]) -> Cost | None:
    """Return what `parts` cost together; None where the loop has too few regular iterations or no parts."""
    rows = regular(loop)
    if rows.height < FEWEST or loop.parts.is_empty():
        return None
    taken = rows.select(pl.sum_horizontal(parts)).to_series()
    mean = float(taken.mean())  # type: ignore[arg-type]
    return Cost(
        mean_ns=mean,
        whole_ns=float(rows["iteration_ns"].mean()),  # type: ignore[arg-type]
        steadiness=int((taken >= mean / 2).sum()) / rows.height,
        iterations=rows.height,
        bounds=(int(rows["index"][0]), int(rows["index"][-1])),
    )


def mean_of(loop: Loop, *columns: str) -> float:
    """Return the mean per regular iteration of one of `Loop.table`'s columns, or the sum of several."""
    return float(regular(loop).select(pl.sum_horizontal(columns).mean()).item() or 0.0)


def spans_of_parts(loop: Loop, parts: Sequence[str]) -> Spans:
    """Return when the device spends its time on `parts`, within the loop's regular iterations."""
    rows = regular(loop)
    start = rows["start_ns"].to_numpy()
    windows = union(start, start + rows["iteration_ns"].to_numpy())
    return NOTHING if loop.timeline is None else intersect(loop.timeline.spans(parts), windows)


def threads_of(loop: Loop) -> pl.DataFrame | None:
    """Return process and thread of what launches the loop's kernels, None where the trace does not say."""
    host = None if loop.timeline is None else loop.timeline.host
    return None if host is None else host.threads
