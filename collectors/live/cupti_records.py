"""Converts CUPTI's activity records, as cupti-python delivers them, to EVENT records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from deepprof.collectors.live.packets import EVENT, HAS_CORRELATION, NO_COPY

Array = npt.NDArray[Any]
Intern = Callable[[Sequence[str]], npt.NDArray[np.uint32]]

KERNELS, COPIES, MEMSET, GRAPH, SYNC = (3, 10), (1, 22), 2, 51, 38  # values of CUpti_ActivityKind
ACTIVITIES = {3: 0, 10: 0, 1: 1, 22: 1, MEMSET: 2, GRAPH: 3, SYNC: 4}
COPY_NAMES = ("HtoD", "DtoH", "DtoD", "PtoP", "HtoH")
# CUpti_ActivityMemcpyKind; arrays are on the device.
COPY_KINDS = {1: 0, 2: 1, 3: 0, 4: 1, 5: 2, 6: 2, 7: 2, 8: 2, 9: 4, 10: 3}
SYNC_NAMES = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
SMALL = 2**32 - 1
LATEST_NS = 2**63 - 1


@dataclass(frozen=True, slots=True, eq=False)
class _Decoded:
    """EVENT records on CUPTI's clock; `invalid` counts records without sane times, `skipped` those of other kinds."""

    events: Array
    invalid: int = 0
    skipped: int = 0


def decode(activities: Sequence[Any], intern: Intern) -> _Decoded:
    """Return the records of one buffer in order of start. `activities` must not be kept: CUPTI reclaims the buffer."""
    kinds = [int(activity.kind) for activity in activities]
    known = [activity for activity, kind in zip(activities, kinds, strict=True) if kind in ACTIVITIES]
    kinds = [kind for kind in kinds if kind in ACTIVITIES]
    rows = np.zeros(len(known), EVENT)
    starts, ends = _times(known, "start"), _times(known, "end")
    rows["start_ns"], rows["end_ns"] = starts, ends
    for field in ("correlation", "context", "stream"):
        rows[field] = _column(known, f"{field}_id") & SMALL
    for field, attribute in (("device", "device_id"), ("graph", "graph_id"), ("graph_node", "graph_node_id")):
        rows[field] = _column(known, attribute, missing=0)
    rows["nbytes"] = _column(known, "bytes", missing=0)
    rows["activity"] = [ACTIVITIES[kind] for kind in kinds]
    rows["copy_kind"] = [_copy_kind(activity, kind) for activity, kind in zip(known, kinds, strict=True)]
    rows["flags"] = (rows["correlation"] > 0) * HAS_CORRELATION
    rows["name"] = intern([_name_of(activity, kind) for activity, kind in zip(known, kinds, strict=True)])
    sane = (starts > 0) & (ends >= starts) & (ends <= LATEST_NS)
    rows = rows[sane]
    order = np.argsort(rows["start_ns"], kind="stable")
    return _Decoded(rows[order], int(np.count_nonzero(~sane)), len(activities) - len(known))


def _times(activities: Sequence[Any], attribute: str) -> Array:
    """Return a time of every record as CUPTI gives it, UInt64: all ones where it is garbage."""
    return np.array(list(map(attrgetter(attribute), activities)), np.uint64)


def _column(activities: Sequence[Any], attribute: str, missing: int | None = None) -> Array:
    """Return an attribute of every record, Int64; with `missing`, UInt64 and that value where a record has none."""
    if missing is None:
        return np.array(list(map(attrgetter(attribute), activities)), np.int64)
    return np.array([getattr(activity, attribute, missing) for activity in activities], np.uint64)


def _copy_kind(activity: Any, kind: int) -> int:
    """Return a copy's direction; copies between devices have an activity kind of their own."""
    if kind not in COPIES:
        return NO_COPY
    return COPY_KINDS.get(int(activity.copy_kind), NO_COPY if kind == COPIES[0] else COPY_NAMES.index("PtoP"))


def _name_of(activity: Any, kind: int) -> str:
    """Return a record's name: that of a kernel mangled, as compiled; other names as the importers write them."""
    if kind in KERNELS:
        return str(activity.name)
    if kind in COPIES:
        place = _copy_kind(activity, kind)
        return "Memcpy" if place == NO_COPY else f"Memcpy {COPY_NAMES[place]}"
    if kind == GRAPH:
        return f"CUDA graph {activity.graph_id}"
    return "Memset" if kind == MEMSET else SYNC_NAMES.get(int(activity.type), "Sync")
