"""The intake of a session: which rows of a batch are passed on, as plain columns, and which are dropped as too late."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from deepprof.live.service.session.columns import (
    FARTHEST_NS,
    NOBODY,
    Columns,
    device_columns,
    select,
    values_of,
)
from deepprof.live.service.session.names import RangeFamilies, SessionNames
from deepprof.live.service.session.pending import Pending
from deepprof.live.wire.kinds import count_kinds

TIMES = {"device_events": "start_ns", "host_events": "start_ns", "annotations": "start_ns", "memory_events": "time_ns"}


@dataclass(slots=True)
class WaitingRows:
    """The waiting rows of every kind."""

    events: Pending = field(default_factory=Pending)
    calls: Pending = field(default_factory=Pending)
    ranges: Pending = field(default_factory=Pending)

    @property
    def all(self) -> tuple[Pending, ...]:
        """All three queues."""
        return self.events, self.calls, self.ranges

    @property
    def rows(self) -> int:
        """The number of rows in all queues."""
        return sum(queue.rows for queue in self.all)


@dataclass(slots=True)
class SessionIntake:
    """Checks rows against the watermark: rows that start before `promise` are dropped.

    `floor` is the latest start before the last gap, by table: rows that start before it are dropped, too. `newest` is
    the latest start so far, by table. `devices` are those followed, in the order of arrival. `dropped` counts by
    reason, `dropped_kinds` by reason and kind.
    """

    most_devices: int
    promise: int = -FARTHEST_NS
    floor: dict[str, int] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)
    devices: list[int] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)
    dropped_kinds: dict[str, dict[str, int]] = field(default_factory=dict)

    def admit(self, table: str, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of a record table that are passed on."""
        time = rows[TIMES[table]].to_numpy()
        oldest = max(self.promise, self.floor.get(table, -FARTHEST_NS))
        if time.min() >= oldest and time.max() < FARTHEST_NS:
            ready = np.ones(len(time), np.bool_)
        else:
            beyond = (time <= -FARTHEST_NS) | (time >= FARTHEST_NS)
            late = ~beyond & (time < self.promise)
            around = ~beyond & ~late & (time < oldest)
            self.drop("time", count_kinds({table: rows.filter(beyond)}))
            self.drop("late", count_kinds({table: rows.filter(late)}))
            self.drop("gap", count_kinds({table: rows.filter(around)}))
            ready = ~(beyond | late | around)
        if ready.any():
            self.newest[table] = max(self.newest.get(table, -FARTHEST_NS), int(time[ready].max()))
        return rows if ready.all() else rows.filter(ready)

    def drop(self, reason: str, kinds: Mapping[str, int]) -> None:
        """Count dropped records by kind."""
        for kind, count in kinds.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + count
            of = self.dropped_kinds.setdefault(reason, {})
            of[kind] = of.get(kind, 0) + count

    def interrupt(self) -> None:
        """Note a gap: from now on rows that start before the latest of the rows so far are dropped."""
        self.floor = dict(self.newest)

    def device_events(self, rows: pl.DataFrame) -> Columns:
        """Return device events as columns, without those of devices beyond `most_devices`."""
        found = device_columns(rows)
        devices = found["device"]
        if len(self.devices) != 1 or not (devices == self.devices[0]).all():
            numbers, first = np.unique(devices, return_index=True)
            new = [n for n in numbers[np.argsort(first)].tolist() if n not in self.devices]
            self.devices.extend(new[: max(0, self.most_devices - len(self.devices))])
            foreign = ~np.isin(devices, self.devices)
            self.drop("device", count_kinds({"device_events": pl.DataFrame({"activity": found["activity"][foreign]})}))
            found = select(found, ~foreign) if foreign.any() else found
        found["end"] = np.clip(found["end"], found["start"], FARTHEST_NS)
        return found


def call_columns(rows: pl.DataFrame, names: SessionNames) -> Columns:
    """Return the runtime's calls as columns."""
    calls = rows.filter(pl.col("category") == "runtime")
    start = calls["start_ns"].to_numpy()
    return {
        "start": start,
        "end": np.clip(values_of(calls["end_ns"].fill_null(calls["start_ns"]), 0), start, FARTHEST_NS),
        "correlation": values_of(calls["correlation"], NOBODY),
        "marks": names.marks[calls["name_id"].to_numpy()],
    }


def range_columns(rows: pl.DataFrame, names: SessionNames, families: RangeFamilies) -> Columns:
    """Return the closed ranges as columns."""
    closed = rows.filter(pl.col("end_ns") > pl.col("start_ns"))
    start = closed["start_ns"].to_numpy()
    host = (closed["side"] == "host").to_numpy()
    return {
        "start": start,
        "end": np.minimum(closed["end_ns"].to_numpy(), FARTHEST_NS),
        "device": np.where(host, -1, values_of(closed["device"], 0).astype(np.int32)),
        "family": families.find(
            closed["name_id"].to_numpy(), values_of(closed["framework"], False).astype(np.bool_), names.texts
        ),
    }
