"""rocmProfileData (.rpd): the SQLite database that `runTracer.sh` and rpd's own tracer write, schema 2 and 3.

Kernels, copies and barriers are in `rocpd_op`, calls and markers in `rocpd_api`, and `rocpd_api_ops` links each call to
the operations that it launched. Not to be confused with what rocprofv3 calls rocpd: see `rocpd`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.amd import rpd_tables
from deepprof.collectors.importers.amd.rocprof_runs import is_regular
from deepprof.collectors.importers.amd.rocprof_trace import RocmTrace, make_trace
from deepprof.collectors.importers.amd.rpd_json import RpdJson
from deepprof.collectors.importers.files import read_head
from deepprof.collectors.importers.sqlite.recognition import list_tables
from deepprof.collectors.importers.sqlite.sqlite_database import SQLITE_MAGIC, open_database
from deepprof.collectors.trace import Trace

ADVICE = "record one with `runTracer.sh`, or with rocpd's `rpdTracerControl` around the training loop"


class Rpd:
    """Importer of rocmProfileData databases."""

    name = "rpd"
    suffixes = (".rpd",)
    cheap_details = True

    def accepts(self, head: bytes, path: Path) -> bool:
        """Return whether `head`, the first 64 KiB of `path`, is of an .rpd database; never raises."""
        return head.startswith(SQLITE_MAGIC) and _is_rpd(list_tables(head, path))

    def covers(self, path: Path) -> Iterable[Path]:
        """Return the JSON next to `path` that rpd2tracing made from it, found by its name."""
        converted = path.with_suffix(".json")
        return [converted] if is_regular(converted) and RpdJson().accepts(_read_start(converted), converted) else []

    def read(self, path: Path, *, details: bool = False, shapes: bool = True) -> Trace:
        """Return the trace in `path`, with clock "session": RPD's times count from the start of the machine.

        Memory is that of the columns: about 100 bytes for every operation and call. Raises `TraceError` when the file
        cannot be read, is damaged or is no .rpd database.
        """
        with open_database(path) as database:
            if not _is_rpd(database.tables):
                raise TraceError(path, "is no rocmProfileData database", f"name an .rpd file; {ADVICE}")
            loose, read = rpd_tables.read_tables(database, details=details, shapes=shapes)
        return make_trace(RocmTrace(path, self.name, ADVICE), loose, read)


def _read_start(path: Path) -> bytes:
    """Return the first bytes of `path`, no bytes if it cannot be read."""
    try:
        return read_head(path)
    except TraceError:
        return b""


def _is_rpd(tables: Iterable[str]) -> bool:
    """Return whether a database with `tables` is rocmProfileData's: its tables have no suffix."""
    return not {"rocpd_op", "rocpd_api"}.isdisjoint(tables)
