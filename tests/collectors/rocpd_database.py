"""rocprofv3 databases made by hand, in the layouts 3.0 and 4.1 of the published schema.

No recorded sample of this format was at hand. Table and column names are those of ROCm's rocprofiler-sdk; the tables
hold the columns that matter to a reader, of the types that the schema declares.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

PLACE = ("nid", "pid", "tid", "agent_id", "queue_id", "stream_id")
KERNEL = {
    **{"id": None, "kernel_id": 1, "dispatch_id": 1, "start": 0, "end": 0, "group_segment_size": 0},
    **{"workgroup_size_x": 64, "workgroup_size_y": 1, "workgroup_size_z": 1},
    **{"grid_size_x": 64, "grid_size_y": 1, "grid_size_z": 1},
    **{"nid": 1, "pid": 900, "tid": 901, "agent_id": 4, "queue_id": 1, "stream_id": 0, "event_id": None},
}
COPY = {
    **{"id": None, "start": 0, "end": 0, "name_id": None, "dst_agent_id": 4, "src_agent_id": 0, "size": 8},
    **{"nid": 1, "pid": 900, "tid": 901, "queue_id": None, "stream_id": 0, "event_id": None},
}
REGION = {"id": None, "nid": 1, "pid": 900, "tid": 901, "start": 0, "end": 0, "name_id": None, "event_id": None}
ALLOCATION = {
    **{"id": None, "nid": 1, "pid": 900, "tid": 901, "agent_id": 4, "type": "ALLOC", "level": "REAL", "start": 0},
    **{"end": 0, "address": 0, "size": 0, "queue_id": None, "stream_id": None, "event_id": None},
}
AGENT = {"id": 4, "nid": 1, "pid": 900, "type": "GPU", "absolute_index": 4, "type_index": 0, "product_name": "MI300X"}
TABLES = {
    "metadata": ("id", "tag", "value"),
    "string": ("id", "string"),
    "info_node": ("id", "hash", "machine_id", "hostname"),
    "info_process": ("id", "nid", "pid", "command"),
    "info_agent": (*AGENT, "name", "extdata"),
    "info_kernel_symbol": ("id", "nid", "pid", "kernel_name", "display_name", "arch_vgpr_count", "accum_vgpr_count"),
    "event": ("id", "category_id", "stack_id", "parent_stack_id", "correlation_id", "extdata"),
    "pmc_event": ("id", "event_id", "pmc_id", "value"),
}
EVENTS = {"kernel_dispatch": KERNEL, "memory_copy": COPY, "region": REGION, "memory_allocate": ALLOCATION}


class Writer:
    """Writes one process's tables, ending in `ending`, into the database at `path`, in `layout` "3.0" or "4.1"."""

    def __init__(self, path: Path, layout: str, ending: str = "_0000f2a1_aaaa_bbbb") -> None:
        self.layout, self.ending = layout, ending
        self.strings: dict[str, int] = {}
        self.categories: dict[str, int] = {}
        self.tracks: dict[tuple[Any, ...], int] = {}
        self.events = 0
        self.connection = sqlite3.connect(path)
        for name, columns in TABLES.items():
            self.create(name, columns)
        place = [name for name in PLACE if layout == "4.1" or name in ("nid", "pid", "tid")]
        self.create("track", ("id", *place, "name_id"))
        if layout == "4.1":
            self.create("info_category", ("id", "name"))
        for name, columns in EVENTS.items():
            self.create(
                name, [c for c in (*columns, "track_id") if (c == "track_id" or c not in PLACE) or layout == "3.0"]
            )
        self.create("sample", ("id", "track_id", "timestamp", "event_id", *(["name_id"] if layout == "4.1" else [])))

    def create(self, name: str, columns: Iterable[str]) -> None:
        texts = ("string", "tag", "value", "type", "level", "name", "extdata")
        typed = (
            "id INTEGER PRIMARY KEY" if c == "id" else f'"{c}" {"TEXT" if c in texts else "BIGINT"}' for c in columns
        )
        self.connection.execute(f'CREATE TABLE "rocpd_{name}{self.ending}" ({", ".join(typed)})')
        self.connection.execute(
            f'CREATE VIEW IF NOT EXISTS "rocpd_{name}" AS SELECT * FROM "rocpd_{name}{self.ending}"'
        )

    def insert(self, name: str, row: Mapping[str, Any]) -> int:
        columns, marks = ", ".join(f'"{c}"' for c in row), ", ".join("?" * len(row))
        table = f'"rocpd_{name}{self.ending}"'
        done = self.connection.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", tuple(row.values()))
        return int(done.lastrowid or 0)

    def text(self, text: str) -> int:
        """Return the id of `text` in the table of strings."""
        if text not in self.strings:
            self.strings[text] = self.insert("string", {"string": text})
        return self.strings[text]

    def category(self, name: str) -> int:
        if self.layout == "3.0":
            return self.text(name)
        if name not in self.categories:
            self.categories[name] = self.insert("info_category", {"id": 7 + len(self.categories), "name": name})
        return self.categories[name]

    def event(self, category: str, correlation: int | None, extra: str = "{}") -> int:
        row = {"category_id": self.category(category), "stack_id": correlation, "correlation_id": 0, "extdata": extra}
        return self.insert("event", row)

    def track(self, row: Mapping[str, Any], name: str | None = None) -> int:
        key = (*(row.get(column) for column in PLACE), name)
        if key not in self.tracks:
            columns = PLACE if self.layout == "4.1" else ("nid", "pid", "tid")
            place = {column: row.get(column) for column in columns}
            self.tracks[key] = self.insert("track", {**place, "name_id": None if name is None else self.text(name)})
        return self.tracks[key]

    def add(self, name: str, row: Mapping[str, Any]) -> int:
        """Insert an event of table `name`: `row` over the defaults, where it ran in the way of the layout."""
        full = {**EVENTS[name], **row}
        if self.layout == "4.1":
            full = {c: v for c, v in full.items() if c not in PLACE} | {"track_id": self.track(full)}
        return self.insert(name, full)

    def kernel(self, kernel: int, start: int, end: int, correlation: int | None = None, **more: Any) -> None:
        event = self.event("KERNEL_DISPATCH", correlation)
        self.add("kernel_dispatch", {"kernel_id": kernel, "start": start, "end": end, "event_id": event, **more})

    def copy(self, direction: str, start: int, end: int, correlation: int | None = None, **more: Any) -> None:
        event = self.event("MEMORY_COPY", correlation)
        name = self.text(f"MEMORY_COPY_{direction}")
        self.add("memory_copy", {"name_id": name, "start": start, "end": end, "event_id": event, **more})

    def call(self, api: tuple[str, str], start: int, end: int, correlation: int, extra: str = "{}") -> None:
        """Insert a call or marker: `api` is its domain and its name."""
        event = self.event(api[0], correlation, extra)
        self.add("region", {"name_id": self.text(api[1]), "start": start, "end": end, "event_id": event})

    def close(self) -> None:
        self.connection.commit()
        self.connection.close()


def process(writer: Writer, agents: Sequence[Mapping[str, Any]] = (AGENT,), node: str = "n1", pid: int = 900) -> None:
    """Insert what a process states of itself, its node and its agents."""
    writer.insert("metadata", {"tag": "schema_version", "value": writer.layout})
    writer.insert("info_node", {"id": 1, "hash": 5, "machine_id": node, "hostname": "host"})
    writer.insert("info_process", {"id": pid, "nid": 1, "pid": pid, "command": "python train.py"})
    for agent in agents:
        writer.insert("info_agent", {**AGENT, **agent})


def symbol(writer: Writer, key: int, display: str | None, mangled: str | None = None, **more: Any) -> None:
    """Insert the names of the kernel `key`."""
    row = {"id": key, "nid": 1, "pid": 900, "kernel_name": mangled, "display_name": display, **more}
    writer.insert("info_kernel_symbol", row)
