"""A section of time that is measured as one iteration where no loop was found: a marked step, or the whole recording.

A capture of one step, of a single pass or of one request repeats nothing, but shows reliably where its time goes, too.
A recording lasts from the first event to the last, those of the host included: before the device has any work a program
may have started for long. A marked step lasts from its mark, before which the device may still work for what came
earlier, until the mark ends and all is done that was launched in it.
"""

from __future__ import annotations

from collections.abc import Sequence as List

import numpy as np
import polars as pl
from msgspec import Struct

from deepprof.collectors.trace import WORK_ACTIVITIES, Trace
from deepprof.metrics.breakdown.parts_table import with_parts
from deepprof.metrics.breakdown.timeline import Timeline, recorded_bounds
from deepprof.metrics.evidence import Mark, find_range
from deepprof.metrics.host import HostSide
from deepprof.metrics.iteration import ITERATIONS
from deepprof.metrics.iteration_table import (
    Activity,
    as_table,
    measure_again,
    measure_coverage,
    measure_rows,
    summarize,
)
from deepprof.metrics.loop import Loop, Single
from deepprof.metrics.sequence import Sequence
from deepprof.mining.evidence import Family
from deepprof.mining.iterations import Iterations

CONFIDENCE: dict[Single, float] = {"marked step": 0.9, "recording": 0.7}  # that this is what the job does all the time
MIN_SINGLE_KERNELS = 2  # kernels


class _Stretch(Struct, frozen=True):
    """The kernels [first, end) of a section, from when to when it lasts, and of how many marked steps it is one."""

    what: Single
    first: int
    end: int
    bounds: tuple[int, int]
    marks: int = 1


def measure_single(
    trace: Trace, sequence: Sequence, families: List[Family], timeline: Timeline, host: HostSide
) -> Loop | None:
    """Return the longest marked step, or else the recording, as a loop of one iteration; None for too few kernels."""
    count = len(sequence.symbols)
    if count < MIN_SINGLE_KERNELS:
        return None
    found = _find_step(trace, sequence, families, host)
    found = found or _Stretch("recording", 0, count, recorded_bounds(trace, timeline))
    what, table = found.what, _measure_stretch(trace, sequence, found)
    loop = Loop(
        rank=trace.rank or 0,
        device=sequence.device,
        stream=sequence.stream,
        period=found.end - found.first,
        confidence=CONFIDENCE[what],
        evidence=f"the {what}",
        boundary_source="annotation" if what == "marked step" else "mined",
        boundary_confidence=CONFIDENCE[what],
        agreement=None,
        iterations=table,
        metrics=summarize(table),
        coverage_ratio=round(measure_coverage(trace, sequence.device, table), 4),
        single=what,
        marks=found.marks,
    )
    return with_parts(loop, trace, timeline)


def _find_step(trace: Trace, sequence: Sequence, families: List[Family], host: HostSide) -> _Stretch | None:
    """Return the marked step of most kernels; None if no marked step contains several."""
    count, best = len(sequence.symbols), None
    for family in families:
        if family.trust != "step" or family.ends is None:
            continue
        lengths = np.minimum(family.ends, count) - family.positions
        place = int(np.argmax(lengths)) if len(lengths) else 0
        length = int(lengths[place]) if len(lengths) else 0
        if length >= MIN_SINGLE_KERNELS and (best is None or length > best[0]):
            best = length, int(family.positions[place]), family.name, len(lengths)
    if best is None:
        return None
    length, first, name, marks = best
    kernels = slice(first, first + length)
    worked = int(sequence.start_ns[first]), int(sequence.end_ns[kernels].max())
    mark = find_range(host, sequence, name, first)
    return _Stretch("marked step", first, first + length, _bound_step(trace, sequence, host, mark, worked), marks)


def _bound_step(
    trace: Trace, sequence: Sequence, host: HostSide, mark: Mark, worked: tuple[int, int]
) -> tuple[int, int]:
    """Return from when to when a marked step lasts: from its mark until that ends and what it launched is done.

    While the device still works for what was launched before the mark, the step has not begun; it has once its own
    kernels run, which they do from `worked[0]` to `worked[1]`, or with its first work where the mark ended before: what
    holds that back is not the step. Without launch records what begins in the mark is its work.
    """
    work = trace.device_events.filter(pl.col("device") == sequence.device, pl.col("activity").is_in(WORK_ACTIVITIES))
    launched = pl.col("start_ns")
    if mark.on_host and sequence.linked:
        work = work.join(host.launches, on="correlation", how="left", maintain_order="left")
        known = pl.col("launch_ns").forward_fill().over("stream")
        launched = known.fill_null(mark.start_ns - 1)  # before the recording began
    begins = work.select(launched).to_series()
    earlier = work.filter(begins < mark.start_ns)["end_ns"]
    own = work.filter((begins >= mark.start_ns) & (begins < mark.end_ns))
    first = min([worked[0], *own["start_ns"].sort().head(1)])
    begun = first if mark.end_ns < first else min(_latest(mark.start_ns, earlier), worked[0])
    return begun, max(mark.end_ns, _latest(worked[1], own["end_ns"]))


def _latest(time_ns: int, times: pl.Series) -> int:
    """Return the latest of a time and others, of which there may be none."""
    return int(max([time_ns, *times.sort().tail(1)]))


def _measure_stretch(trace: Trace, sequence: Sequence, found: _Stretch) -> pl.DataFrame:
    """Return the section as a table `ITERATIONS` of one row, which is complete.

    Copies before its first kernel and after its last count, and the host's time.
    """
    one = np.ones(1, np.int64)
    rows = Iterations(one * found.first, one * found.end, one, one * 0, one == 1)
    measured = measure_rows(Activity.of(trace, sequence.device), sequence, rows)
    values = dict(measured.values) | {"index": one * 0, "warmup": one == 0}
    table = as_table(type(measured)(values, np.ones(1, bool)), ITERATIONS)
    begin, until = found.bounds
    length = until - begin
    times = {"start_ns": begin, "end_ns": until, "iteration_ns": length, "operation_ns": length}
    columns = {name: pl.lit(ns, pl.Int64) for name, ns in (times | {"busy_ns": 0, "idle_ns": length}).items()}
    unknown = {"interval_ns": pl.lit(None, pl.Int64), "overlap_ratio": pl.lit(None, pl.Float64)}
    return measure_again(trace, sequence, table.with_columns(**columns, **unknown))
