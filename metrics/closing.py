"""The last iteration of a short capture, which no other follows: a step marker may show when it ends.

Three recorded iterations are the commonest schedule; without the last one two are left, and one after warm-up.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.metrics.evidence import trust_in
from deepprof.metrics.host import HostSide
from deepprof.metrics.iteration_table import Activity, summarize
from deepprof.metrics.loop import Loop
from deepprof.metrics.sequence import Sequence
from deepprof.metrics.spans import covered, union

FEW_USUAL = 5  # usual iterations: if there are as many, one more adds nothing
ALIKE = 2.0  # times as long or as short as the others: beyond, the marker is of something else


def close_last(loop: Loop, trace: Trace, sequence: Sequence, host: HostSide) -> Loop:
    """Return the loop with the time of its last iteration, if few times are known and a step marker shows its end."""
    table = loop.iterations
    known = table["iteration_ns"].drop_nulls()
    if not 1 <= len(known) < FEW_USUAL or not table["complete"][-1] or table["iteration_ns"][-1] is not None:
        return loop
    until_ns = _find_end(host, sequence, int(table["start_ns"][-1]))
    if until_ns is None:
        return loop
    start_ns, end_ns = int(table["start_ns"][-1]), int(table["end_ns"][-1])
    whole_ns = max(until_ns, end_ns) - start_ns
    usual_ns = float(known.median())  # type: ignore[arg-type]
    if not usual_ns / ALIKE <= whole_ns <= usual_ns * ALIKE:
        return loop
    return _with_last(loop, trace, whole_ns)


def _find_end(host: HostSide, sequence: Sequence, start_ns: int) -> int | None:
    """Return the end of the step marker in which the iteration starting at `start_ns` was launched, else None."""
    first = int(np.searchsorted(sequence.start_ns, start_ns))
    launched_ns = int(sequence.launch_ns[first]) if sequence.linked else start_ns
    around = (pl.col("start_ns") <= launched_ns) & (pl.col("end_ns") > launched_ns) & ~pl.col("framework")
    rows = host.ranges.filter((pl.col("side") == "host") & around).sort("start_ns", descending=True)
    named = rows.select("family", "end_ns").iter_rows()  # the innermost first
    return next((end for name, end in named if trust_in(name, framework=False) == "step"), None)


def _with_last(loop: Loop, trace: Trace, whole_ns: int) -> Loop:
    """Return the loop whose last iteration takes `whole_ns`."""
    table, last = loop.iterations, pl.int_range(pl.len()) == pl.len() - 1
    start_ns, end_ns = int(table["start_ns"][-1]), int(table["end_ns"][-1])
    seen = Activity.of(trace, loop.device)
    window = np.array([start_ns]), np.array([start_ns + whole_ns])
    busy_ns = int(covered(union(seen.start_ns, seen.end_ns), *window)[0])
    values = {
        "iteration_ns": whole_ns,
        "interval_ns": start_ns + whole_ns - end_ns,
        "busy_ns": busy_ns,
        "idle_ns": whole_ns - busy_ns,
    }
    closed = table.with_columns(
        pl.when(last).then(pl.lit(ns, pl.Int64)).otherwise(pl.col(name)).alias(name) for name, ns in values.items()
    )
    return replace(loop, iterations=closed, metrics=summarize(closed))
