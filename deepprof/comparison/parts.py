"""The parts of the mean iteration of both runs, in whole nanoseconds that add up."""

from __future__ import annotations

import polars as pl

from deepprof.comparison.result import CountChange, PartChange
from deepprof.metrics.breakdown.costs import divide
from deepprof.metrics.breakdown.parts import COUNTS, PART_NAMES


def compare_parts(a: pl.DataFrame, b: pl.DataFrame) -> tuple[PartChange, ...]:
    """Return the change of every part of the mean of `Loop.usual`; they add up to that of the iteration time."""
    before, after = (divide(_sum_columns(rows), rows.height) for rows in (a, b))
    return tuple(PartChange(name, before[name], after[name]) for name in PART_NAMES)


def _sum_columns(rows: pl.DataFrame) -> dict[str, int]:
    """Return the sum of each part."""
    return {name: int(rows[name].fill_null(0).sum()) for name in PART_NAMES}


def compare_counts(a: pl.DataFrame, b: pl.DataFrame) -> tuple[CountChange, ...]:
    """Return the change of what the host does per iteration."""
    return tuple(CountChange(name, _average(a[name]), _average(b[name])) for name in COUNTS)


def _average(values: pl.Series) -> float:
    """Return the mean, 0 where nothing is known."""
    return round(float(values.fill_null(0).mean() or 0), 3)  # type: ignore[arg-type]
