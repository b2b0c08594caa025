"""The profiler's file around the events: the header, the names of the rows, the start and end of the capture."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from deepprof.simulation.events import DEVICE, PROCESS, Event
from deepprof.simulation.machine import Machine

BASE_NS = 1_722_348_000_000_000_000
START_NS = 2_914_553_017_336  # a host that has been up for 48 minutes
DEVICE_PROPERTIES = {
    "id": DEVICE,
    "name": "NVIDIA A100-SXM4-80GB",
    "totalGlobalMem": 85_031_714_816,
    "computeMajor": 8,
    "computeMinor": 0,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerBlock": 65_536,
    "warpSize": 32,
    "sharedMemPerBlock": 49_152,
    "numSms": 108,
    "regsPerMultiprocessor": 65_536,
    "sharedMemPerBlockOptin": 166_912,
    "sharedMemPerMultiprocessor": 167_936,
}


class FileOrigin(Struct, frozen=True):
    """The rank of a file and the number of ranks, and what its host's clock shows at the simulation's zero."""

    rank: int = 0
    ranks: int = 1
    base_ns: int = BASE_NS


def make_document(machine: Machine, place: FileOrigin) -> dict[str, Any]:
    """Return the profiler's file: host operators, then device activities, names of the rows, the capture's bounds."""
    end = max((machine.host_ns, *machine.free.values()))
    header = {
        "schemaVersion": 1,
        "deviceProperties": [DEVICE_PROPERTIES],
        "cupti_version": 24,
        "cuda_runtime_version": 12040,
        "cuda_driver_version": 12040,
    }
    return {
        **header,
        **({"distributedInfo": _describe_group(place)} if place.ranks > 1 else {}),
        "trace_id": "5B2A6C1D0E7F48A9B3C4D5E6F7081920",
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": place.base_ns,
        "traceEvents": [*machine.operators, *machine.activities, *_name_rows(machine), *_mark_window(end)],
        "traceName": "/tmp/simulated.pt.trace.json",  # noqa: S108  a name in the file, nothing is written there
    }


def _describe_group(place: FileOrigin) -> Event:
    """Return what the profiler writes about a job of several ranks."""
    group = {
        "pg_name": "0",
        "pg_desc": "default_pg",
        "backend_config": "cuda:nccl",
        "pg_size": place.ranks,
        "ranks": list(range(place.ranks)),
    }
    job = {"backend": "nccl", "rank": place.rank, "world_size": place.ranks}
    return {**job, "pg_count": 1, "pg_config": [group], "nccl_version": "2.21.5"}


def _name_rows(machine: Machine) -> list[Event]:
    """Return the metadata events that name and order processes and threads."""
    processes = [(PROCESS, "python3", "CPU", PROCESS), (DEVICE, "python3", f"GPU {DEVICE}", 5_000_000 + DEVICE)]
    rows = [
        _metadata(kind, pid, 0, {key: value})
        for pid, name, label, order in processes
        for kind, key, value in (
            ("process_name", "name", name),
            ("process_labels", "labels", label),
            ("process_sort_index", "sort_index", order),
        )
    ]
    streams = [
        _metadata("thread_name", DEVICE, stream, {"name": f"stream {stream} "}) for stream in sorted(machine.free)
    ]
    return rows + streams


def _metadata(kind: str, pid: int, tid: int, args: Event) -> Event:
    return {"name": kind, "ph": "M", "ts": START_NS / 1000, "pid": pid, "tid": tid, "args": args}


def _mark_window(end_ns: int) -> list[Event]:
    start, end = START_NS / 1000, end_ns / 1000
    profiler = {"pid": "Spans", "tid": "PyTorch Profiler", "name": "PyTorch Profiler (0)", "args": {"Op count": 0}}
    instant = {"ph": "i", "s": "g"}
    return [
        {"ph": "X", "cat": "Trace", "ts": start, "dur": (end_ns - START_NS) / 1000, **profiler},
        {
            "name": "Iteration Start: PyTorch Profiler",
            **instant,
            "pid": "Traces",
            "tid": "Trace PyTorch Profiler",
            "ts": start,
        },
        {"name": "Record Window End", **instant, "pid": "", "tid": "", "ts": end},
    ]
