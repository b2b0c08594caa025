"""Notes for the report on a capture, with nsys' own diagnostics, and the devices in the capture."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import polars as pl

from deepprof.collectors.importers.nsys.nsys_tables import DEVICE_TABLES, NsysTables, process_of
from deepprof.collectors.trace import DEVICES

if TYPE_CHECKING:
    from deepprof.collectors.importers.nsys.nsys_database import NsysDatabase

SEVERITIES = {3: "error", 2: "warning"}  # 1: information, 4: verbose
EPOCH_LIMIT_NS = 2**62  # the year 2116; with the limit of times every sum stays inside int64
NO_EVENTS = (
    "the capture has no CUDA events: check that the program gets to its work on the GPU while nsys records, and "
    "capture with `nsys profile --trace=cuda,nvtx,osrt`"
)
QUOTES = 12
QUOTE_LENGTH = 300
JOINED = re.compile(r"(?<=[a-z])\.(?=[A-Z][a-z]+ )")
PROPERTIES = (
    "computeMajor",
    "computeMinor",
    "memoryBandwidth",
    "clockRate",
    "l2CacheSize",
    "maxShmemPerSm",
    "maxRegistersPerSm",
    "maxWarpsPerSm",
    "asyncEngines",
)


def read_devices(database: NsysDatabase) -> pl.DataFrame:
    """Return the GPUs of `TARGET_INFO_GPU` as DEVICES, one for every device number."""
    table = "TARGET_INFO_GPU"
    columns = dict.fromkeys(("cuDevice", "id", "totalMemory", "smCount", *PROPERTIES))
    rows = database.integers(table, columns).with_columns(database.texts(table, "name"))
    # CUPTI counts CUDA devices, while `id` counts every GPU, and an integrated one may come first.
    rows = rows.with_columns(device=pl.coalesce("cuDevice", "id")).filter(pl.col("device").is_between(0, 2**16 - 1))
    rows = rows.unique("device", keep="first", maintain_order=True).sort("device")
    properties = [
        json.dumps({k: v for k, v in row.items() if v is not None}) for row in rows[PROPERTIES].iter_rows(named=True)
    ]
    return rows.select(
        pl.col("device").cast(pl.UInt16),
        "name",
        memory_nbytes=pl.col("totalMemory").cast(pl.UInt64, strict=False),
        multiprocessors=pl.col("smCount").cast(pl.UInt32, strict=False),
        properties=pl.Series(properties, dtype=pl.String),
    ).cast(dict(DEVICES))  # type: ignore[arg-type]


def read_epoch(database: NsysDatabase) -> int | None:
    """Return when the session began, in nanoseconds since 1970 (UTC), or None if the file has no possible value."""
    start = database.integers("TARGET_INFO_SESSION_START_TIME", {"utcEpochNs": None})["utcEpochNs"].drop_nulls()
    return int(start[0]) if len(start) and 0 < start[0] < EPOCH_LIMIT_NS else None


def take_notes(source: NsysTables, device: pl.DataFrame, processes: list[int]) -> tuple[str, ...]:
    """Return what a reader of the report should know about the capture."""
    database, found = source.database, sum(source.read[table] for table in DEVICE_TABLES)
    notes = (*_describe_capture(device, processes, found), *_describe_file(database))
    return (*notes, *_quote_diagnostics(database, processes))


def _describe_capture(device: pl.DataFrame, processes: list[int], found: int) -> Iterator[str]:
    """Yield notes on what was captured and how; `found` counts the device rows read."""
    if device.is_empty():
        impossible = f"all {found} device events have impossible times or places"
        yield impossible if found else NO_EVENTS
    graphs = device.filter(pl.col("activity") == "graph").height
    if graphs:
        yield (
            f"{graphs} CUDA graph launches were captured as one event each, without their kernels; "
            "capture again with `nsys profile --cuda-graph-trace=node` to see inside"
        )
    if len(processes) > 1:
        numbers = ", ".join(map(str, processes[:8])) + (" …" if len(processes) > 8 else "")
        yield f"{len(processes)} processes used CUDA in this capture ({numbers}); each counts its own streams"


def _describe_file(database: NsysDatabase) -> Iterator[str]:
    for view in sorted(database.views):
        if view.startswith(("CUPTI_ACTIVITY_KIND_", "NVTX_EVENTS")):
            yield f"{view} is a view, not a table of nsys, and was not read"


def _quote_diagnostics(database: NsysDatabase, processes: list[int]) -> list[str]:
    """Return nsys' own errors and warnings, errors first; messages that differ only in numbers appear once.

    nsys reports "No CUDA events collected" for every helper process; if some `processes` used CUDA, messages about
    the others are left out.
    """
    table = "DIAGNOSTIC_EVENT"
    rows = database.integers(table, {"severity": None, "globalPid": None})
    rows = rows.with_columns(database.texts(table, "text"), process=process_of("globalPid").fill_null(0))
    rows = rows.filter(pl.col("severity").is_in(list(SEVERITIES))).drop_nulls("text")
    if processes:
        rows = rows.filter(pl.col("process").is_in([0, *processes]))
    rows = rows.sort("severity", descending=True, maintain_order=True).select("severity", "text")
    quotes = [f"nsys {SEVERITIES[severity]}: {_one_line(text)}" for severity, text in rows.iter_rows()]
    distinct = list({re.sub(r"\d+", "0", quote): quote for quote in reversed(quotes)}.values())[::-1]
    more = [f"nsys says {len(distinct) - QUOTES} things more"] if len(distinct) > QUOTES else []
    return distinct[:QUOTES] + more


def _one_line(text: str) -> str:
    """Return `text` on one line, cut when it is long; nsys joins sentences without a blank."""
    line = JOINED.sub(". ", " ".join(text.split()))
    return line if len(line) <= QUOTE_LENGTH else line[: QUOTE_LENGTH - 1] + "…"
