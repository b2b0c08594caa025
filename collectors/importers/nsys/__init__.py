"""Nsight Systems: the SQLite database that `nsys export` writes, and the raw report, which is exported to one.

The same code reads every release from 2022.1 (schema 2.9) to 2026.2 (3.25): tables and columns are looked up by name,
and missing ones are null. Times stay nanoseconds since the session began.

The same code reads databases and directories of Parquet or Arrow files: `nsys_database` is the interface of both.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.assembly import finish
from deepprof.collectors.importers.files import NSYS_REPORTS, read_head
from deepprof.collectors.importers.launch_shapes import launch_shapes
from deepprof.collectors.importers.nsys import nsys_tables as nsys_tables
from deepprof.collectors.importers.nsys.export import REPORT_MAGIC, exported_database
from deepprof.collectors.importers.nsys.names import read_strings
from deepprof.collectors.importers.nsys.notes import read_devices, read_epoch, take_notes
from deepprof.collectors.importers.nsys.nsys_processes import list_processes, read_processes, scope_contexts
from deepprof.collectors.importers.nsys.nsys_tables import NsysTables, read_memory
from deepprof.collectors.importers.sqlite.packed import is_packed
from deepprof.collectors.importers.sqlite.recognition import list_tables
from deepprof.collectors.importers.sqlite.sqlite_database import SQLITE_MAGIC, open_database
from deepprof.collectors.trace import ANNOTATIONS, DEVICE_EVENTS, HOST_EVENTS, STACKS, Trace, empty_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from deepprof.collectors.importers.nsys.nsys_database import NsysDatabase

__all__ = ["Nsys"]

OWN_TABLES = re.compile(
    r"StringIds|CUPTI_ACTIVITY_KIND_\w+|TARGET_INFO_\w+|META_DATA_EXPORT|EXPORT_META_DATA|ANALYSIS_DETAILS|"
    r"DIAGNOSTIC_EVENT|NVTX_EVENTS"
)
NVPROF_TABLE = "StringTable"  # nvprof writes CUPTI_ACTIVITY_KIND_* tables too


class Nsys:
    """Importer of Nsight Systems captures."""

    name = "nsys"
    suffixes = (".sqlite", *NSYS_REPORTS)
    cheap_details = True

    def accepts(self, head: bytes, path: Path) -> bool:
        """Return whether `head`, the first 64 KiB of `path`, is of an nsys database or a raw report; never raises."""
        if head.startswith(SQLITE_MAGIC):
            return is_nsys(list_tables(head, path))
        return head.startswith(REPORT_MAGIC) or path.suffix in NSYS_REPORTS

    def covers(self, path: Path) -> Iterator[Path]:
        """Yield the raw report next to the database `path` that it was exported from, found by its name."""
        if path.suffix not in NSYS_REPORTS:
            stem = path.name.partition(".sqlite")[0] if ".sqlite" in path.name else path.stem
            yield from (path.with_name(stem + suffix) for suffix in NSYS_REPORTS if stem)

    def read(self, path: Path, *, details: bool = False, shapes: bool = True) -> Trace:
        """Return the capture in `path`, with clock "session".

        With `shapes` it has launch shapes, with `details` call stacks.

        A raw report is exported with the `nsys` on PATH. Raises `TraceError` when the file cannot be read, is damaged
        or is no capture, or when a raw report cannot be exported.
        """
        head = read_head(path, len(SQLITE_MAGIC)) if is_packed(path) else _read_magic(path)
        if head.startswith(SQLITE_MAGIC):
            return _read_database(path, path, details=details, shapes=shapes)
        if head.startswith(REPORT_MAGIC) or (path.suffix in NSYS_REPORTS and head):
            with exported_database(path) as database:
                return _read_database(database, path, details=details, shapes=shapes)
        problem, advice = _describe_stranger(head)
        raise TraceError(path, problem, advice)


def _read_magic(path: Path) -> bytes:
    """Return the first bytes of `path` as they are stored."""
    try:
        with path.open("rb") as file:
            return file.read(64)
    except (OSError, ValueError) as error:
        raise TraceError(path, f"cannot be read: {error}", "check the path") from error


def _describe_stranger(head: bytes) -> tuple[str, str]:
    """Return what is wrong with a file that starts with `head`, and what to do."""
    if not head:
        return "is empty", "export the report again with `nsys export --type sqlite`"
    return "is not an SQLite database", "export the report with `nsys export --type sqlite`"


def is_nsys(tables: Iterable[str]) -> bool:
    """Return whether a database with `tables` was written by nsys."""
    found = set(tables)
    return NVPROF_TABLE not in found and any(OWN_TABLES.fullmatch(table) for table in found)


def _read_database(path: Path, shown: Path, *, details: bool, shapes: bool) -> Trace:
    """Return the capture in the database `path`, which the user has as `shown`."""
    try:
        with open_database(path) as database:
            if not is_nsys(database.tables):
                raise TraceError(path, "is an SQLite database of something else", "name a database that nsys exported")
            return make_trace(database, shown, details=details, shapes=shapes)
    except TraceError as error:
        raise TraceError(shown, error.problem, error.advice) from error


def make_trace(database: NsysDatabase, path: Path, *, details: bool = False, shapes: bool = True) -> Trace:
    """Return the trace in `database`: with `shapes`, launch shapes too, with `details`, call stacks."""
    source = NsysTables(database, read_strings(database), details, shapes)
    host = nsys_tables.read_host_rows(source)
    device = nsys_tables.read_device_rows(source, host)
    annotations = nsys_tables.read_annotations(source)
    source.tally.flagged["unnamed"] += sum(int(rows["unnamed"].sum()) for rows in (host, device, annotations))
    processes = list_processes(device, host)
    device = scope_contexts(nsys_tables.scope_correlations(device, processes))
    workers = read_processes(database, device)
    host = nsys_tables.scope_correlations(host, processes).select(*HOST_EVENTS).sort("start_ns", maintain_order=True)
    # Events that start together are in the order of launch.
    device = device.sort("start_ns", "end_ns", "correlation", nulls_last=True, maintain_order=True)
    tables = {
        "device_events": device.select(*DEVICE_EVENTS),
        "host_events": host,
        "annotations": annotations.select(*ANNOTATIONS).sort("start_ns", maintain_order=True),
        "memory_events": read_memory(source),
    }
    return finish(
        path,
        "nsys",
        tables,
        source.tally,
        read=source.read.total(),
        clock="session",
        epoch_ns=read_epoch(database),
        names=source.names.series(),
        launch_shapes=launch_shapes(device),
        stacks=pl.concat([empty_table(STACKS), *source.stacks]),
        devices=read_devices(database),
        notes=take_notes(source, device, processes),
        processes=workers,
    )
