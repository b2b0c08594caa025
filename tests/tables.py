"""Small traces by hand: one line per device event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from deepprof.collectors.trace import ANNOTATIONS, CONTEXT_NODES, DEVICE_EVENTS, HOST_EVENTS, Accounting, Trace

Row = dict[str, object]


def table(rows: Sequence[Row], schema: pl.Schema) -> pl.DataFrame:
    """Return rows as a table; what they leave out is null."""
    full = [{column: row.get(column) for column in schema} for row in rows]
    return pl.DataFrame(full, schema=schema).sort(next(iter(schema)), maintain_order=True)


def event(name: int, start: int, end: int, **more: object) -> Row:
    """Return a kernel on device 0, stream 7."""
    fixed: Row = {"device": 0, "context": 1, "stream": 7, "activity": "kernel"}
    return fixed | {"name_id": name, "start_ns": start, "end_ns": end} | more


def copy(start: int, end: int, nbytes: int, kind: str = "HtoD", **more: object) -> Row:
    """Return a copy on stream 7, under the name 0."""
    return event(0, start, end, activity="memcpy", copy_kind=kind, nbytes=nbytes) | more


def launch(correlation: int, start: int, end: int, name: int = 0) -> Row:
    """Return a runtime call."""
    return {
        "start_ns": start,
        "end_ns": end,
        "process": 1,
        "thread": 1,
        "category": "runtime",
        "name_id": name,
        "correlation": correlation,
    }


def span(name: int, start: int, end: int, *, framework: bool = False, **more: object) -> Row:
    """Return an annotation on the host."""
    fixed: Row = {"side": "host", "process": 1, "thread": 1, "framework": framework}
    return fixed | {"name_id": name, "start_ns": start, "end_ns": end} | more


def make_nodes(parents: Mapping[int, int], name: int = 0, kind: str = "python") -> pl.DataFrame:
    """Return contexts with their parents, all of one name."""
    rows: list[Row] = [
        {"context": context, "parent": parent, "kind": kind, "name_id": name, "line": 3}
        for context, parent in parents.items()
    ]
    return table(rows, CONTEXT_NODES)


def make_sum(time: int, context: int, count: int = 1, host_ns: int = 5) -> Row:
    """Return what a context did in a window of 10 ns."""
    amounts: Row = {"count": count, "host_ns": host_ns, "device_count": 0, "device_ns": 0}
    return {"time_ns": time, "window_ns": 10, "context": context} | amounts


def make_trace(
    device: Sequence[Row] = (),
    host: Sequence[Row] = (),
    annotations: Sequence[Row] = (),
    names: Sequence[str] = (),
    rank: int | None = None,
) -> Trace:
    """Return a valid trace of these rows; names are `k0`, `k1` … where none are given."""
    most = max([int(str(row["name_id"])) for row in (*device, *host, *annotations)], default=-1) + 1
    listed = list(names) + [f"k{i}" for i in range(len(names), most)]
    count = len(device) + len(host) + len(annotations)
    return Trace(
        path="made by hand",
        format="test",
        names=pl.Series(listed, dtype=pl.String),
        accounting=Accounting(count, count),
        device_events=table(device, DEVICE_EVENTS),
        host_events=table(host, HOST_EVENTS),
        annotations=table(annotations, ANNOTATIONS),
        rank=rank,
    )
