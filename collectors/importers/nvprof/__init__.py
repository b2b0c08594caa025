"""nvprof's database (`nvprof -o trace.nvvp`), which is also what the Visual Profiler saves.

Tables and columns are looked up by name, and missing ones are null. Times stay nanoseconds since 1970; kernel names are
mangled in the file, and `collectors.names.demangle` spells them out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import polars as pl

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.assembly import Records, assemble
from deepprof.collectors.importers.nvprof import nvprof_tables as nvprof_tables
from deepprof.collectors.importers.nvprof.csv_files import list_others
from deepprof.collectors.importers.nvprof.nvprof_tables import ACTIVITY, NvprofTables
from deepprof.collectors.importers.sqlite.recognition import list_tables
from deepprof.collectors.importers.sqlite.sqlite_database import SQLITE_MAGIC, SqliteDatabase, open_database
from deepprof.collectors.times import EARLIEST_UNIX_NS
from deepprof.collectors.trace import DEVICES, Trace

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Nvprof", "is_nvprof"]

PROPERTIES = (
    "computeCapabilityMajor",
    "computeCapabilityMinor",
    "globalMemoryBandwidth",
    "coreClockRate",
    "l2CacheSize",
    "maxSharedMemoryPerMultiprocessor",
    "maxRegistersPerMultiprocessor",
    "maxWarpsPerMultiprocessor",
    "numMemcpyEngines",
)


class Nvprof:
    """Importer of nvprof databases."""

    name = "nvprof"
    suffixes = (".nvvp", ".nvprof", ".sql", ".sqlite")

    def accepts(self, head: bytes, path: Path) -> bool:
        """Return whether `head`, the first 64 KiB of `path`, is of an nvprof database; never raises."""
        return head.startswith(SQLITE_MAGIC) and is_nvprof(list_tables(head, path))

    def covers(self, path: Path) -> tuple[Path, ...]:
        """Return the tables of pyprof and summaries that are next to the database they were made from."""
        return list_others(path)

    def read(self, path: Path, *, details: bool = False, shapes: bool = True) -> Trace:
        """Return the profile in `path`, with clock "unix" ("session" where its times do not count from 1970).

        Memory: about 300 bytes for every row of the file. Raises `TraceError` when the file cannot be read, is damaged
        or is no profile.
        """
        with open_database(path) as database:
            if not is_nvprof(database.tables):
                problem = "is an SQLite database of something else"
                raise TraceError(path, problem, "name a database that `nvprof -o` wrote")
            return _make_trace(database, path)


def is_nvprof(tables: Iterable[str]) -> bool:
    """Return whether a database with `tables` was written by nvprof; nsys has StringIds in place of StringTable."""
    found = set(tables)
    return "StringTable" in found and any(table.startswith(ACTIVITY) for table in found)


def _make_trace(database: SqliteDatabase, path: Path) -> Trace:
    """Return the trace in `database`."""
    source = NvprofTables(database)
    calls = nvprof_tables.read_calls(source)
    device = nvprof_tables.read_device_rows(source, calls)
    overhead, markers = nvprof_tables.read_overhead(source), nvprof_tables.read_markers(source)
    host = pl.concat([calls, overhead], how="diagonal")
    records = Records(device=device, host=host, annotations=markers, tally=source.tally)
    starts = pl.concat([rows["start_ns"] for rows in (device, host, markers)])
    middle = starts.median()
    unix = isinstance(middle, float) and middle > EARLIEST_UNIX_NS
    return assemble(
        path,
        "nvprof",
        records,
        read=source.read.total(),
        clock="unix" if unix else "session",
        devices=_read_devices(source),
        notes=tuple(_take_notes(source, device)),
    )


def _read_devices(source: NvprofTables) -> pl.DataFrame:
    """Return the GPUs of the profile as DEVICES, one for every device number."""
    names = ("id", "globalMemorySize", "numMultiprocessors", *PROPERTIES)
    rows = source.database.integers(f"{ACTIVITY}DEVICE", dict.fromkeys((*names, "name")))
    rows = rows.rename({"name": "text"}).filter(pl.col("id").is_between(0, 2**16 - 1))
    rows = source.named(rows, "text", nvprof_tables.read_texts(source))
    rows = rows.unique("id", keep="first", maintain_order=True).sort("id")
    properties = [
        json.dumps({key: value for key, value in row.items() if value is not None})
        for row in rows.select(PROPERTIES).iter_rows(named=True)
    ]
    rows = rows.select(
        "name",
        device="id",
        memory_nbytes="globalMemorySize",
        multiprocessors="numMultiprocessors",
        properties=pl.Series(properties, dtype=pl.String),
    )
    return rows.select(pl.col(name).cast(dtype, strict=False) for name, dtype in DEVICES.items())


def _take_notes(source: NvprofTables, device: pl.DataFrame) -> Iterator[str]:
    """Yield what a reader of the report should know about the profile."""
    if device.filter(pl.col("activity") != "sync").is_empty():
        yield "the profile has no GPU activities; record again with `nvprof -o trace.nvvp` and without --cpu-profiling"
    if lost := source.tally.dropped["without-times"]:
        yield f"{lost} GPU activities have no times: nvprof ran out of buffer (see its option --device-buffer-size)"
    if source.read["KERNEL"] and not source.read["CONCURRENT_KERNEL"]:
        yield "the profiler let kernels run one at a time (--concurrent-kernels off): streams never overlap in it"
    for view in sorted(source.database.views):
        if view.startswith(ACTIVITY):
            yield f"{view} is a view, not a table of nvprof, and was not read"
