"""A simulated nsys database with the columns of a real one, where there is no real one to repeat."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["write_capture"]

PLACE = {"deviceId": 0, "contextId": 1, "greenContextId": None, "streamId": 7}
PROCESS = (1 << 48) | (4242 << 24)
LAUNCH_SHAPE = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "staticSharedMemory", "dynamicSharedMemory")
KERNELS = ("volta_sgemm_128x64_nn", "elementwise_kernel", "reduce_kernel", "softmax_warp_forward")
NAMES = {1: "cudaLaunchKernel_v7000", 2: "cudaMemcpyAsync_v3020", 3: "cudaStreamSynchronize_v3020"}
MOMENT_NS = 10_000  # between two launches


def write_capture(path: Path, launches: int) -> None:
    """Write `launches` kernels in iterations of 100, each with its runtime call, a copy, a wait and an NVTX range."""
    iterations = range(0, launches, 100)
    tables = {
        "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(at) for at in range(launches)],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [call(at, 1) for at in range(launches)]
        + [call(launches + at, name) for at in iterations for name in (2, 3)],
        "CUPTI_ACTIVITY_KIND_MEMCPY": [
            event(at, launches + at) | {"bytes": 4096, "copyKind": 1, "srcKind": 1, "dstKind": 2} for at in iterations
        ],
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": [event(at, launches + at) | {"syncType": 3} for at in iterations],
        "NVTX_EVENTS": [nvtx(at) for at in iterations],
        "StringIds": [{"id": key, "value": name} for key, name in (NAMES | dict(enumerate(KERNELS, 10))).items()],
    }
    with closing(sqlite3.connect(path)) as connection:
        for table, rows in tables.items():
            connection.execute(f"CREATE TABLE {table} ({', '.join(rows[0])})")
            marks = ", ".join("?" * len(rows[0]))
            connection.executemany(f"INSERT INTO {table} VALUES ({marks})", [tuple(row.values()) for row in rows])  # noqa: S608
        connection.commit()


def event(at: int, correlation: int) -> dict[str, object]:
    """Return what all device events have."""
    start = at * MOMENT_NS + 5_000
    moment: dict[str, object] = {"start": start, "end": start + 3_000 + at % 7}
    return moment | PLACE | {"correlationId": correlation + 1, "globalPid": PROCESS}


def kernel(at: int) -> dict[str, object]:
    name = 10 + at % len(KERNELS)
    return event(at, at) | {"demangledName": name, "shortName": name} | dict.fromkeys(LAUNCH_SHAPE, 128)


def call(at: int, name: int) -> dict[str, object]:
    start = at * MOMENT_NS
    thread = PROCESS | 4243
    return {"start": start, "end": start + 2_000, "globalTid": thread, "correlationId": at + 1, "nameId": name}


def nvtx(at: int) -> dict[str, object]:
    start = at * MOMENT_NS
    moment = {"start": start, "end": start + 100 * MOMENT_NS - 1, "eventType": 59}
    return moment | {"text": "iteration", "globalTid": PROCESS | 4243, "textId": None, "domainId": 0}
