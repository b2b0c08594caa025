"""The files that a job is read from: trace files, and the members of archives, unpacked one at a time."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Lock

from msgspec import Struct

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers import look_at, recognise
from deepprof.collectors.importers.archives import Archive, is_archive, open_archive
from deepprof.collectors.importers.files import RATIO_LIMIT
from deepprof.collectors.store import is_store
from deepprof.collectors.store.manifest import RankManifest, claims, is_rank_folder

PACKED = (".gz", ".zst", ".zip", ".tgz")
USUAL_RATIO = 20
GZIP_MAGIC, GZIP_NBYTES = b"\x1f\x8b", 18  # bytes of the shortest gzip file


class TraceSource(Struct, frozen=True):
    """One trace to read: number `index` of the job, at `path`, reported as `shown` if that is not its own name."""

    index: int
    path: Path
    shown: str | None = None

    @property
    def name(self) -> str:
        """The trace's name in messages."""
        return self.shown or str(self.path)

    def explain(self, error: TraceError, *, alone: bool) -> TraceError:
        """Return `error` with the name of the source; unless `alone`, with the advice to leave the trace out."""
        advice = error.advice if alone else f"{error.advice}, or leave it out"
        temporary = self.shown is not None and error.path.startswith(str(self.path.parent))
        return TraceError(self.name if temporary else error.path, error.problem, advice)

    def forget(self) -> None:
        """Remove the unpacked file; a file that was no member of an archive stays."""
        if self.shown is not None:
            self.path.unlink(missing_ok=True)


class TraceSources:
    """An iterator over the sources behind `paths`, for several threads; archives stay open until `close`.

    A member is unpacked when its turn comes, into its own directory; a member that no importer accepts is skipped.
    Takes disk for the members in use, and for a compressed tar as much as the whole archive unpacks to. Raises
    `TraceError` for an archive that is damaged or contains no trace.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths, self.stack, self.lock = list(paths), ExitStack(), Lock()
        self.archives = {path for path in self.paths if _is_container(path)}
        self.opened: dict[Path, Archive] = {}
        self.total = len(self.paths)
        self.found = self.find()

    def __iter__(self) -> Iterator[TraceSource]:
        """Return itself."""
        return self

    def __next__(self) -> TraceSource:
        """Return the next source; only one thread at a time unpacks."""
        with self.lock:
            return next(self.found)

    def find(self) -> Iterator[TraceSource]:
        """Yield every source, numbered."""
        index = 0
        for path in self.paths:
            for place, shown in self.unpack(path) if path in self.archives else [(path, None)]:
                yield TraceSource(index, place, shown)
                index += 1

    def open(self, path: Path) -> Archive:
        """Return the archive `path`, opened once."""
        if path not in self.opened:
            self.opened[path] = self.stack.enter_context(open_archive(path))
            self.total += len(self.opened[path].members) - 1
        return self.opened[path]

    def unpack(self, path: Path) -> Iterator[tuple[Path, str]]:
        """Yield the traces in the archive `path`, each as a temporary file and its name in the archive."""
        archive, found = self.open(path), False
        for member in archive.members:
            file = archive.extract(member)
            if _is_trace(file):
                yield file, f"{path}:{member.name}"
                found = True
            else:
                self.total -= 1
                file.unlink()
        if not found:
            raise TraceError(path, "is an archive that holds no trace", "name an archive of trace files")

    def close(self) -> None:
        """Remove what was unpacked."""
        self.stack.close()

    def measure(self) -> list[int]:
        """Return about how many bytes of content each file and member has; directories, quick to read, are left out."""
        members = [member for path in self.archives for member in self.open(path).members]
        files = [path for path in self.paths if path not in self.archives and not path.is_dir()]
        return [_weigh(member.name, member.nbytes) for member in members] + [measure_content(file) for file in files]


def _weigh(name: str, nbytes: int) -> int:
    """Return about how many bytes a file called `name` unpacks to; traces compress 13 to 30 times."""
    return nbytes * (USUAL_RATIO if name.lower().endswith(PACKED) else 1)


def measure_content(path: Path) -> int:
    """Return about how many bytes of content a file has, 0 where that is unknown.

    A gzip file states at its end the size of its last member, modulo 4 GiB: it is used only where it is plausible.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a FIFO would wait for ever
            return 0
        with path.open("rb") as file:
            magic, nbytes = file.read(len(GZIP_MAGIC)), path.stat().st_size
            if magic != GZIP_MAGIC or nbytes < GZIP_NBYTES:
                return _weigh(path.name, nbytes)
            file.seek(-4, os.SEEK_END)
            stated = int.from_bytes(file.read(4), "little")
    except (OSError, ValueError):
        return 0
    return stated if nbytes <= stated <= RATIO_LIMIT * nbytes else nbytes * USUAL_RATIO


def _is_container(path: Path) -> bool:
    """Return whether `path` is an archive that no importer takes as a trace."""
    if path.is_dir():
        return False
    try:
        head = look_at(path)
    except TraceError:  # reading the path will raise the same error
        return False
    return is_archive(head) and recognise(head, path) is None


def _is_trace(path: Path) -> bool:
    """Return whether an importer accepts `path`; as in a directory, a file that cannot be read is no trace."""
    try:
        return recognise(look_at(path), path) is not None
    except TraceError:
        return False


def is_stored(path: Path) -> bool:
    """Return whether `path` belongs to the native store, of which parts can be read."""
    return os.path.isdir(path) and (claims(path, RankManifest) or is_store(path) or is_rank_folder(path))
