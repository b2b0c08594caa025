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
from deepprof.metrics.iteration_table import is_alike, measure_again, summarize
from deepprof.metrics.loop import Loop
from deepprof.metrics.sequence import Sequence

FEW_USUAL = 5  # usual iterations: if there are as many, one more adds nothing


def close_last(loop: Loop, trace: Trace, sequence: Sequence, host: HostSide) -> Loop:
    """Return the loop with the time of its last iteration, if few times are known and a step marker shows its end.

    Where the marker gives another time than the others take, it holds the profiler's end, or lacks what the next
    iteration would have loaded.
    """
    table = loop.iterations
    known = table["iteration_ns"].drop_nulls()
    if not 1 <= len(known) < FEW_USUAL or not table["complete"][-1] or table["iteration_ns"][-1] is not None:
        return loop
    until_ns = _find_end(host, sequence, int(table["start_ns"][-1]))
    if until_ns is None:
        return loop
    start_ns, end_ns = int(table["start_ns"][-1]), int(table["end_ns"][-1])
    whole_ns = max(until_ns, end_ns) - start_ns
    return _with_last(loop, trace, sequence, whole_ns) if is_alike(whole_ns, known) else loop


def _find_end(host: HostSide, sequence: Sequence, start_ns: int) -> int | None:
    """Return the end of the step marker in which the iteration starting at `start_ns` was launched, else None."""
    first = int(np.searchsorted(sequence.start_ns, start_ns))
    launched_ns = int(sequence.launch_ns[first]) if sequence.linked else start_ns
    around = (pl.col("start_ns") <= launched_ns) & (pl.col("end_ns") > launched_ns) & ~pl.col("framework")
    rows = host.ranges.filter((pl.col("side") == "host") & around).sort("start_ns", descending=True)
    named = rows.select("family", "end_ns").iter_rows()  # the innermost first
    return next((end for name, end in named if trust_in(name, framework=False) == "step"), None)


def _with_last(loop: Loop, trace: Trace, sequence: Sequence, whole_ns: int) -> Loop:
    """Return the loop whose last iteration takes `whole_ns`."""
    table = loop.iterations
    last = table.tail(1).with_columns(
        iteration_ns=pl.lit(whole_ns, pl.Int64),
        interval_ns=pl.col("start_ns") + whole_ns - pl.col("end_ns"),
        idle_ns=whole_ns - pl.col("busy_ns"),
    )
    closed = pl.concat([table.head(-1), measure_again(trace, sequence, last)])
    return replace(loop, iterations=closed, metrics=summarize(closed))
