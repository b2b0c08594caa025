"""The native store: one directory per job, a folder per rank, read lazily, so that using a trace again is fast."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import polars as pl
from msgspec import Struct

from deepprof.collectors.errors import TraceError, UsageError
from deepprof.collectors.reprs import one_line, shorten_path
from deepprof.collectors.store.manifest import (
    FOLDER,
    JOB_SCHEMA,
    MANIFEST,
    WRITE_AGAIN,
    JobManifest,
    RankEntry,
    RankManifest,
    claims,
    is_rank_folder,
    read_manifest,
)
from deepprof.collectors.store.rank import StoredRank, open_rank
from deepprof.collectors.trace import Trace
from deepprof.plurals import counted
from deepprof.version import read_version

__all__ = ["Store", "check_store_target", "find_ranks", "is_store", "open_store", "replace_store", "write_index"]

RANKS = 100_000


class Store(Struct, frozen=True):
    """A job in the native store: `ranks` by their numbers in the job."""

    path: Path
    ranks: dict[int, StoredRank]

    def __repr__(self) -> str:
        return one_line(self, shorten_path(self.path), counted(len(self.ranks), "rank"))

    def scan(self, table: str) -> pl.LazyFrame:
        """Return a table of all ranks as one lazy frame, with the column `rank` in front (Int64).

        `table` is one of the record table's (`device_events` …) or `names`; `name_id` differs from rank to rank.
        Raises `TraceError` for a damaged file.
        """
        number = pl.Int64
        frames = [r.scan(table).select(pl.lit(n, number).alias("rank"), pl.all()) for n, r in self.ranks.items()]
        return pl.concat(frames)

    def read(self, rank: int | None = None, *, start_ns: int | None = None, end_ns: int | None = None) -> Trace:
        """Return one rank as a `Trace`, whole or the part that overlaps `start_ns` ≤ t < `end_ns` on its clock.

        `rank` may be left out if there is only one. See `StoredRank.read`. Raises `UsageError` for a rank that is not
        in the store.
        """
        if rank is None and len(self.ranks) == 1:
            rank = next(iter(self.ranks))
        if rank not in self.ranks:
            known = ", ".join(map(str, list(self.ranks)[:12]))
            raise UsageError(
                f"{self.path}: {'no rank is named' if rank is None else f'has no rank {rank}'}; has {known}"
            )
        return self.ranks[rank].read(start_ns, end_ns)


def open_store(path: str | os.PathLike[str]) -> Store:
    """Return the store in the directory `path`, or a store of one rank if `path` is a rank's folder.

    Reads manifests only. Raises `TraceError` for a directory that is no store, or a damaged one.
    """
    folder = Path(path)
    if claims(folder, RankManifest) or is_rank_folder(folder):
        stored = open_rank(folder)
        return Store(folder, {stored.manifest.rank or 0: stored})
    if not is_store(folder):
        raise TraceError(folder, "is no store of DeepProf", "name a directory that `deepprof convert` wrote")
    entries = sorted(_read_index(folder).ranks, key=lambda entry: entry.rank)
    return Store(folder, {entry.rank: open_rank(folder / entry.folder) for entry in entries})


def is_store(path: Path) -> bool:
    """Return whether the manifest in the directory `path` states that it is a store of a job. Never raises."""
    return claims(path, JobManifest)


def find_ranks(path: Path) -> list[Path]:
    """Return the folders of the ranks in the store `path`, in the order in which the original files were read."""
    return [path / entry.folder for entry in _read_index(path).ranks]


def _read_index(path: Path) -> JobManifest:
    """Return the job's manifest; raise `TraceError` when it names something that cannot be a rank's folder in it."""
    index = read_manifest(path, JobManifest)
    if not 0 < len(index.ranks) <= RANKS:
        raise TraceError(path, f"is a store of {len(index.ranks)} ranks", WRITE_AGAIN)
    for entry in index.ranks:
        if not FOLDER.fullmatch(entry.folder) or not _is_folder(path / entry.folder):
            raise TraceError(path, f"names {entry.folder[:40]!r}, which is no folder of a rank in it", WRITE_AGAIN)
    for seen in ([entry.folder for entry in index.ranks], [entry.rank for entry in index.ranks]):
        if len(set(seen)) < len(seen):
            raise TraceError(path, "names a rank twice", WRITE_AGAIN)
    return index


def _is_folder(path: Path) -> bool:
    """Return whether `path` is a directory itself, not a link to one."""
    return path.is_dir() and not path.is_symlink()


def write_index(path: Path, ranks: Sequence[int]) -> None:
    """Write the manifest of the store `path`, whose ranks have these numbers, in the order of reading."""
    entries = tuple(RankEntry(folder=f"rank={rank}", rank=rank) for rank in ranks)
    index = JobManifest(schema=JOB_SCHEMA, deepprof=read_version(), ranks=entries)
    (path / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(index), indent=2))


def check_store_target(path: str | os.PathLike[str]) -> Path:
    """Return `path` with its links resolved; raise `UsageError` unless a store can be written there.

    The path must not exist, or be an empty directory, or a store with nothing else in it, which is replaced.
    """
    if os.fspath(path) in {"", "-"}:
        raise UsageError(f"{os.fspath(path)!r}: -o names no directory; give it a name")
    try:
        target = Path(os.path.realpath(path))
        exists, entries = os.path.lexists(target), _list_entries(target)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be looked up ({error}); choose another -o") from error
    if not target.parent.is_dir():
        raise UsageError(f"{path}: there is no directory {target.parent}; create it or choose another -o")
    if (exists or os.path.exists(path)) and not target.is_dir():
        raise UsageError(f"{path}: is a file, and a store is a directory; choose another -o")
    foreign = sorted(name for name in entries if not (name == MANIFEST or FOLDER.fullmatch(name)))
    if foreign or (entries and not is_store(target)):
        held = f"it holds {foreign[0]}" if foreign else "it has no manifest"
        raise UsageError(f"{path}: is a directory but no store ({held}); choose another -o")
    if not os.access(target.parent, os.W_OK):
        raise UsageError(f"{path}: not writable; choose another -o")
    return target


def _list_entries(path: Path) -> list[str]:
    """Return the names in the directory `path`, none if it is no directory."""
    return os.listdir(path) if path.is_dir() else []


@contextmanager
def replace_store(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a new directory next to `path`, which replaces `path` at the end: completely, or not at all.

    Raises `UsageError` as `check_store_target` does, and `OSError`.
    """
    target = check_store_target(path)
    # Not the process id: in a container it is always the same, and a killed process leaves its part behind.
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    part.mkdir()
    try:
        yield part
        if target.exists():
            _swap(part, check_store_target(target))
        else:
            part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _swap(part: Path, target: Path) -> None:
    """Put `part` in the place of `target`, and remove the old content."""
    old = part.with_suffix(".old")
    target.rename(old)
    try:
        part.rename(target)
    except BaseException:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)
