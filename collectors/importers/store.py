"""The native store as a trace format: a rank's folder, or the directory of a job that has one rank."""

from __future__ import annotations

from pathlib import Path

from deepprof.collectors.errors import TraceError
from deepprof.collectors.store import find_ranks
from deepprof.collectors.store.manifest import JobManifest, RankManifest, claims, is_rank_folder
from deepprof.collectors.store.rank import open_rank
from deepprof.collectors.trace import Trace


class NativeStore:
    """Reads what `deepprof convert` wrote (see `read`)."""

    name = "store"
    suffixes = (".deepprof",)
    cheap_details = True

    def accepts(self, head: bytes, path: Path) -> bool:
        """Return whether `path` is a directory whose manifest states that it is a rank, or a job of one rank.

        A directory with a rank's name counts as a rank whatever its manifest contains, so that damage is reported.
        """
        return not head and (claims(path, RankManifest) or _is_single(path) or is_rank_folder(path))

    def read(self, path: Path, *, details: bool = False, shapes: bool = True) -> Trace:
        """Return the trace that was stored, equal to that of the original file, path and format included.

        Raises `TraceError` when the store is damaged, is of a later version, or unpacks to more than
        `table_files.LIMIT_NBYTES` in one table. Takes the memory of the tables, and that of the largest again.
        """
        folder = find_ranks(path)[0] if claims(path, JobManifest) else path
        return open_rank(folder).read(details=details, shapes=shapes)


def _is_single(path: Path) -> bool:
    """Return whether `path` is the store of a job of one rank; True for a damaged one, which `read` refuses later."""
    if not claims(path, JobManifest):
        return False
    try:
        return len(find_ranks(path)) == 1
    except TraceError:
        return True
