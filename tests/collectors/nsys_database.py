"""Nsight Systems databases made by hand: rows to start from, and what writes and reads them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from deepprof.collectors.importers.nsys import Nsys
from deepprof.collectors.trace import Trace

PID, TID = 1234, 1235
GLOBAL_PID = (1 << 48) | (PID << 24)
GLOBAL_TID = GLOBAL_PID | TID
STRINGS = {1: "void gemm<float>(int)", 2: "gemm", 3: "cudaLaunchKernel_v7000", 4: "cuMemAlloc_v2", 5: "forward"}
KERNEL = {
    "start": 100,
    "end": 200,
    "deviceId": 0,
    "contextId": 1,
    "streamId": 7,
    "correlationId": 11,
    "globalPid": GLOBAL_PID,
    "demangledName": 1,
    "shortName": 2,
    "graphNodeId": None,
}
COPY = {
    **{k: v for k, v in KERNEL.items() if k not in ("demangledName", "shortName")},
    "bytes": 4096,
    "copyKind": 1,
    "srcKind": 1,
    "dstKind": 2,
}
CALL = {"start": 50, "end": 60, "eventClass": 0, "globalTid": GLOBAL_TID, "correlationId": 11, "nameId": 3}
RANGE = {
    "start": 10,
    "end": 20,
    "eventType": 59,
    "text": "step",
    "textId": None,
    "globalTid": GLOBAL_TID,
    "domainId": 0,
}

Rows = list[dict[str, object]]


def rows(base: dict[str, object], *changes: dict[str, object]) -> Rows:
    return [{**base, **change} for change in changes]


def without(table: Rows, *columns: str) -> Rows:
    return [{k: v for k, v in row.items() if k not in columns} for row in table]


def build(path: Path, *, strings: dict[int, object] | None = None, **tables: Rows) -> Path:
    """Write a database with `tables`; columns are those of the first row, without types like a foreign writer's."""
    connection = sqlite3.connect(path)
    strings = STRINGS if strings is None else strings
    everything = {"StringIds": [{"id": key, "value": text} for key, text in strings.items()], **tables}
    for table, content in everything.items():
        columns = list(content[0]) if content else ["id"]
        connection.execute(f'CREATE TABLE "{table}" ({", ".join(columns)})')
        marks = ", ".join("?" * len(columns))
        connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', [tuple(row.values()) for row in content])
    connection.commit()
    connection.close()
    return path


def read(path: Path) -> Trace:
    return Nsys().read(path)


def named(trace: Trace, table: str, *columns: str) -> list[tuple[object, ...]]:
    frame = getattr(trace, table)
    return frame.with_columns(name=trace.names.gather(frame["name_id"])).select(*columns).rows()


def accepts(path: Path) -> bool:
    return Nsys().accepts(path.read_bytes()[: 64 * 1024], path)
