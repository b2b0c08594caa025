"""Growing unions of time spans: how much time they cover before a given time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deepprof.live.service.session.columns import FARTHEST_NS, Int64s


@dataclass(slots=True)
class RunningUnion:
    """The union of spans that arrive sorted by start: `total_ns` is its length, `reach_ns` its end."""

    total_ns: int = 0
    reach_ns: int = -FARTHEST_NS

    def add(self, starts: Int64s, ends: Int64s) -> Int64s:
        """Take spans sorted by start, none before those of earlier calls; return the time covered before each start."""
        if not len(starts):
            return np.empty(0, np.int64)
        reach = np.maximum.accumulate(np.append(np.int64(self.reach_ns), ends))
        new = np.maximum(ends - np.maximum(starts, reach[:-1]), 0)
        total = self.total_ns + np.cumsum(new)
        before: Int64s = total - new - np.maximum(reach[:-1] - starts, 0)
        self.total_ns, self.reach_ns = int(total[-1]), int(reach[-1])
        return before

    def grow(self, starts: Int64s, ends: Int64s) -> None:
        """Take spans like `add`, but return nothing."""
        if len(starts):
            reach = np.maximum.accumulate(np.append(np.int64(self.reach_ns), ends))
            self.total_ns += int(np.maximum(ends - np.maximum(starts, reach[:-1]), 0).sum())
            self.reach_ns = int(reach[-1])

    def before(self, time_ns: int) -> int:
        """Return the time covered before `time_ns`; no span may start after it."""
        return self.total_ns - max(0, self.reach_ns - time_ns)
