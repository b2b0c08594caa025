"""PyTorch's memory snapshots: what the CUDA caching allocator did, and what it held at the end.

`torch.cuda.memory._dump_snapshot` writes a pickle, a format that can run any code. Here it is only taken apart as data:
`unpickling` (in C, `unpickle.c`) or `pickle_machine` (in Python) makes tables of it, and refuses whatever is no plain
data. `snapshot_items` makes columns of these tables and `snapshot_tables` the parts of a snapshot, as `snapshot_json`
does of JSON with the same keys. `history` has the changes of memory, `annotations` the ranges,
`snapshot_stacks` the call stacks of a trace.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from deepprof.collectors.importers.assembly import finish
from deepprof.collectors.importers.files import read_bytes
from deepprof.collectors.importers.flags import Tally
from deepprof.collectors.importers.torch_snapshot.annotations import pair_annotations
from deepprof.collectors.importers.torch_snapshot.history import AllocatorHistory, follow
from deepprof.collectors.importers.torch_snapshot.snapshot_json import read_json
from deepprof.collectors.importers.torch_snapshot.snapshot_parts import SnapshotTables
from deepprof.collectors.importers.torch_snapshot.snapshot_stacks import StackGroups
from deepprof.collectors.importers.torch_snapshot.snapshot_tables import read_pickle
from deepprof.collectors.times import EARLIEST_UNIX_NS
from deepprof.collectors.trace import (
    ALLOCATIONS,
    DEVICE_EVENTS,
    DEVICES,
    FAILED_ALLOCATIONS,
    HOST_EVENTS,
    MEMORY_EVENTS,
    SEGMENTS,
    Trace,
    empty_table,
)
from deepprof.plurals import counted, verb

__all__ = ["TorchSnapshot"]

STARTS = re.compile(rb"\x80[\x02-\x05]|\(d|\(l|\(i|[}\]]")  # protocols 2 to 5, and those without a number
JSON_STARTS = re.compile(
    rb'(?:\xef\xbb\xbf)?\s*\{\s*"(?:segments|device_traces|allocator_settings|external_annotations)"\s*:\s*[\[{]'
)
EVENTS = re.compile(rb'"traceEvents"\s*:')
NAMES = (b"device_traces", b"segments", b"total_size", b"segment_type")
NOTE = (
    "a memory snapshot of PyTorch: what its CUDA allocator did, without kernels; for iterations record the program "
    "with torch.profiler too"
)
UNRECORDED = (
    "it has no history, only what was held at its end: call torch.cuda.memory._record_memory_history before the program"
)
UNTIMED = "its history has no times: entries are numbered in their order instead"


class TorchSnapshot:
    """Importer of what `torch.cuda.memory._dump_snapshot` writes, and of the same dictionary as JSON."""

    name = "torch-snapshot"
    suffixes: tuple[str, ...] = (".pickle", ".pickle.gz", ".pkl", ".json", ".json.gz")
    cheap_details = True

    def accepts(self, head: bytes, path: Path) -> bool:
        """Return whether `head` starts a pickle with the names of a snapshot's parts, or JSON with one of them."""
        if JSON_STARTS.match(head):
            return not EVENTS.search(head)
        return STARTS.match(head) is not None and any(name in head[:4096] for name in NAMES)

    def read(self, path: Path, *, details: bool = False, shapes: bool = True) -> Trace:
        """Return the trace in `path`; raises `TraceError`.

        Takes the content of the file, what `unpickling.read_items` or `read_json` states, and some 200 bytes for every
        entry."""
        parts, tally = _read_parts(path, read_bytes(path), details=details), Tally()
        history = follow(parts, tally)
        ranges, names = pair_annotations(parts.annotations, tally)
        tally.dropped.update({"invalid": parts.odd} if parts.odd else {})
        found = dict(_write_rows(parts.stacks, history, details=details))
        beside = {name: found.pop(name) for name in ("allocations", "devices", "stacks")}
        tables = {
            "device_events": empty_table(DEVICE_EVENTS),
            "host_events": empty_table(HOST_EVENTS),
            "annotations": ranges,
            **found,
        }
        clock = "unix" if history.timed and history.begin_ns > EARLIEST_UNIX_NS else "session"
        read = parts.entries.height + history.before + parts.annotations.height + parts.odd
        notes = tuple(_remark(history))
        return finish(path, self.name, tables, tally, read=read, names=names, clock=clock, notes=notes, **beside)


def _read_parts(path: Path, content: bytearray, *, details: bool) -> SnapshotTables:
    """Return the parts of the snapshot in `content`, a pickle or JSON."""
    read = read_json if JSON_STARTS.match(content) else read_pickle
    return read(path, content, details=details)


def _remark(history: AllocatorHistory) -> Iterator[str]:
    yield NOTE
    if failed := history.failed.height:
        yield f"{counted(failed, 'allocation')} failed for want of memory; deepprof tool out-of-memory says why"
    if history.before:
        what = counted(history.before, "block or segment", "blocks and segments")
        size = f"{history.before_nbytes:,} bytes in use"
        yield f"{what} ({size}) {verb(history.before)} older than its history: placed at its beginning"
    if not history.recorded:
        yield UNRECORDED
    elif not history.timed:
        yield UNTIMED


def _write_rows(groups: StackGroups, history: AllocatorHistory, *, details: bool) -> Mapping[str, pl.DataFrame]:
    """Return the tables of a trace by name; without `details` the call stacks of failures alone."""
    memory, failed = history.memory, history.failed
    many = memory.height if details else 0
    stacks, ids = groups.number(pl.concat([memory["stack"].head(many), failed["stack"]]))
    of_memory, of_failed = ids.head(many) if details else None, ids.slice(many)
    beside = memory.select("stream", stack_id=pl.lit(of_memory)).with_row_index("event")
    return {
        "memory_events": _shape(memory.rename({"addr": "address"}), MEMORY_EVENTS),
        "segments": _shape(history.segments.rename({"addr": "address"}), SEGMENTS),
        "failed_allocations": _shape(
            failed.with_columns(nbytes="size", free_nbytes=_unsigned("device_free"), stack_id=pl.lit(of_failed)),
            FAILED_ALLOCATIONS,
        ),
        "allocations": _shape(beside if details else beside.clear(), ALLOCATIONS),
        "devices": _list_devices(history),
        "stacks": stacks,
    }


def _list_devices(history: AllocatorHistory) -> pl.DataFrame:
    """Return DEVICES: those that have memory."""
    places = pl.concat([rows["device"] for rows in (history.memory, history.segments, history.failed)])
    return _shape(pl.DataFrame({"device": places.unique().sort()}), DEVICES)


def _unsigned(column: str) -> pl.Expr:
    """Return the numbers of a column, null where they are below zero."""
    return pl.when(pl.col(column) >= 0).then(pl.col(column))


def _shape(rows: pl.DataFrame, schema: Mapping[str, Any]) -> pl.DataFrame:
    """Return the rows with the columns of a schema; those that they lack are null. Addresses keep their 64 bits."""
    absent = [pl.lit(None).alias(column) for column in schema if column not in rows.columns]
    known = rows.with_columns(absent).select(list(schema))
    if "address" in schema:
        known = known.with_columns(pl.col("address").reinterpret(signed=False))
    return known.cast(dict(schema))  # type: ignore[arg-type]
