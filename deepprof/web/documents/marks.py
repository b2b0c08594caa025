"""What is special about single iterations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from deepprof.metrics.series.outliers import find_outliers

if TYPE_CHECKING:
    from deepprof.analysis import Loop

Mark = Literal["", "incomplete", "warm-up", "outlier"]


def mark_iterations(loop: Loop) -> list[Mark]:
    """Return the mark of every iteration, the first that fits."""
    slow = find_outliers(loop)
    outliers = set() if slow is None else set(slow.rows["index"].to_list())
    rows = loop.iterations.select("index", "complete", "warmup").iter_rows()
    return [_mark(complete=complete, warmup=warmup, slow=index in outliers) for index, complete, warmup in rows]


def _mark(*, complete: bool, warmup: bool, slow: bool) -> Mark:
    if not complete:
        return "incomplete"
    return "warm-up" if warmup else "outlier" if slow else ""
