"""The two manifests of the native store: JSON, typed, with their own version.

A store is a directory of one job: `deepprof.json` lists its ranks, and each has a folder with a `deepprof.json` of its
own next to its tables. A version with an unknown number before the dot is refused; unknown keys are ignored.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.files import read_bytes
from deepprof.collectors.times import TIME_LIMIT_NS
from deepprof.collectors.trace import Process, Trace

MANIFEST = "deepprof.json"
JOB_SCHEMA, RANK_SCHEMA = "deepprof.store/1", "deepprof.rank/1"
MANIFEST_NBYTES = 16 * 1024**2
FOLDER = re.compile(r"rank=\d{1,10}")  # DuckDB, polars and pyarrow read such a name as a column `rank`
WRITE_AGAIN = "write the store again with `deepprof convert`"
ROWS_LIMIT = 2**26  # of one table: more events than any file that DeepProf reads can hold

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Rank = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
Time = Annotated[int, msgspec.Meta(ge=-TIME_LIMIT_NS, le=TIME_LIMIT_NS)]
Manifest = TypeVar("Manifest", "JobManifest", "RankManifest")


class _RecordCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The accounting of the records: `read == kept + Σ dropped`."""

    read: Count
    kept: Count
    dropped: dict[str, Count]
    flagged: dict[str, Count]


class TableFile(msgspec.Struct, frozen=True, kw_only=True):
    """The file of one table: its rows, its size, and the CRC-32 of its content."""

    rows: Annotated[int, msgspec.Meta(ge=0, le=ROWS_LIMIT)]
    nbytes: Count
    crc32: Annotated[int, msgspec.Meta(ge=0, lt=2**32)]


class RankManifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything of a `Trace` except its tables, whose files it lists; `start_ns` is that of its first device event.

    `path` and `format` are those of the file that the trace came from, `rank` is the one that the file names.
    `processes` is absent if the trace has none.
    """

    schema: str
    deepprof: str
    path: str
    format: str
    clock: Literal["unix", "session"]
    epoch_ns: int | None
    rank: Rank | None
    world_size: Rank | None
    notes: tuple[str, ...]
    accounting: _RecordCounts
    tables: dict[str, TableFile]
    start_ns: Time | None
    processes: tuple[Process, ...] = ()
    breaks_ns: tuple[Time, ...] = ()


class RankEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of a job: its folder, and its number in the job."""

    folder: str
    rank: Rank


class JobManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The ranks of a job, in the order in which their files were read."""

    schema: str
    deepprof: str
    ranks: tuple[RankEntry, ...]


def describe_trace(trace: Trace, tables: dict[str, TableFile], version: str) -> RankManifest:
    """Return the manifest of `trace`, whose tables are in the files `tables`."""
    counts, start = trace.accounting, trace.device_events["start_ns"].min()
    return RankManifest(
        schema=RANK_SCHEMA,
        deepprof=version,
        path=_encodable(trace.path),
        format=trace.format,
        clock=trace.clock,
        epoch_ns=trace.epoch_ns,
        rank=trace.rank,
        world_size=trace.world_size,
        notes=tuple(_encodable(note) for note in trace.notes),
        accounting=_RecordCounts(
            read=counts.read, kept=counts.kept, dropped=dict(counts.dropped), flagged=dict(counts.flagged)
        ),
        tables=tables,
        start_ns=start if isinstance(start, int) else None,
        processes=trace.processes,
        breaks_ns=trace.breaks_ns,
    )


def claims(folder: Path, kind: type[JobManifest] | type[RankManifest]) -> bool:
    """Return whether `folder` has a manifest that states it is of `kind`, in any version. Never raises."""
    schema = (JOB_SCHEMA if kind is JobManifest else RANK_SCHEMA).partition("/")[0]
    try:
        if not _is_plain(folder / MANIFEST):
            return False
        with (folder / MANIFEST).open("rb") as file:
            head = file.read(200)
    except (OSError, ValueError):
        return False
    return re.match(rb'\s*\{\s*"schema"\s*:\s*"' + re.escape(schema).encode() + rb"/", head) is not None


def is_rank_folder(folder: Path) -> bool:
    """Return whether `folder` has the name of a rank's folder and a manifest, even a damaged one. Never raises."""
    return FOLDER.fullmatch(folder.name) is not None and os.path.lexists(folder / MANIFEST)


def _is_plain(path: Path) -> bool:
    """Return whether `path` is a regular file itself, not a link to one."""
    return stat.S_ISREG(path.lstat().st_mode)


def read_manifest(folder: Path, kind: type[Manifest]) -> Manifest:
    """Return the manifest in `folder`; raise `TraceError` for one that is damaged, or of a later version."""
    path = folder / MANIFEST
    require_plain(path)
    content = bytes(read_bytes(path, MANIFEST_NBYTES))
    try:
        schema = msgspec.json.decode(content, type=_StoreSchema).schema
        _refuse_version(path, schema, JOB_SCHEMA if kind is JobManifest else RANK_SCHEMA)
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(path, f"is no manifest of a store ({error})", WRITE_AGAIN) from error


class _StoreSchema(msgspec.Struct):
    """The one key that every version has."""

    schema: str


def _refuse_version(path: Path, schema: str, known: str) -> None:
    """Raise `TraceError` when `schema` is not the `known` one, to which a minor number may be added."""
    if schema == known or schema.startswith(f"{known}."):
        return
    if schema.partition("/")[0] == known.partition("/")[0]:
        problem = f"is of version {schema[:40]!r}; this DeepProf reads {known!r}"
        raise TraceError(path, problem, "update DeepProf, or write the store again")
    raise TraceError(path, f"is no manifest of a store: its schema is {schema[:40]!r}", WRITE_AGAIN)


def require_plain(path: Path) -> None:
    """Raise `TraceError` unless `path` is a regular file; a link could lead anywhere."""
    try:
        plain = _is_plain(path)
    except FileNotFoundError as error:
        raise TraceError(path, "is missing", WRITE_AGAIN) from error
    except OSError as error:
        raise TraceError(path, f"cannot be looked up: {error.strerror}", "check its permissions") from error
    if not plain:
        raise TraceError(path, "is no regular file, as every file of a store is", WRITE_AGAIN)


def _encodable(text: str) -> str:
    """Return `text` without lone surrogates, which JSON cannot hold."""
    return text.encode("utf-8", "replace").decode()
