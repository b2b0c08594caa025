"""Time on devices by the calling context that launched it: events join launches by correlation, in any order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from deepprof.collectors.live.packets import HAS_CORRELATION, RECORD_KINDS
from deepprof.live.agent.reordering import Rows

MOST_LAUNCHES, MOST_EVENTS = 1 << 18, 1 << 18  # that wait for each other
PATIENCE_NS = 10_000_000_000  # for which one waits: a device runs what was launched some seconds later, if that
LONGEST_NS = 2**42  # of one event in a sum: sums of all that wait stay inside int64
SYNC = RECORD_KINDS.index("sync")  # an activity is its kind of record

Int64s = npt.NDArray[np.int64]
_KNOWN = np.dtype([("correlation", "<u4"), ("context", "<u4"), ("came_ns", "<i8")])
_EVENT = np.dtype([("correlation", "<u4"), ("ns", "<i8"), ("came_ns", "<i8")])


@dataclass(slots=True, eq=False)
class ContextDeviceTimes:
    """Device events and launches that wait for each other, and what contexts have launched since it was taken.

    `unjoined` counts events that no launch came for: another thread launched them, or an iteration was left out.
    """

    launches: Rows = field(default_factory=lambda: np.empty(0, _KNOWN))  # in the order in which they arrived
    events: Rows = field(default_factory=lambda: np.empty(0, _EVENT))
    fresh_launches: list[Rows] = field(default_factory=list)
    fresh_events: list[Rows] = field(default_factory=list)
    counts: Int64s = field(default_factory=lambda: np.zeros(1, np.int64))  # by context
    times_ns: Int64s = field(default_factory=lambda: np.zeros(1, np.int64))
    unjoined: int = 0

    def add_launches(self, rows: Rows, now_ns: int) -> None:
        """Take LAUNCH rows, whose contexts are known."""
        self.fresh_launches.append(_stamped(rows, _KNOWN, now_ns, ("correlation", "context")))
        if sum(map(len, self.fresh_launches)) > MOST_LAUNCHES:
            self.join(now_ns)

    def add_events(self, rows: Rows, now_ns: int) -> None:
        """Take EVENT rows; waits are none, and those without a correlation join nothing."""
        rows = rows[rows["activity"] != SYNC]
        joinable = (rows["flags"] & HAS_CORRELATION) != 0
        self.unjoined += len(rows) - int(joinable.sum())
        rows = rows[joinable]
        events = _stamped(rows, _EVENT, now_ns, ("correlation",))
        events["ns"] = np.minimum(rows["end_ns"] - rows["start_ns"], LONGEST_NS)
        self.fresh_events.append(events)
        if sum(map(len, self.fresh_events)) > MOST_EVENTS:
            self.join(now_ns)

    def join(self, now_ns: int) -> None:
        """Add the events that have a launch to its context, and let go of what has waited too long."""
        self.launches = _latest([self.launches, *self.fresh_launches], MOST_LAUNCHES)
        self.events = np.concatenate([self.events, *self.fresh_events])
        self.fresh_launches, self.fresh_events = [], []
        contexts = self._find_contexts(self.events["correlation"])
        self._count(contexts[contexts > 0], self.events["ns"][contexts > 0])
        waiting = self.events[contexts == 0]
        kept = _latest([waiting[waiting["came_ns"] > now_ns - PATIENCE_NS]], MOST_EVENTS)
        self.unjoined += len(waiting) - len(kept)
        self.events = kept
        self.launches = self.launches[self.launches["came_ns"] > now_ns - PATIENCE_NS]

    def _find_contexts(self, correlations: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        """Return which context launched each event, as the latest of equal correlations shows, 0 where none does."""
        if not len(self.launches):
            return np.zeros(len(correlations), np.uint32)
        order = np.argsort(self.launches["correlation"], kind="stable")
        known = self.launches["correlation"][order]
        places = np.searchsorted(known, correlations, side="right") - 1
        found = (places >= 0) & (known[places] == correlations)
        contexts: npt.NDArray[np.uint32] = np.where(found, self.launches["context"][order][places], 0)
        return contexts

    def _count(self, contexts: npt.NDArray[np.uint32], times_ns: Int64s) -> None:
        if not len(contexts):
            return
        most = int(contexts.max()) + 1
        if most > len(self.counts):
            more = max(most, 2 * len(self.counts)) - len(self.counts)
            self.counts, self.times_ns = np.pad(self.counts, (0, more)), np.pad(self.times_ns, (0, more))
        np.add.at(self.counts, contexts, 1)
        np.add.at(self.times_ns, contexts, times_ns)
        np.minimum(self.times_ns, LONGEST_NS, out=self.times_ns)

    def take(self, contexts: npt.NDArray[np.uint32]) -> tuple[Int64s, Int64s]:
        """Return the number and time of what was launched, of each of `contexts` the first time that it comes."""
        counts, times_ns = np.zeros(len(contexts), np.int64), np.zeros(len(contexts), np.int64)
        found, places = np.unique(contexts, return_index=True)
        known = found < len(self.counts)
        found, places = found[known], places[known]
        counts[places], times_ns[places] = self.counts[found], self.times_ns[found]
        self.counts[found] = self.times_ns[found] = 0
        return counts, times_ns

    def finish(self, now_ns: int) -> int:
        """Return how many events came into no sum, now that nothing follows."""
        self.join(now_ns)
        return self.unjoined + len(self.events) + int(self.counts.sum())


def _stamped(rows: Rows, dtype: np.dtype[np.void], now_ns: int, fields: Iterable[str]) -> Rows:
    stamped = np.zeros(len(rows), dtype)
    stamped["came_ns"] = now_ns
    for name in fields:
        stamped[name] = rows[name]
    return stamped


def _latest(parts: list[Rows], most: int) -> Rows:
    """Return the last `most` rows of all parts."""
    return np.concatenate(parts)[-most:]
