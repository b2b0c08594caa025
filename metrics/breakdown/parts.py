"""The parts of a device's time: every nanosecond belongs to exactly one of them.

Busy time goes to the first of `BUSY_PARTS` that runs, so that communication, copies and memsets count only where they
are exposed: nothing computes meanwhile. Idle time goes to what the host did while the device had nothing to run.
"""

from __future__ import annotations

import polars as pl

__all__ = ["BUSY_PARTS", "COPY_PARTS", "COUNTS", "IDLE_PARTS", "PARTS", "PART_NAMES"]

COPY_PARTS = {
    "HtoD": "exposed_htod_ns",
    "DtoH": "exposed_dtoh_ns",
    "DtoD": "exposed_dtod_ns",
    "PtoP": "exposed_ptop_ns",
    None: "exposed_copy_ns",  # from host to host, or in an unrecorded direction
}
BUSY_PARTS = ("compute_ns", "exposed_communication_ns", *COPY_PARTS.values(), "exposed_memset_ns")
IDLE_PARTS = (
    "idle_input_ns",  # the host loads data
    "idle_launch_ns",  # the host is launching, but too slowly
    "idle_sync_ns",  # the host waited for the device, which then had nothing queued
    "idle_allocator_ns",  # the host is in cudaMalloc, cudaFree or a similar call
    "idle_first_use_ns",  # the host is in a call far longer than others of its name: it loads code, or starts a library
    "idle_host_ns",  # the host does any other work
    "idle_dependency_ns",  # work is queued on one stream and waits for another one
    "idle_startup_ns",  # work is queued and ready; the device itself takes the time to begin it
    "idle_shared_ns",  # work is queued, but the device works for another process
    "idle_unknown_ns",  # the trace does not show the cause
)
PART_NAMES = (*BUSY_PARTS, *IDLE_PARTS)
COUNTS = ("launches", "waits", "allocations", "builds")

# One row per iteration: the parts add up to the time from its start to the next adjacent iteration's start, or to its
# own end where none follows. Counts are runtime calls that begin in that time on the launching threads: launches,
# waits for the device, allocations and frees of device memory, and `builds` of code or graphs (modules loaded,
# graphs captured and instantiated). `waiting_ns` is the time that those threads spent in waits, whether the device was
# busy or not. `memory_nbytes` is the device memory in use at the end; null: not recorded.
PARTS = pl.Schema(
    {"index": pl.Int64()}
    | dict.fromkeys(PART_NAMES, pl.Int64())
    | dict.fromkeys(COUNTS, pl.Int64())
    | {"waiting_ns": pl.Int64(), "memory_nbytes": pl.Int64()}
)
