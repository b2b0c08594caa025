"""The states of an iteration, and which follows which: the paper's state graph (Gu et al., Figs. 5 and 9).

A state is one or several parts of the time (`metrics.breakdown.parts`): copies, compute, or what the device waits for.
The device enters a state where it changes to it, and at the start of every iteration. Copies next to compute are no
state: how much they overlap with the pause between iterations is in Table III.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.table_schema import TableSchema
from deepprof.collectors.trace import empty_table
from deepprof.metrics.breakdown.costs import divide
from deepprof.metrics.breakdown.parts import PART_NAMES
from deepprof.metrics.breakdown.timeline import Timeline
from deepprof.metrics.contexts.stacks import expand
from deepprof.metrics.loop import Loop

Int64s = npt.NDArray[np.int64]

STATE_PARTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "copy-from-host": ("exposed_htod_ns",),
        "compute": ("compute_ns",),
        "communication": ("exposed_communication_ns",),
        "copy-to-host": ("exposed_dtoh_ns",),
        "copy": ("exposed_dtod_ns", "exposed_ptop_ns", "exposed_copy_ns", "exposed_memset_ns"),
        "data-loading": ("idle_input_ns",),
        "launching": ("idle_launch_ns",),
        "synchronisation": ("idle_sync_ns",),
        "allocator": ("idle_allocator_ns",),
        "host": ("idle_host_ns", "idle_first_use_ns", "idle_blocked_ns"),
        "other-stream": ("idle_dependency_ns",),
        "start-up": ("idle_startup_ns", "idle_submission_ns"),
        "other-process": ("idle_shared_ns",),
        "unknown": ("idle_unknown_ns",),
    }
)
STATE_NAMES = tuple(STATE_PARTS)
I64, F64, STATE = pl.Int64(), pl.Float64(), pl.Enum(STATE_NAMES)
_STATE_OF_PART = np.array([next(k for k, s in enumerate(STATE_NAMES) if part in STATE_PARTS[s]) for part in PART_NAMES])

STATES = TableSchema.of(
    "A state of a loop's usual iterations that takes time in one of them; copies and compute first, then waits.",
    {
        "state": (STATE, "a part of the time, or `copy` and `host` for several small ones"),
        "total_ns": (I64, "its time in all usual iterations; the sum is their time"),
        "time_ns": (I64, "its time in the mean iteration; the sum is the mean iteration, to the nanosecond"),
        "share_ratio": (F64, "its share of that"),
        "entries": (F64, "how often it is entered per iteration"),
    },
)
STATE_CHANGES = TableSchema.of(
    "One state follows another; the last one of an iteration leads to the first of the next usual one, that of the "
    "last iteration to the first of the first.",
    {
        "source": (STATE, "the state that ends"),
        "target": (STATE, "the one that follows"),
        "count": (F64, "how often per iteration"),
        "starts": (F64, "how often of that with a new iteration, in which a state may follow itself"),
        "probability": (F64, "that it follows `source`; the sum over all that do is 1"),
    },
)


def measure_states(loop: Loop) -> pl.DataFrame:
    """Return the states of a loop's usual iterations, a table `STATES`; empty without any, or without a timeline."""
    rows, timeline = loop.usual, loop.timeline
    if timeline is None or rows.is_empty():
        return empty_table(STATES)
    totals = {state: int(rows.select(pl.sum_horizontal(parts).sum()).item()) for state, parts in STATE_PARTS.items()}
    visits, _ = _visit_states(timeline, *_windows(rows))
    entries = np.bincount(visits, minlength=len(STATE_NAMES)) / rows.height
    table = pl.DataFrame(
        {
            "state": pl.Series(STATE_NAMES, dtype=STATE),
            "total_ns": list(totals.values()),
            "time_ns": list(divide(totals, rows.height).values()),
            "share_ratio": np.array(list(totals.values())) / max(1, sum(totals.values())),
            "entries": entries,
        },
        schema=STATES,
    )
    return table.filter(pl.col("total_ns") > 0)


def measure_state_changes(loop: Loop) -> pl.DataFrame:
    """Return which states follow which in a loop's usual iterations, a table `STATE_CHANGES`, by source and target."""
    rows, timeline = loop.usual, loop.timeline
    if timeline is None or rows.is_empty():
        return empty_table(STATE_CHANGES)
    visits, last = _visit_states(timeline, *_windows(rows))
    kinds, many = len(STATE_NAMES), len(STATE_NAMES) ** 2
    change = visits * kinds + np.roll(visits, -1)
    count, starts = np.bincount(change, minlength=many), np.bincount(change[last], minlength=many)
    found = np.flatnonzero(count)
    source, target = np.divmod(found, kinds)
    entries = np.bincount(visits, minlength=kinds)
    names = pl.Series(STATE_NAMES, dtype=STATE)
    return pl.DataFrame(
        {
            "source": names.gather(source),
            "target": names.gather(target),
            "count": count[found] / rows.height,
            "starts": starts[found] / rows.height,
            "probability": count[found] / entries[source],
        },
        schema=STATE_CHANGES,
    )


def _windows(rows: pl.DataFrame) -> tuple[Int64s, Int64s]:
    """Return when iterations begin, and when the next ones do; those without length are left out."""
    start, length = rows["start_ns"].to_numpy(), rows["iteration_ns"].to_numpy()
    return start[length > 0], (start + length)[length > 0]


def _visit_states(timeline: Timeline, starts: Int64s, ends: Int64s) -> tuple[Int64s, npt.NDArray[np.bool_]]:
    """Return the number of every state that is entered in the windows [start, end), and whether it is a window's last.

    Windows are not empty, sorted, and are in the timeline.
    """
    if not len(timeline.parts) or not len(starts):
        return np.empty(0, np.int64), np.empty(0, np.bool_)
    bounds, states = _merge_equal(timeline)
    first = np.searchsorted(bounds, starts, side="right") - 1
    end = np.searchsorted(bounds, ends, side="left")  # past the segment in which the window ends
    many = end - first
    segments = expand(first, end)
    last = np.zeros(len(segments), np.bool_)
    last[np.cumsum(many) - 1] = True
    return states[segments], last


def _merge_equal(timeline: Timeline) -> tuple[Int64s, Int64s]:
    """Return the bounds and states of a timeline's segments, neighbours of one state as one; one bound more."""
    states = _STATE_OF_PART[timeline.parts]
    begins = np.flatnonzero(np.append(True, states[1:] != states[:-1]))
    return np.append(timeline.bounds[begins], timeline.bounds[-1]), states[begins]
