"""The host's calls: when each launch was made, and what the host had done by then.

Calls come in the order of their starts, so that everything needed later is known when a launch is read: the time spent
in calls before it, and how many waits were over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from deepprof.live.service.session.columns import NOBODY, Array, Columns, Int64s, Marks
from deepprof.live.service.session.names import GRAPH_MARK, WAIT_MARK
from deepprof.live.service.session.spans import RunningUnion

# A recorder may place a kernel before its launch, because the clocks of host and device are converted with errors of up
# to some milliseconds. A kernel waits this long for its launch (the largest error that metrics.clocks accepts).
LAG_NS = 20_000_000
UNKNOWN_NS = -(2**63)  # the launch of a kernel without one
MOST_OPEN = 1 << 12  # waits at the same time; each thread is in at most one


class Launched(NamedTuple):
    """Per kernel: its launch time, and the host's time in calls, waits and graph launches up to then."""

    launch: Int64s
    elapsed: Int64s
    waits: Int64s
    graphs: Int64s

    def any_known(self) -> bool:
        """Return whether any of them has a launch."""
        return bool((self.launch != UNKNOWN_NS).any())

    def of(self, which: Array) -> Launched:
        """Return the values of some kernels."""
        return Launched(*(values[which] for values in self))


def _no_launches(count: int) -> Launched:
    """Return the values of `count` kernels without launch records."""
    nothing = np.zeros(count, np.int64)
    return Launched(np.full(count, UNKNOWN_NS), nothing, nothing, nothing)


def _nothing() -> Int64s:
    """Return an empty array."""
    return np.empty(0, np.int64)


@dataclass(slots=True, eq=False)
class Launches:
    """The latest `most` calls with a correlation, and sums over all calls so far.

    The arrays have one length and are sorted by start. `counts` marks the calls that kernels are joined with: of
    several with one correlation the first, as long as it is among the latest.
    """

    most: int
    correlation: Array = field(default_factory=lambda: np.empty(0, np.uint64))
    start: Int64s = field(default_factory=_nothing)
    elapsed: Int64s = field(default_factory=_nothing)
    waits: Int64s = field(default_factory=_nothing)
    graphs: Int64s = field(default_factory=_nothing)
    counts: Array = field(default_factory=lambda: np.empty(0, np.bool_))
    calls: RunningUnion = field(default_factory=RunningUnion)
    waited: int = 0
    open_waits: Int64s = field(default_factory=_nothing)  # their ends, sorted
    graph_launches: int = 0

    def read(self, calls: Columns, until: int) -> None:
        """Take the calls that start before `until`, sorted by start; all earlier calls were taken before."""
        start, marks = calls["start"], calls["marks"]
        self.open_waits = np.sort(np.append(self.open_waits, calls["end"][(marks & WAIT_MARK) != 0]))
        linked = calls["correlation"] != NOBODY
        at, graphs = start[linked], start[(marks & GRAPH_MARK) != 0]
        self.elapsed = np.append(self.elapsed, self.calls.add(start, calls["end"])[linked])
        self.waits = np.append(self.waits, self.waited + np.searchsorted(self.open_waits, at, side="right"))
        self.graphs = np.append(self.graphs, self.graph_launches + np.searchsorted(graphs, at, side="right"))
        self.start = np.append(self.start, at)
        self.correlation = np.append(self.correlation, calls["correlation"][linked])
        self.counts = np.append(self.counts, np.zeros(len(at), np.bool_))
        self._settle(until, len(graphs))
        self._decide(len(at))

    def _settle(self, until: int, graphs: int) -> None:
        over = int(np.searchsorted(self.open_waits, until))
        self.waited += over
        self.open_waits = self.open_waits[over : over + MOST_OPEN].copy()
        self.graph_launches += graphs

    def _decide(self, new: int) -> None:
        """Mark which of the `new` last calls count: those without another of the same correlation just before."""
        order = np.argsort(self.correlation, kind="stable")
        same = self.correlation[order[1:]] == self.correlation[order[:-1]]
        near = order[1:] - order[:-1] < self.most
        decided = np.ones(len(order), np.bool_)
        decided[order[1:]] = ~(same & near)
        first = len(order) - new
        self.counts[first:] = decided[first:]

    def find(self, correlation: Array, start: Int64s) -> Launched:
        """Return the launches of kernels; all calls up to `LAG_NS` after the kernels' starts must be known."""
        if not len(self.start):
            return _no_launches(len(start))
        usable = np.flatnonzero(self.counts)
        order = usable[np.argsort(self.correlation[usable], kind="stable")]
        ids = self.correlation[order]
        known = np.searchsorted(self.start, start + LAG_NS)
        place, found = self._among(order, ids, correlation, known, "left")
        other, again = self._among(order, ids, correlation, known, "right")
        place, found = np.where(found, place, other), found | again
        launch = np.where(found, self.start[place], UNKNOWN_NS)
        sums = (np.where(found, values[place], 0) for values in (self.elapsed, self.waits, self.graphs))
        return Launched(launch, *sums)

    def _among(self, order: Array, ids: Array, wanted: Array, known: Array, side: str) -> tuple[Array, Marks]:
        """Return for every wanted id its first or last call, and whether that is one of the `most` latest by then."""
        if not len(order):
            return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
        if side == "left":
            index = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
        else:
            index = np.maximum(np.searchsorted(ids, wanted, side="right") - 1, 0)
        place = order[index]
        return place, (ids[index] == wanted) & (wanted != NOBODY) & (place < known) & (place >= known - self.most)

    def forget(self) -> None:
        """Keep the `most` latest calls."""
        extra = len(self.start) - self.most
        if extra > 0:
            for name in ("correlation", "start", "elapsed", "waits", "graphs", "counts"):
                setattr(self, name, getattr(self, name)[extra:].copy())

    @property
    def nbytes(self) -> int:
        """The bytes that the calls need."""
        return 41 * len(self.start) + 8 * len(self.open_waits)
