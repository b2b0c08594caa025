"""The threads of the host cut into segments: which slice is the innermost open one at each time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepprof.metrics.contexts.paths import measure_depths
from deepprof.metrics.contexts.slices import HostSlices

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class HostSegments:
    """Segments [`start`, `end`) of one thread, sorted and without overlap; `row` is the innermost open slice."""

    start: Int64s
    end: Int64s
    row: Int64s


def cut_thread(slices: HostSlices, track: int, depth: Int64s | None = None) -> HostSegments:
    """Return the segments of one thread; where nothing is open there is none. `depth` is that of all slices."""
    rows = np.flatnonzero((slices.track == track) & (slices.end > slices.start))
    depth = (measure_depths(slices.parent) if depth is None else depth)[rows]
    start, end = slices.start[rows], slices.end[rows]
    count = len(rows)
    # At one time the inner ones end first, then the outer ones begin first; the last one decides.
    time = np.concatenate([end, start])
    begins = np.repeat([0, 1], count)
    level = np.concatenate([-depth, depth])
    order = np.lexsort((level, begins, time))
    opened = np.concatenate([slices.parent[rows], rows])[order]
    time = time[order]
    until = np.append(time[1:], time[-1:])
    kept = (until > time) & (opened >= 0)
    return HostSegments(time[kept], until[kept], opened[kept])
