"""What a loop's device does outside the iterations: before, between and after them, at work or waiting."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from msgspec import Struct

from deepprof.metrics.breakdown.parts import PART_NAMES
from deepprof.metrics.breakdown.timeline import Timeline
from deepprof.metrics.spans import Spans, covered, intersect, union


class TimeOutside(Struct, frozen=True, kw_only=True):
    """The time outside the whole iterations after warm-up, of the device's time from its first to its last work.

    `recorded_ns` is all of that time and `inside_ns` that of the iterations. `places` has the time before, between and
    after them, `waits` how long the device is idle then, by part; both have the largest first and leave out what is 0.
    """

    recorded_ns: int
    inside_ns: int
    places: Mapping[str, int]
    waits: Mapping[str, int]
    longest_wait_ns: int

    @property
    def inside_ratio(self) -> float:
        """The share of the iterations in the recorded time."""
        return self.inside_ns / self.recorded_ns

    @property
    def waited_ns(self) -> int:
        """How long the device is idle outside the iterations."""
        return sum(self.waits.values())


def measure_time_outside(timeline: Timeline, iterations: pl.DataFrame) -> TimeOutside | None:
    """Return the time of a device outside `iterations` (`ITERATIONS`), None where it has none or no work."""
    inside = _find_whole(iterations)
    if not len(timeline.parts) or not len(inside.starts):
        return None
    first, end = (int(bound) for bound in timeline.bounds[[0, -1]])
    outside = union(np.append(first, inside.ends), np.append(inside.starts, end))
    begins, ends, parts = timeline.find_waits()
    waits = intersect(union(begins, ends), outside)
    waited_ns = np.bincount(parts, covered(outside, begins, ends), len(PART_NAMES))
    return TimeOutside(
        recorded_ns=end - first,
        inside_ns=end - first - outside.total_ns,
        places=_order(_place(outside, inside)),
        waits=_order({part: int(ns) for part, ns in zip(PART_NAMES, waited_ns, strict=True)}),
        longest_wait_ns=int((waits.ends - waits.starts).max(initial=0)),
    )


def _find_whole(iterations: pl.DataFrame) -> Spans:
    """Return the time of the whole iterations after warm-up; one that none follows ends with its last work."""
    rows = iterations.filter(pl.col("complete") & ~pl.col("warmup")).select(
        "start_ns", length=pl.coalesce("iteration_ns", "operation_ns")
    )
    starts = rows["start_ns"].to_numpy()
    return union(starts, starts + rows["length"].to_numpy())


def _place(outside: Spans, inside: Spans) -> dict[str, int]:
    """Return how much of the time outside is before, between and after the iterations."""
    lengths = outside.ends - outside.starts
    before, after = outside.ends <= inside.starts[0], outside.starts >= inside.ends[-1]
    return {
        "before": int(lengths[before].sum()),
        "between": int(lengths[~before & ~after].sum()),
        "after": int(lengths[after].sum()),
    }


def _order(times: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(((name, ns) for name, ns in times.items() if ns), key=lambda each: -each[1]))
