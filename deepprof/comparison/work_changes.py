"""What the device computes in the mean iteration of both runs, kind by kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deepprof.comparison.result import WorkChange, WorkInBoth
from deepprof.metrics.kernels.computed_work import Work, round_parts
from deepprof.metrics.loop import Loop

KINDS = ("category", "precision", "unit")


def compare_work(a: Loop, b: Loop) -> WorkInBoth:
    """Return the kinds of work of the usual iterations of two loops, in whole nanoseconds that add up."""
    before, after = _read_times(a.work), _read_times(b.work)
    kinds = ((kind, before.get(kind, 0), after.get(kind, 0)) for kind in {**before, **after})
    rows = [WorkChange(category, precision, unit, x, y) for (category, precision, unit), x, y in kinds]
    return WorkInBoth(
        rows=tuple(sorted(rows, key=_order)),
        a_matrix_unit_ratio=None if a.work is None else a.work.matrix_unit_ratio,
        b_matrix_unit_ratio=None if b.work is None else b.work.matrix_unit_ratio,
    )


def _order(row: WorkChange) -> tuple[Any, ...]:
    """Return what rows are sorted by: the difference, the time, the kind."""
    return -abs(row.difference_ns), -max(row.a_ns, row.b_ns), row.category, row.precision or "", row.unit or ""


def _read_times(work: Work | None) -> Mapping[tuple[Any, Any, Any], int]:
    """Return the time of each kind."""
    if work is None:
        return {}
    times = work.table["time_ns"].to_numpy()
    return dict(zip(work.table.select(KINDS).rows(), round_parts(times, work.time_ns), strict=True))
