"""rocmProfileData files made by hand: tables and columns as in real files of schema 2 and 3."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

COLUMNS = {
    "rocpd_string": ("id", "string"),
    "rocpd_ustring": ("id", "string"),
    "rocpd_metadata": ("id", "tag", "value"),
    "rocpd_op": ("id", "gpuId", "queueId", "sequenceId", "start", "end", "description_id", "opType_id"),
    "rocpd_api": ("id", "pid", "tid", "start", "end", "apiName_id", "args_id", "category_id", "domain_id"),
    "rocpd_api_ops": ("id", "api_id", "op_id"),
    "rocpd_kernelapi": (
        *("api_ptr_id", "stream", "gridX", "gridY", "gridZ", "workgroupX", "workgroupY", "workgroupZ"),
        *("groupSegmentSize", "kernelName_id"),
    ),
    "rocpd_copyapi": ("api_ptr_id", "stream", "size", "kind", "dstDevice", "srcDevice"),
    "rocpd_stackframe": ("id", "api_ptr_id", "depth", "name_id"),
    "rocpd_monitor": ("id", "deviceType", "deviceId", "monitorType", "start", "end", "value"),
}
TEXTS = ("string", "stream", "tag", "value", "deviceType", "monitorType")


def build(
    path: Path, strings: Iterable[str] = (), leave_out: Iterable[str] = (), **tables: Iterable[Mapping[str, Any]]
) -> Path:
    """Write a database with `tables` and with `strings` numbered from 1; without what `leave_out` names."""
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    numbered = [{"id": at, "string": text} for at, text in enumerate(strings, 1)]
    for table, columns in COLUMNS.items():
        if table in leave_out or (table == "rocpd_ustring" and table not in tables):
            continue
        kept = [column for column in columns if f"{table}.{column}" not in leave_out]
        types = [
            f'"{c}" ' + ("integer PRIMARY KEY" if c == "id" else "text" if c in TEXTS else "integer") for c in kept
        ]
        connection.execute(f"CREATE TABLE {table} ({', '.join(types)})")
        for row in numbered if table == "rocpd_string" else tables.get(table, ()):
            names = ", ".join(f'"{name}"' for name in row)
            marks = ", ".join("?" * len(row))
            connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(row.values()))
    connection.commit()
    connection.close()
    return path


def op(start: int, operation: int, description: int = 1, **more: Any) -> dict[str, Any]:
    """An operation of 10 ns on queue 0 of GPU 2; texts by number, the first one is empty."""
    row = {"gpuId": 2, "queueId": 0, "sequenceId": 0, "start": start, "end": start + 10}
    return {**row, "description_id": description, "opType_id": operation, **more}


def call(key: int, name: int, args: int = 1, **more: Any) -> dict[str, Any]:
    """A call of 5 ns."""
    return {"id": key, "pid": 7, "tid": 8, "start": key, "end": key + 5, "apiName_id": name, "args_id": args, **more}
