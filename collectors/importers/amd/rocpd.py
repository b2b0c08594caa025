"""rocpd (.db): the SQLite database that rocprofv3 of ROCm 7 writes by default, layouts 3.0.x and 4.1.

Table names end in the id of the process that wrote them, and a merged file contains the tables of several processes;
the names without an id are views, which are not read. Not to be confused with rocmProfileData's rocpd: see `rpd`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.amd import rocpd_tables
from deepprof.collectors.importers.amd.rocprof_runs import list_same_run
from deepprof.collectors.importers.amd.rocprof_trace import Loose, RocmTrace, make_trace
from deepprof.collectors.importers.sqlite.recognition import list_tables
from deepprof.collectors.importers.sqlite.sqlite_database import SQLITE_MAGIC, open_database
from deepprof.collectors.trace import Trace

OWN_TABLE = re.compile(r"rocpd_(?:kernel_dispatch|memory_copy|memory_allocate|region|info_process|info_agent)(|_.+)")
# Each process adds about twenty tables, each of at least one page of 4 KiB.
PART_NBYTES, PARTS_FLOOR = 32 * 1024, 8
ADVICE = "record one with `rocprofv3 --sys-trace` or `--kernel-trace --memory-copy-trace --hip-trace`"


class Rocpd:
    """Importer of rocprofv3's databases."""

    name = "rocpd"
    suffixes = (".db",)

    def accepts(self, head: bytes, path: Path) -> bool:
        """Return whether `head`, the first 64 KiB of `path`, is of a rocprofv3 database; never raises."""
        return head.startswith(SQLITE_MAGIC) and bool(list_parts(list_tables(head, path)))

    def covers(self, path: Path) -> Iterable[Path]:
        """Return the files next to `path` that hold the same run in other formats."""
        return list_same_run(path)

    def read(self, path: Path, *, details: bool = False, shapes: bool = True) -> Trace:
        """Return the trace in `path`, with clock "session": rocprofv3's times count from the start of the machine.

        Memory is that of the columns: about 200 bytes for every dispatch, copy and call. Raises `TraceError` when the
        file cannot be read, is damaged or is no such database.
        """
        loose, read = Loose(shapes=shapes), 0
        with open_database(path) as database:
            parts = list_parts(database.tables)
            if not parts:
                raise TraceError(path, "is no database of rocprofv3", f"name a .db file that it wrote; {ADVICE}")
            if len(parts) > PARTS_FLOOR + database.size // PART_NBYTES:
                problem = f"is no trace: it states {len(parts)} processes in {database.size} bytes"
                raise TraceError(path, problem, "give a file that rocprofv3 wrote")
            for part in parts:
                read += rocpd_tables.read_part(rocpd_tables.RocpdPart(database, part), loose)
        if len(parts) > 1:
            loose.notes.append(f"{len(parts)} processes are merged in this file, each with a clock of its own node")
        return make_trace(RocmTrace(path, self.name, ADVICE), loose, read)


def list_parts(tables: Iterable[str]) -> list[str]:
    """Return the endings of the tables that rocprofv3 wrote, one for every process; "" for names without an ending."""
    return sorted({found[1] for table in tables if (found := OWN_TABLE.fullmatch(table))})
