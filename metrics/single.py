"""A stretch of time that is measured as one iteration where no loop was found: a marked step, or the whole recording.

A capture of one step, of a single pass or of one request repeats nothing, but shows reliably where its time goes, too.
A recording lasts from the first event to the last, those of the host included: before the device has any work a program
may have started for long.
"""

from __future__ import annotations

from collections.abc import Sequence as List

import numpy as np
import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.metrics.breakdown.parts_table import with_parts
from deepprof.metrics.breakdown.timeline import Timeline, extend, recorded_bounds
from deepprof.metrics.iteration import ITERATIONS
from deepprof.metrics.iteration_table import Activity, as_table, measure_coverage, measure_rows, summarize
from deepprof.metrics.loop import Loop, Single
from deepprof.metrics.sequence import Sequence
from deepprof.mining.evidence import Family
from deepprof.mining.iterations import Iterations

CONFIDENCE: dict[Single, float] = {"marked step": 0.9, "recording": 0.7}  # that this is what the job does all the time
MIN_SINGLE_KERNELS = 2  # kernels


def measure_single(trace: Trace, sequence: Sequence, families: List[Family], timeline: Timeline) -> Loop | None:
    """Return the longest marked step, or else the recording, as a loop of one iteration; None for too few kernels."""
    count = len(sequence.symbols)
    if count < MIN_SINGLE_KERNELS:
        return None
    what, first, end = _find_step(families, count) or ("recording", 0, count)
    table = _measure_stretch(trace, sequence, first, end)
    if what == "recording":
        timeline = extend(timeline, *recorded_bounds(trace, timeline))
        table = _stretch_to_span(table, timeline)
    loop = Loop(
        rank=trace.rank or 0,
        device=sequence.device,
        stream=sequence.stream,
        period=end - first,
        confidence=CONFIDENCE[what],
        evidence=f"the {what}",
        boundary_source="annotation" if what == "marked step" else "mined",
        boundary_confidence=CONFIDENCE[what],
        agreement=None,
        iterations=table,
        metrics=summarize(table),
        coverage_ratio=round(measure_coverage(trace, sequence.device, table), 4),
        single=what,
    )
    return with_parts(loop, trace, timeline)


def _find_step(families: List[Family], count: int) -> tuple[Single, int, int] | None:
    """Return the longest marked step, in kernels; None if no marked step holds several."""
    steps = [(family.positions, family.ends) for family in families if family.trust == "step"]
    known = [(first, np.minimum(ends, count)) for first, ends in steps if ends is not None]
    bounds = [(int(e - f), int(f)) for pair in known for f, e in zip(*pair, strict=True) if e - f >= MIN_SINGLE_KERNELS]
    if not bounds:
        return None
    length, first = max(bounds)
    return "marked step", first, first + length


def _measure_stretch(trace: Trace, sequence: Sequence, first: int, end: int) -> pl.DataFrame:
    """Return the kernels [first, end) as a table `ITERATIONS` of one row, which is complete."""
    one = np.ones(1, np.int64)
    found = Iterations(one * first, one * end, one, one * 0, one == 1)
    measured = measure_rows(Activity.of(trace, sequence.device), sequence, found)
    values = dict(measured.values) | {"index": one * 0, "warmup": one == 0}
    table = as_table(type(measured)(values, np.ones(1, bool)), ITERATIONS)
    return table.with_columns(interval_ns=pl.lit(None, pl.Int64), overlap_ratio=pl.lit(None, pl.Float64))


def _stretch_to_span(table: pl.DataFrame, timeline: Timeline) -> pl.DataFrame:
    """Return the row with all of `timeline`: copies before the first kernel and after the last, and the host's time."""
    first, last = int(timeline.bounds[0]), int(timeline.bounds[-1])
    busy = sum(ns for part, ns in timeline.totals_ns.items() if not part.startswith("idle_"))
    return table.with_columns(
        start_ns=pl.lit(first, pl.Int64),
        end_ns=pl.lit(last, pl.Int64),
        iteration_ns=pl.lit(last - first, pl.Int64),
        operation_ns=pl.lit(last - first, pl.Int64),
        busy_ns=pl.lit(busy, pl.Int64),
        idle_ns=pl.lit(last - first - busy, pl.Int64),
    )
