"""Converts a cycle of torch.profiler, as Kineto recorded it, to EVENT, RANGE and MEMORY_CHANGE records.

Torch's event objects are read only through attributes, by name, so that a test can use made-up objects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import methodcaller
from typing import Any

import numpy as np
import numpy.typing as npt

from deepprof.collectors.live.packets import (
    ANNOTATION,
    EVENT,
    HAS_CORRELATION,
    MEMORY_CHANGE,
    NO_COPY,
    NO_TOTAL,
    RANGE,
)

Array = npt.NDArray[Any]
Intern = Callable[[Sequence[str]], npt.NDArray[np.uint32]]
EventTree = Callable[[], Sequence[Any]]
"""Returns the roots of torch's tree of events, whose allocations have addresses and totals."""

FROM_TORCH = 3
ACTIVITIES = {"kernel": 0, "gpu_memcpy": 1, "gpu_memset": 2, "cuda_sync": 4}
RUNTIME = 1
CATEGORIES = {
    "cpu_op": 0,
    "cuda_runtime": RUNTIME,
    "cuda_driver": RUNTIME,
    "python_function": 2,
    "overhead": 4,
    "user_annotation": ANNOTATION,
}
MEMORY = "memory"  # an instant event of this name
MEMORY_MARK, INSTANT = "[memory]", "cpu_instant_event"
HOST_MEMORY = -1
COPIES = {"HtoD": 0, "DtoH": 1, "DtoD": 2, "PtoP": 3, "HtoH": 4}
DETAIL = re.compile(r'"(bytes|context|graph id|graph node id)": (\d{1,19})\b')
SMALL = 2**32 - 1


@dataclass(frozen=True, slots=True, eq=False)
class ProfilerCycle:
    """EVENT, RANGE and MEMORY_CHANGE records on the Unix clock; `skipped` counts Kineto's events of other kinds."""

    events: Array
    ranges: Array
    skipped: int = 0
    changes: Array = field(default_factory=lambda: np.zeros(0, MEMORY_CHANGE))

    @property
    def count(self) -> int:
        """Number of records."""
        return len(self.events) + len(self.ranges) + len(self.changes)


def read_cycle(events: Sequence[Any], intern: Intern, tree: EventTree | None = None) -> ProfilerCycle:
    """Return the records of `events`, those of `prof.profiler.kineto_results.events()`; costs some µs for each.

    `tree` is requested where memory was recorded; without it changes of memory have no address and no totals.
    """
    shown = [event for event in events if not _is_hidden(event)]
    kinds = [kind_of(event) for event in shown]
    marks = [event for event, kind in zip(shown, kinds, strict=True) if kind == MEMORY]
    device = [event for event, kind in zip(shown, kinds, strict=True) if kind in ACTIVITIES]
    host = [event for event, kind in zip(shown, kinds, strict=True) if kind in CATEGORIES]
    activities = [ACTIVITIES[kind] for kind in kinds if kind in ACTIVITIES]
    categories = [CATEGORIES[kind] for kind in kinds if kind in CATEGORIES]
    rows, ranges = _device_rows(device, activities, intern), _host_rows(host, categories, intern)
    skipped = len(shown) - len(device) - len(host) - len(marks)
    return ProfilerCycle(rows, ranges, skipped, _memory_rows(marks, tree))


def _is_hidden(event: Any) -> bool:
    """Return whether torch itself hides the event from users; releases before 2.6 have no such events."""
    return hasattr(event, "is_hidden_event") and bool(event.is_hidden_event())


def kind_of(event: Any) -> str:
    """Return Kineto's activity type of `event`; for releases before 2.7 it is derived from other properties."""
    if hasattr(event, "activity_type"):
        kind = str(event.activity_type())
        return MEMORY if kind == INSTANT and event.name() == MEMORY_MARK else kind
    if event.name() == MEMORY_MARK:
        return MEMORY
    if not str(event.device_type()).endswith("CPU"):
        return _kind_on_device(event)
    if event.is_user_annotation():
        return "user_annotation"
    # an event that CUPTI recorded on the host is linked to an operator; an operator is linked to nothing
    return "cuda_runtime" if event.linked_correlation_id() > 0 or event.name().startswith("cuda") else "cpu_op"


def _kind_on_device(event: Any) -> str:
    """Return Kineto's activity type of an event on a device."""
    name = event.name()
    if event.is_user_annotation():
        return "gpu_user_annotation"
    return {"Memcpy": "gpu_memcpy", "Memset": "gpu_memset"}.get(name[:6], "kernel")


def _column(events: Sequence[Any], method: str, dtype: str = "<i8") -> Array:
    """Return what `method` returns for every event."""
    return np.array(list(map(methodcaller(method), events)), dtype)


def _times(events: Sequence[Any]) -> tuple[Array, Array]:
    """Return starts and ends, Unix ns; an end before its start counts as the start."""
    starts = _column(events, "start_ns")
    return starts, starts + np.maximum(_column(events, "duration_ns"), 0)


