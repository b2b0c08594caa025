"""How much longer an iteration takes: the ratio of medians, and how sure it is."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from deepprof.comparison.result import TimeChange, Verdict
from deepprof.metrics.series.statistics import bootstrap_change

SAME = 0.01  # two runs of one program on one machine differ this much by clocks and heat alone


def compare_times(a_ns: npt.ArrayLike, b_ns: npt.ArrayLike) -> TimeChange:
    """Return the change from the iteration times `a_ns` to `b_ns`, of which there is at least one each."""
    a, b = (np.asarray(times, np.float64) for times in (a_ns, b_ns))
    before, after = float(np.median(a)), float(np.median(b))
    ratio = after / max(before, 1.0)
    interval = bootstrap_change(a, b)
    low, high = (None, None) if interval is None else (1 + interval[0], 1 + interval[1])
    return TimeChange(
        a_ns=round(before),
        b_ns=round(after),
        a_iterations=len(a),
        b_iterations=len(b),
        ratio=ratio,
        low=low,
        high=high,
        verdict=_judge(ratio, low, high),
    )


def _judge(ratio: float, low: float | None, high: float | None) -> Verdict:
    """Return the verdict on the ratio."""
    if abs(ratio - 1) < SAME:
        return "same"
    if low is not None and low > 1:
        return "slower"
    return "faster" if high is not None and high < 1 else "unclear"
