"""Sums over all events of a device, and over its iterations: the values that the exporter shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from deepprof.collectors.trace import COPY_KINDS
from deepprof.live.service.session.columns import COPY, GRAPH, KERNEL, MEMCPY, Array, Columns, Int64s, Marks, height
from deepprof.live.service.session.spans import RunningUnion
from deepprof.live.service.views import BUCKETS_S
from deepprof.metrics.iteration_table import IterationColumns
from deepprof.web.documents.live import MOST_LATEST

ITERATED = (
    *("iterations", "incomplete", "last_start_ns", "last_iteration_ns", "last_interval_ns", "last_events", "loop"),
    *("latest", "counts", "duration_sum_ns", "interval_ns", "interval_copy_ns"),
)
BOUNDS_NS = np.array([round(bound * 1e9) for bound in BUCKETS_S], np.int64)
LATEST = 256
MAX_TALLY = 2**62


def _no_counts() -> Int64s:
    """Return a histogram without iterations."""
    return np.zeros(len(BUCKETS_S) + 1, np.int64)


@dataclass(slots=True, eq=False)
class IterationTally:
    """Sums over a device's events and iterations.

    All values but `last_…` and `latest` (the times of the loop's latest complete iterations) only grow, until the
    iterations of a whole recording replace those counted.
    """

    events: int = 0
    busy: RunningUnion = field(default_factory=RunningUnion)
    kernels: RunningUnion = field(default_factory=RunningUnion)
    computing: RunningUnion = field(default_factory=RunningUnion)
    copies: RunningUnion = field(default_factory=RunningUnion)
    either: RunningUnion = field(default_factory=RunningUnion)  # kernels or copies
    copied_nbytes: dict[str, int] = field(default_factory=dict)
    iterations: int = 0
    incomplete: int = 0
    last_start_ns: int = 0
    last_iteration_ns: int = 0
    last_interval_ns: int = 0
    last_events: int = 0
    loop: int = -1
    latest: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    counts: Int64s = field(default_factory=_no_counts)
    duration_sum_ns: int = 0
    interval_ns: int = 0
    interval_copy_ns: int = 0

    def count_events(self, events: Columns, collective: Marks) -> None:
        """Count device events sorted by start; `collective` marks those with the name of a collective."""
        start, end, activity = events["start"], events["end"], events["activity"]
        self.events += height(events)
        self.busy.grow(start, end)
        works = (activity == KERNEL) | (activity == GRAPH)
        copies = activity == MEMCPY
        self.kernels.grow(start[works], end[works])
        own = works & ~(collective & (activity == KERNEL))
        self.computing.grow(start[own], end[own])
        if copies.any():
            self.copies.grow(start[copies], end[copies])
            self._count_bytes(events["copy"][copies], events["nbytes"][copies])
        either = works | copies
        self.either.grow(start[either], end[either])

    def _count_bytes(self, kinds: Int64s, nbytes: Int64s) -> None:
        for kind in COPY_KINDS:
            total = int(nbytes[kinds == COPY[kind]].sum())
            if total:
                self.copied_nbytes[kind] = min(MAX_TALLY, self.copied_nbytes.get(kind, 0) + total)

    def forget_iterations(self) -> None:
        """Reset all counts of iterations, because others replace those counted so far."""
        fresh = IterationTally()
        for name in ITERATED:
            setattr(self, name, getattr(fresh, name))

    def begin_loop(self, loop: int) -> None:
        """Note that iterations of `loop` follow; the latest times of another loop are removed."""
        if loop != self.loop:
            self.loop, self.latest = loop, self.latest[:0]

    def count_iterations(self, rows: IterationColumns) -> None:
        """Count iterations, at least one, which come after all counted before."""
        values, count = rows.values, len(rows.adjacent)
        self.iterations += count
        self.incomplete += count - int(values["complete"].sum())
        self.last_start_ns, self.last_events = int(values["start_ns"][-1]), int(values["events"][-1])
        times = values["iteration_ns"][rows.adjacent & values["complete"]]
        if len(times):
            self.last_iteration_ns = int(times[-1])
            self.latest = np.append(self.latest, times)[-LATEST:]
            self.counts = self.counts + np.bincount(np.searchsorted(BOUNDS_NS, times), minlength=len(self.counts))
            self.duration_sum_ns += int(times.sum())
        self._count_intervals(values["interval_ns"][rows.adjacent], values["overlap_ratio"][rows.adjacent])

    def _count_intervals(self, lasting: Int64s, overlap: Array) -> None:
        if len(lasting):
            self.last_interval_ns = int(lasting[-1])
            self.interval_ns += int(lasting.sum())
            self.interval_copy_ns += int(np.rint(overlap * np.maximum(lasting, 1)).sum())

    def median_ns(self) -> int:
        """Return the median time of the latest complete iterations, 0 without any."""
        return round(float(np.median(self.latest))) if len(self.latest) else 0

    def shown(self, until_ns: int) -> dict[str, Any]:
        """Return the fields of `DeviceView`; times are sums of what happened before `until_ns`."""
        kernels = self.kernels.before(until_ns)
        return {
            "iterations": self.iterations,
            "incomplete_total": self.incomplete,
            "last_iteration_start_ns": self.last_start_ns,
            "last_iteration_ns": self.last_iteration_ns,
            "last_interval_ns": self.last_interval_ns,
            "last_events": self.last_events,
            "median_iteration_ns": self.median_ns(),
            "latest_ns": tuple(self.latest[-MOST_LATEST:].tolist()),
            "duration_counts": tuple(self.counts.tolist()),
            "duration_sum_ns": self.duration_sum_ns,
            "interval_ns_total": self.interval_ns,
            "interval_copy_ns_total": self.interval_copy_ns,
            "copy_ns_total": self.copies.before(until_ns),
            "copy_exposed_ns_total": self.either.before(until_ns) - kernels,
            "copied_nbytes": MappingProxyType(dict(self.copied_nbytes)),
            "compute_ns_total": self.computing.before(until_ns),
            "busy_ns_total": self.busy.before(until_ns),
            "events_total": self.events,
        }
