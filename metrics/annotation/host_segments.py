"""The threads of the host cut into segments: which slice is the innermost open one at every time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from deepprof.metrics.contexts.slices import HostSlices

Int64s = npt.NDArray[np.int64]


class _ThreadSegments(Struct, frozen=True, eq=False):
    """Segments [`start`, `end`) of one thread, sorted and without overlap; `row` is the innermost open slice."""

    start: Int64s
    end: Int64s
    row: Int64s


def cut_thread(slices: HostSlices, track: int) -> _ThreadSegments:
    """Return the segments of one thread; where nothing is open there is none."""
    rows = np.flatnonzero((slices.track == track) & (slices.end > slices.start))
    # At one time the inner ones end first, then the outer ones begin first: parents are before their children.
    time = np.concatenate([slices.end[rows[::-1]], slices.start[rows]])
    opened = np.concatenate([slices.parent[rows[::-1]], rows])
    order = np.argsort(time, kind="stable")
    time, opened = time[order], opened[order]
    until = np.append(time[1:], time[-1:])
    kept = (until > time) & (opened >= 0)
    return _ThreadSegments(time[kept], until[kept], opened[kept])


def join_bounds(*sorted_bounds: Int64s) -> Int64s:
    """Return all bounds once, sorted; quick where each array is sorted already."""
    bounds = np.sort(np.concatenate([np.empty(0, np.int64), *sorted_bounds]), kind="stable")
    distinct: Int64s = bounds[np.append(True, bounds[1:] != bounds[:-1])[: len(bounds)]]
    return distinct
