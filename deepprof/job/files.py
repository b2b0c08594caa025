"""The files that the paths of a job name: a path's own file, the files in a directory, or those a glob matches."""

from __future__ import annotations

import glob
import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from deepprof.collectors.errors import TraceError, UsageError

Name = str | os.PathLike[str]


class TraceFiles(Struct, frozen=True):
    """Trace files, each once, and `notes` on the files next to them that are not read."""

    paths: list[Path]
    notes: tuple[str, ...] = ()


def find_paths(paths: Name | Sequence[Name]) -> list[Path]:
    """Return the trace files that `paths` name, each once; a glob that the shell did not expand is expanded here."""
    return find_files(paths).paths


def find_files(paths: Name | Sequence[Name]) -> TraceFiles:
    """Return the files of `find_paths`, with notes on those that are not read."""
    several = [paths] if isinstance(paths, str | os.PathLike) else paths
    names = [os.fspath(path) for path in several]
    if not all(names) or not names:
        raise UsageError(f"{'an empty path' if names else 'no path'} names nothing; name a file, a directory or a glob")
    if "-" in names and not os.path.lexists("-"):
        raise UsageError("- would be standard input, and a trace is read more than once; save it to a file, name that")
    from deepprof.collectors.importers.directories import leave_reports

    found = join(_expand(name) for name in names)
    listing = leave_reports(list({os.path.realpath(file): file for file in found.paths}.values()))
    return TraceFiles(listing.traces, (*found.notes, *listing.notes))


def join(finds: Iterable[TraceFiles]) -> TraceFiles:
    """Return several finds as one; a note that several of them have is kept once."""
    finds = list(finds)
    notes = dict.fromkeys(note for found in finds for note in found.notes)
    return TraceFiles([path for found in finds for path in found.paths], tuple(notes))


def _expand(path: str) -> TraceFiles:
    """Return the trace files that one argument names; raises `TraceError` for a path that no system accepts."""
    try:
        if "\0" in path:
            raise TraceError(path, "is no path: it holds a null byte", "check the path")
        return _list_files(path)
    except OSError as error:
        raise TraceError(path, f"cannot be looked up: {error.strerror or error}", "check the path") from error


def _list_files(path: str) -> TraceFiles:
    """Return the file `path`, or the traces in it if it is a directory, or those it matches if it is a glob."""
    from deepprof.collectors.importers.directories import natural

    if Path(path).is_dir():
        return _list_directory(Path(path))
    if Path(path).exists() or not glob.has_magic(path):
        return TraceFiles([Path(path)])
    matches = sorted(map(Path, glob.glob(path, recursive=True)), key=natural)
    if not matches:
        raise TraceError(path, "no file matches", "check the pattern")
    return join(_list_directory(match) if match.is_dir() else TraceFiles([match]) for match in matches)


def _list_directory(path: Path) -> TraceFiles:
    """Return the traces in the directory `path`; those of a store in the order of its original files."""
    from deepprof.collectors.importers.directories import list_traces
    from deepprof.collectors.store import find_ranks, is_store

    if is_store(path):
        return TraceFiles(find_ranks(path))
    listing = list_traces(path)
    return TraceFiles(_leave_stores(listing.traces), listing.notes)


def _leave_stores(files: list[Path]) -> list[Path]:
    """Return the traces found in a directory without those in stores, unless there are no others.

    `deepprof convert . -o job.deepprof` puts a store next to the files it was made from: its ranks would count twice.
    """
    from deepprof.job.sources import is_stored

    stored = [file for file in files if is_stored(file)]
    if 0 < len(stored) < len(files):
        text = f"{stored[0]} is in a store beside other traces and was left out; name the store to read it"
        warnings.warn(text, stacklevel=2)
        return [file for file in files if file not in set(stored)]
    return files
