"""The memory that a process takes from CUDA and gives back, as nsys records it with `--cuda-memory-usage=true`."""

from __future__ import annotations

import polars as pl

from deepprof.collectors.importers.flags import NBYTES_LIMIT
from deepprof.collectors.importers.nsys.nsys_tables import TIME_LIMIT_NS, NsysTables, process_of
from deepprof.collectors.trace import MEMORY_EVENTS

USAGE = "CUDA_GPU_MEMORY_USAGE_EVENTS"
PAGE_FAULTS = ("CUDA_UM_CPU_PAGE_FAULT_EVENTS", "CUDA_UM_GPU_PAGE_FAULT_EVENTS")
PAGE_FAULT = "page-fault"  # of managed memory; its migrations are among the copies
SIGNS = {0: 1, 1: -1}  # memoryOperationType: allocation, deallocation
HOST_KINDS, HOST = (0, 1), -1  # memKind: pageable, pinned
COLUMNS = dict.fromkeys(("start", "globalPid", "deviceId", "address", "bytes", "memKind", "memoryOperationType"))


def read_memory(source: NsysTables) -> pl.DataFrame:
    """Return MEMORY_EVENTS, without what is in use in all: a capture need not have begun with the process.

    Faults of managed memory are counted as `page-fault`.
    """
    rows = source.rows(USAGE, dict(COLUMNS))
    rows = source.tally.keep(rows, pl.col("start").is_between(-TIME_LIMIT_NS, TIME_LIMIT_NS), "invalid-time")
    rows = source.tally.keep(rows, pl.col("memoryOperationType").is_in(list(SIGNS)), "invalid")
    rows = source.tally.keep(rows, pl.col("bytes").is_between(0, NBYTES_LIMIT), "invalid-bytes")
    on_host = pl.col("memKind").is_in(HOST_KINDS).fill_null(False)
    rows = source.tally.keep(rows, on_host | pl.col("deviceId").is_between(0, 2**16 - 1), "invalid-place")
    _count_faults(source)
    sign = pl.col("memoryOperationType").replace_strict(SIGNS, default=None, return_dtype=pl.Int64)
    known = {
        "time_ns": pl.col("start"),
        "process": process_of("globalPid"),
        "device": pl.when(on_host).then(HOST).otherwise("deviceId"),
        "address": pl.col("address").reinterpret(signed=False),
        "nbytes": pl.col("bytes") * sign,
    }
    rows = rows.select(**known).with_columns(pl.lit(None).alias(name) for name in MEMORY_EVENTS if name not in known)
    return rows.select(*MEMORY_EVENTS).cast(dict(MEMORY_EVENTS)).sort("time_ns", maintain_order=True)  # type: ignore[arg-type]


def _count_faults(source: NsysTables) -> None:
    """Count the faults of managed memory, which are in no table."""
    if faults := sum(source.rows(table, {"start": None}).height for table in PAGE_FAULTS):
        source.tally.dropped[PAGE_FAULT] += faults
