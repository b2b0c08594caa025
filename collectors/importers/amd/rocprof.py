"""rocprofv3's JSON and CSV files, and the CSV files of rocprof before it (ROCm 5 and 6)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.amd import rocprof_csv, rocprof_json
from deepprof.collectors.importers.amd.rocprof_runs import list_same_run
from deepprof.collectors.importers.amd.rocprof_trace import Loose, RocmTrace, make_trace
from deepprof.collectors.importers.files import read_head
from deepprof.collectors.trace import Trace

ADVICE = "record one with `rocprofv3 --sys-trace` or `--kernel-trace --memory-copy-trace --hip-trace`"
PERFETTO_SUFFIXES = (".pftrace", ".perfetto-trace")


class Rocprof:
    """Importer of rocprofv3's JSON and CSV files. The CSV files of one run are one trace."""

    name = "rocprof"
    suffixes = (".json", ".csv", ".json.gz", ".csv.gz")

    def accepts(self, head: bytes, path: Path) -> bool:
        """Return whether `head`, the first 64 KiB of the content of `path`, is rocprof's; never raises.

        Perfetto traces are accepted by their suffix, so that `read` can refuse them and advise what to record instead.
        """
        if path.suffix in PERFETTO_SUFFIXES:
            return bool(head)
        return rocprof_json.accepts(head) or rocprof_csv.table_of(head) in rocprof_csv.EVENT_TABLES

    def covers(self, path: Path) -> Iterable[Path]:
        """Return the other files of the run next to `path`, if `path` is the file that represents the run."""
        return list_same_run(path)

    def read(self, path: Path, *, details: bool = False, shapes: bool = True) -> Trace:
        """Return the trace in `path`, with clock "session": rocprof's times count from the start of the machine.

        Reading the kernel trace of a run reads the other CSV files of that run too. Memory is at most the content of
        the file, 2 GiB, plus about 500 bytes for every record of its longest list (JSON) or 300 for every row (CSV).
        Raises `TraceError` when a file cannot be read, is damaged or is not rocprof's.
        """
        if path.suffix in PERFETTO_SUFFIXES:
            raise TraceError(
                path, "is a Perfetto trace, which DeepProf does not read", f"{ADVICE}, as json, csv or rocpd"
            )
        head, loose = read_head(path), Loose(shapes=shapes)
        if rocprof_json.accepts(head):
            read = rocprof_json.read_document(path, loose)
        elif rocprof_csv.table_of(head) in rocprof_csv.EVENT_TABLES:
            read = rocprof_csv.read_run(path, loose)
        else:
            raise TraceError(
                path, "is no JSON or CSV trace of rocprof", "name one of its `*_results.json` or `*_trace.csv`"
            )
        return make_trace(RocmTrace(path, self.name, ADVICE), loose, read)
