"""The CSV files of rocprof: one for every kind of record; the files of one run are in one directory.

Versions differ in which columns they write, in what order, how they spell them and what they quote: columns are
searched for by name, and all values are read as text first.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Set
from pathlib import Path

import polars as pl

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.amd import rocprof_csv_rows as rows
from deepprof.collectors.importers.amd import rocprof_runs as runs
from deepprof.collectors.importers.amd.rocprof_trace import Loose
from deepprof.collectors.importers.files import HEAD_NBYTES, LIMIT_NBYTES, read_bytes

# The kind of a file's rows and the columns that identify it; the first kind that fits counts.
TABLES = {
    "counters": {"counter_name", "kernel_name", "start_timestamp"},
    "kernels": {"kernel_name", "start_timestamp", "end_timestamp"},
    "kernels of rocprof 1": {"kernelname", "beginns", "endns"},
    "copies": {"direction", "start_timestamp", "end_timestamp"},
    "calls": {"function", "start_timestamp", "end_timestamp"},
    "allocations": {"operation", "allocation_size", "start_timestamp"},
    "scratch": {"operation", "alloc_flags", "start_timestamp"},
    "agents": {"node_id", "logical_node_id", "agent_type"},
}
EVENT_TABLES = frozenset(TABLES) - {"agents"}
BOM = b"\xef\xbb\xbf"
COPY_AGAIN = "copy or export it again"
DAMAGED = (pl.exceptions.PolarsError, ValueError, OverflowError)


def table_of(head: bytes) -> str | None:
    """Return which of TABLES a file that starts with `head` is, None for none."""
    found = set(_read_header(head))
    return next((name for name, columns in TABLES.items() if columns <= found), None)


def _read_header(head: bytes) -> list[str]:
    """Return the names of the columns in the first line of `head`, spelt in one way ("gpu-id" is "gpu_id")."""
    line = head.removeprefix(BOM).split(b"\n", 1)[0].decode("utf-8", "replace").strip()
    try:
        names = next(csv.reader([line], delimiter=_delimiter_of(line), skipinitialspace=True), [])
    except csv.Error:  # a field of more than 128 KiB
        return []
    return [name.strip().lower().replace("-", "_").replace(" ", "_") for name in names]


def _delimiter_of(line: str) -> str:
    """Return the separator of columns: a spreadsheet may have written semicolons."""
    return ";" if "," not in line else ","


def read_run(path: Path, loose: Loose) -> int:
    """Add the rows of `path`, or of its whole run if `path` is its first file, to `loose`; return how many there are.

    The keys of processors depend on the file that lists them, which is always read. Raises `TraceError`.
    """
    run = runs.run_of(path)
    if run[0] != path:
        loose.notes.append(f"only this file was read: name {run[0].name} to read all of its run")
        run = [file for file in run if file == path or runs.lists_agents(file)]
    tables, read, left = [], 0, LIMIT_NBYTES
    for file in run:
        content = bytes(read_bytes(file, limit=left))
        left -= len(content)
        if table := table_of(content[:HEAD_NBYTES]):
            columns, is_cut = _read_columns(file, content, rows.columns_of(shapes=loose.shapes))
            tables.append((table, columns))
            if table in EVENT_TABLES:
                read += columns.height + is_cut
                loose.tally.dropped["truncated"] += is_cut
        elif content:
            loose.notes.append(f"{file.name} has none of rocprof's columns and was left out")
    rows.add_tables(tables, loose)
    return read


def _read_columns(path: Path, content: bytes, used: Set[str]) -> tuple[pl.DataFrame, bool]:
    """Return the columns of `content` that are `used`, as text, and whether the last row is left out.

    The last row is left out when a full disk or a killed process has cut it inside a text. Columns are named as
    `_read_header` spells them. Raises `TraceError`.
    """
    content = content.removeprefix(BOM)
    try:
        return _parse(content, used), False
    except DAMAGED as error:
        whole, _, cut = content.rpartition(b"\n")
        if not cut or not whole:
            raise TraceError(path, f"is damaged ({_first_line(error)})", COPY_AGAIN) from error
        return _parse_whole(path, whole, used), True


def _parse_whole(path: Path, content: bytes, used: Set[str]) -> pl.DataFrame:
    """Return what `_parse` returns; raise `TraceError` where that raises."""
    try:
        return _parse(content, used)
    except DAMAGED as error:
        raise TraceError(path, f"is damaged ({_first_line(error)})", COPY_AGAIN) from error


def _parse(content: bytes, used: Set[str]) -> pl.DataFrame:
    """Return the columns of `content` that are `used`; raises one of DAMAGED."""
    header = _read_header(content[:HEAD_NBYTES])
    wanted = {at: name for at, name in enumerate(header) if name in used and name not in header[:at]}
    line = content[:HEAD_NBYTES].split(b"\n", 1)[0].decode("utf-8", "replace").strip()
    frame = pl.read_csv(
        io.BytesIO(content),
        separator=_delimiter_of(line),
        columns=list(wanted),
        infer_schema=False,
        truncate_ragged_lines=True,
        encoding="utf8-lossy",
        raise_if_empty=False,
    )
    frame.columns = list(wanted.values())
    return frame.filter(pl.any_horizontal(pl.all().is_not_null()))  # blank lines are no rows


def _first_line(error: Exception) -> str:
    """Return the first line of the message of `error`."""
    return (str(error).splitlines() or [type(error).__name__])[0]
