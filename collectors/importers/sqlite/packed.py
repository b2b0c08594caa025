"""Compressed databases: SQLite reads only plain files, so they are unpacked into one first."""

from __future__ import annotations

from pathlib import Path

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.files import LIMIT_NBYTES, find_packing, open_file, read_pieces


def is_packed(path: Path) -> bool:
    """Return whether `path` is compressed; False if it cannot be opened."""
    try:
        with open_file(path) as file:
            return find_packing(file) is not None
    except TraceError:
        return False


def unpack(path: Path, plain: Path) -> None:
    """Write the content of the compressed file `path` to the new file `plain`."""
    try:
        with plain.open("wb") as file:
            for piece in read_pieces(path, limit=LIMIT_NBYTES):
                file.write(piece)
    except OSError as error:
        problem = f"cannot be unpacked into {plain.parent}: {error.strerror}"
        raise TraceError(path, problem, "unpack it yourself, or set TMPDIR") from error
