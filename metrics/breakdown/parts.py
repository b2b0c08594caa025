"""The parts of a device's time: every nanosecond belongs to exactly one of them.

Busy time goes to the first of `BUSY_PARTS` that runs, so that communication, copies and memsets count only where they
are exposed: nothing computes meanwhile. Idle time goes to what the host did while the device had nothing to run.
"""

from __future__ import annotations

import polars as pl

from deepprof.collectors.table_schema import Columns, TableSchema

COPY_PARTS = {
    "HtoD": "exposed_htod_ns",
    "DtoH": "exposed_dtoh_ns",
    "DtoD": "exposed_dtod_ns",
    "PtoP": "exposed_ptop_ns",
    None: "exposed_copy_ns",  # HtoH too
}
BUSY_MEANINGS = {
    "compute_ns": "a kernel or a graph runs that is no collective",
    "exposed_communication_ns": "only collectives run",
    "exposed_htod_ns": "only copies from the host run",
    "exposed_dtoh_ns": "only copies to the host run",
    "exposed_dtod_ns": "only copies within the device run",
    "exposed_ptop_ns": "only copies between devices run",
    "exposed_copy_ns": "only copies from host to host, or in an unrecorded direction, run",
    "exposed_memset_ns": "only memsets run",
}
IDLE_MEANINGS = {
    "idle_input_ns": "idle: the host loads data",
    "idle_launch_ns": "idle: the host is launching, but too slowly",
    "idle_sync_ns": "idle: the host waited for the device, which then had nothing queued",
    "idle_allocator_ns": "idle: the host is in cudaMalloc, cudaFree or a similar call",
    "idle_first_use_ns": "idle: the host uses something for the first time; it loads code, or starts a library",
    "idle_blocked_ns": "idle: the host is blocked in a call that usually returns at once",
    "idle_host_ns": "idle: the host does any other work",
    "idle_dependency_ns": "idle: work is queued on one stream and waits for another one",
    "idle_startup_ns": "idle: work is queued and ready; the device itself takes the time to begin it",
    "idle_submission_ns": "idle: work is queued and ready; the driver hands it over to the idle device late",
    "idle_shared_ns": "idle: work is queued, but the device works for another process",
    "idle_unknown_ns": "idle: the trace does not show the cause",
}
COUNT_MEANINGS = {
    "launches": "launches",
    "waits": "waits for the device",
    "allocations": "allocations and frees of device memory",
    "builds": "modules loaded, graphs captured and instantiated",
}
BUSY_PARTS, IDLE_PARTS = tuple(BUSY_MEANINGS), tuple(IDLE_MEANINGS)
PART_NAMES = (*BUSY_PARTS, *IDLE_PARTS)
COUNTS = tuple(COUNT_MEANINGS)

PART_COLUMNS: Columns = {name: (pl.Int64(), meaning) for name, meaning in (BUSY_MEANINGS | IDLE_MEANINGS).items()}
PARTS = TableSchema.of(
    "The parts of one iteration's time: their sum is the time from its start to the next adjacent iteration's, or to "
    "its own end where none follows. Counts are calls that begin in that time on the threads that launch.",
    {
        "index": (pl.Int64(), "the iteration's number in the loop"),
        **PART_COLUMNS,
        **{name: (pl.Int64(), f"calls: {meaning}") for name, meaning in COUNT_MEANINGS.items()},
        "waiting_ns": (pl.Int64(), "how long those threads waited for the device, whether it was busy or not"),
        "memory_nbytes": (pl.Int64(), "device memory in use at the end; null: not recorded"),
    },
)
