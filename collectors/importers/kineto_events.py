"""Decoded Kineto events as raw columns, one frame per kind, batch after batch.

Times are still microseconds as written here: `ts` and `dur` Float64. `name_id` indexes `EventColumns.names`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import polars as pl

from deepprof.collectors.importers.columns import Names, integers, numbers, texts, unsigned
from deepprof.collectors.importers.flags import Tally
from deepprof.collectors.importers.kineto_kinds import DROPPED_KINDS, Kinds
from deepprof.collectors.importers.kineto_schema import Event

__all__ = ["EventColumns"]

Column = tuple[str, Callable[[Sequence[Any]], pl.Series]]  # where the value stands in an Event, and its type


def floats(values: Sequence[Any]) -> pl.Series:
    """Return `values` as Float64, NaN for what is no number."""
    return pl.Series(numbers(values))


def json_texts(values: Sequence[Any]) -> pl.Series:
    """Return raw JSON `values` as String, null for `null`."""
    texts = [str(bytes(value), errors="replace") for value in values]
    return pl.Series([None if text == "null" else text for text in texts], dtype=pl.String)


COMMON: Mapping[str, Column] = {
    "ts": ("ts", floats),
    "dur": ("dur", floats),
    "pid": ("pid", integers),
    "tid": ("tid", integers),
}
LAUNCHED: Mapping[str, Column] = {
    **COMMON,
    "external_id": ("args.external_id", unsigned),
    "old_external_id": ("args.old_external_id", unsigned),
    "correlation": ("args.correlation", unsigned),
}
PLACED: Mapping[str, Column] = {"device": ("args.device", integers), "stream": ("args.stream", integers)}
DEVICE: Mapping[str, Column] = {
    **LAUNCHED,
    **PLACED,
    "context": ("args.context", integers),
    "nbytes": ("args.nbytes", integers),
    "graph_node": ("args.graph_node", unsigned),
}
OP: Mapping[str, Column] = {
    **COMMON,
    "external_id": ("args.external_id", unsigned),  # operators have always had this spelling
    "sequence": ("args.sequence", integers),
    "forward_thread": ("args.forward_thread", integers),
    "flops": ("args.flops", unsigned),
}
COLUMNS: Mapping[str, Mapping[str, Column]] = {
    "kernel": {
        **DEVICE,
        "collective": ("args.collective", texts),
        "dtype": ("args.dtype", texts),
        "in_elements": ("args.in_elements", unsigned),
        "out_elements": ("args.out_elements", unsigned),
        "group": ("args.group", texts),
        "group_size": ("args.group_size", unsigned),
        "collective_sequence": ("args.collective_sequence", unsigned),
    },
    "memcpy": DEVICE,
    "memset": DEVICE,
    "sync": DEVICE,
    "op": OP,
    "runtime": LAUNCHED,
    "python": {
        **COMMON,
        "span_id": ("args.span_id", integers),
        "parent_id": ("args.parent_id", integers),
        "module_id": ("args.module_id", integers),
    },
    "overhead": COMMON,
    "host annotation": COMMON,
    "device annotation": {**COMMON, **PLACED},
    "instant": {
        **COMMON,
        "name": ("name", texts),
        "device_type": ("args.device_type", integers),
        "device_id": ("args.device_id", integers),
        "nbytes": ("args.changed", integers),
        "address": ("args.address", unsigned),
        "allocated_nbytes": ("args.allocated", unsigned),
        "reserved_nbytes": ("args.reserved", unsigned),
    },
}
DETAILS: Mapping[str, Column] = {
    "dims": ("args.dims", json_texts),
    "old_dims": ("args.old_dims", json_texts),
    "dtypes": ("args.dtypes", json_texts),
    "stack": ("args.stack", texts),
}


class EventColumns:
    """Collects batches of events into columns.

    `read` counts all events and is the caller's to set; `tally` counts the events of kinds that no table holds,
    `foreign` those of other accelerators by category.
    """

    def __init__(self, *, details: bool) -> None:
        self.names = Names()
        self.read = 0
        self.tally = Tally()
        self.foreign: Counter[str] = Counter()
        self.columns = {**COLUMNS, "op": {**OP, **DETAILS}} if details else dict(COLUMNS)
        self.kinds = Kinds()
        self.batches: dict[str, list[pl.DataFrame]] = {}

    def add(self, events: list[Event]) -> None:
        """Add a batch of decoded `events`."""
        kinds = self.kinds.of([event.ph for event in events], [event.cat for event in events])
        groups: dict[str, list[Event]] = {kind: [] for kind in dict.fromkeys(kinds)}  # a set has no fixed order
        for event, kind in zip(events, kinds, strict=True):
            groups[kind].append(event)
        for kind, group in groups.items():
            if kind in DROPPED_KINDS:
                self.tally.dropped[kind] += len(group)
                self.foreign.update(event.cat for event in group if kind == "other-device")
            else:
                self.batches.setdefault(kind, []).append(self.frame(kind, group))

    def frame(self, kind: str, group: list[Event]) -> pl.DataFrame:
        """Return the columns that events of `kind` have."""
        args = [event.args for event in group]  # once: two steps per value would cost four times as much
        columns = {
            column: convert([*map(attrgetter(place.removeprefix("args.")), args if "." in place else group)])
            for column, (place, convert) in self.columns[kind].items()
        }
        if kind != "instant":  # whose names would only fill the names table
            columns["name_id"] = self.names.ids([event.name for event in group])
        return pl.DataFrame(columns)

    def frames(self) -> dict[str, pl.DataFrame]:
        """Return one frame per kind that occurs, and forget the batches."""
        batches, self.batches = self.batches, {}
        return {kind: pl.concat(frames) for kind, frames in batches.items()}
