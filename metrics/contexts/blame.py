"""How much of what happened on a device, or of spans of time on the host, each context accounts for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.trace import WORK_ACTIVITIES
from deepprof.metrics.breakdown.costs import windows_of
from deepprof.metrics.breakdown.parts import BUSY_PARTS
from deepprof.metrics.breakdown.timeline import kind_of_work
from deepprof.metrics.contexts.per_loop import LoopContexts
from deepprof.metrics.contexts.slices import find_open
from deepprof.metrics.names import with_names
from deepprof.metrics.spans import Spans, covered

Floats = npt.NDArray[np.float64]

SAMPLES = 2_000  # moments at which the host is examined: shares are right to about a hundredth


def blame_events(seen: LoopContexts, parts: Sequence[str]) -> Floats:
    """Return for every context the time in ns of its events of busy `parts` within the usual iterations."""
    events = with_names(seen.trace.device_events, seen.trace.names).with_columns(of=pl.Series(seen.tree.of_events))
    wanted = kind_of_work().is_in([BUSY_PARTS.index(part) for part in parts])
    mine = events.filter((pl.col("device") == seen.loop.device) & pl.col("activity").is_in(WORK_ACTIVITIES) & wanted)
    inside = covered(windows_of(seen.loop), mine["start_ns"].to_numpy(), mine["end_ns"].to_numpy())
    return np.bincount(mine["of"].to_numpy(), inside, seen.table.height).astype(np.float64)


def blame_spans(seen: LoopContexts, spans: Spans, threads: pl.DataFrame | None) -> Floats:
    """Return for every context at how many of `SAMPLES` moments of the spans a thread was in it, and in nothing within.

    `threads` have `process` and `thread`; without them all threads of the host count.
    """
    ends = np.cumsum(spans.ends - spans.starts)
    if not len(ends):
        return np.zeros(seen.table.height)
    elapsed = (np.arange(SAMPLES) * 2 + 1) * ends[-1] // (2 * SAMPLES)
    at = np.searchsorted(ends, elapsed, side="right")
    moments = pl.DataFrame({"time_ns": spans.ends[at] - (ends[at] - elapsed)})
    known = seen.tree.slices.rows if threads is None else threads
    row = find_open(seen.tree.slices, moments.join(known.select("process", "thread").unique(), how="cross"))
    return np.bincount(seen.tree.of_slices[row[row >= 0]], minlength=seen.table.height).astype(np.float64)