def _device_rows(events: Sequence[Any], activities: Sequence[int], intern: Intern) -> Array:
    """Return device events as EVENT records, in order of start."""
    rows = np.zeros(len(events), EVENT)
    rows["start_ns"], rows["end_ns"] = _times(events)
    names = [event.name() for event in events]
    rows["name"], rows["activity"] = intern(names), activities
    rows["device"] = np.maximum(_column(events, "device_index"), 0)
    rows["stream"] = _column(events, "device_resource_id") & SMALL
    correlations = _column(events, "correlation_id")
    known = (correlations > 0) & (correlations <= SMALL)
    rows["correlation"], rows["flags"] = np.where(known, correlations, 0), known * HAS_CORRELATION
    rows["copy_kind"] = [_copy_kind(name) for name in names]
    _fill_details(rows, events)
    return rows[np.argsort(rows["start_ns"], kind="stable")]


def _copy_kind(name: str) -> int:
    """Return the direction of "Memcpy HtoD (Pageable -> Device)"."""
    return COPIES.get(name[7:11], NO_COPY) if name.startswith("Memcpy ") else NO_COPY


def _fill_details(rows: Array, events: Sequence[Any]) -> None:
    """Fill in the fields that only an event's text has: bytes, context, graph; releases before 2.9 have no text."""
    if not events or not hasattr(events[0], "metadata_json"):
        return
    found: list[Mapping[str, str]] = [dict(DETAIL.findall(event.metadata_json())) for event in events]
    for column, key, most in (
        ("nbytes", "bytes", 2**63 - 1),
        ("context", "context", SMALL),
        ("graph", "graph id", SMALL),
        ("graph_node", "graph node id", 2**63 - 1),
    ):
        rows[column] = [min(int(detail.get(key, 0)), most) for detail in found]


def _host_rows(events: Sequence[Any], categories: Sequence[int], intern: Intern) -> Array:
    """Return operators, runtime calls and annotations as RANGE records, in order of start."""
    rows = np.zeros(len(events), RANGE)
    rows["start_ns"], rows["end_ns"] = _times(events)
    rows["name"], rows["category"] = intern([event.name() for event in events]), categories
    rows["thread"] = _column(events, "device_resource_id") & SMALL
    rows["source"] = FROM_TORCH
    # operators have torch's own numbers there, which would collide with those of launches
    rows["correlation"] = np.where(rows["category"] == RUNTIME, _column(events, "correlation_id"), 0)
    rows["depth"] = np.minimum(count_depths(rows["start_ns"], rows["end_ns"], rows["thread"]), 2**16 - 1)
    return rows[np.argsort(rows["start_ns"], kind="stable")]


def _memory_rows(marks: Sequence[Any], tree: EventTree | None) -> Array:
    """Return allocations and releases as MEMORY_CHANGE records, in order of time; of one time, allocations first."""
    rows = np.zeros(len(marks), MEMORY_CHANGE)
    rows["time_ns"], rows["nbytes"] = _column(marks, "start_ns"), _column(marks, "nbytes")
    on_host = [str(mark.device_type()).endswith("CPU") for mark in marks]
    rows["device"] = np.where(on_host, HOST_MEMORY, _column(marks, "device_index"))
    rows["thread"] = _column(marks, "device_resource_id") & SMALL
    rows["allocated_nbytes"] = rows["reserved_nbytes"] = NO_TOTAL
    rows = rows[np.lexsort((-rows["nbytes"], rows["time_ns"]))]
    if len(rows) and tree is not None:
        _fill_places(rows, tree)
    return rows


def _fill_places(rows: Array, tree: EventTree) -> None:
    """Fill in addresses and totals, which only the tree has, if it has the same changes."""
    found = [(node.start_time_ns, *_read_allocation(node.extra_fields)) for node in _allocations(tree())]
    columns = np.array(found, np.int64).reshape(-1, 5)
    columns = columns[np.lexsort((-columns[:, 1], columns[:, 0]))]
    if np.array_equal(columns[:, :2], np.stack([rows["time_ns"], rows["nbytes"]], axis=1)):
        rows["address"] = columns[:, 2].astype(np.uint64)
        rows["allocated_nbytes"], rows["reserved_nbytes"] = columns[:, 3], columns[:, 4]


def _read_allocation(allocation: Any) -> tuple[int, int, int, int]:
    """Return the change in bytes, the address as a signed number, and the totals of an allocation of the tree."""
    address = ((allocation.ptr or 0) + 2**63) % 2**64 - 2**63
    return allocation.alloc_size, address, allocation.total_allocated, allocation.total_reserved


def _allocations(roots: Sequence[Any]) -> Iterator[Any]:
    """Yield the nodes of a tree of events that are allocations or releases."""
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        waiting += node.children
        if node.tag.name == "Allocation":
            yield node


def count_depths(starts: Array, ends: Array, threads: Array) -> Array:
    """Return for every range how many ranges of its thread are open where it begins, shape (n,).

    Of ranges that begin together the longer one is the outer; of equal ones the first. A range that ends where another
    begins is closed there.
    """
    depths = np.zeros(len(starts), np.int64)
    order = np.lexsort((-ends, starts, threads))
    bounds = np.flatnonzero(np.diff(threads[order])) + 1
    for part in np.split(order, bounds):
        depths[part] = _depths_in_order(starts[part], ends[part])
    return depths


def _depths_in_order(starts: Array, ends: Array) -> Array:
    """Return the depths on one thread, whose ranges are sorted with the outer one first."""
    lasting = ends > starts
    opened: Array = np.cumsum(lasting) - lasting  # a range without length is never open
    closed = np.searchsorted(np.sort(ends[lasting]), starts, side="right")
    return opened - closed
