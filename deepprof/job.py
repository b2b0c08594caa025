"""The traces of one job: every rank under a number of its own."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from deepprof.collectors.errors import TraceError, UsageError

if TYPE_CHECKING:
    from deepprof.collectors.trace import Trace

__all__ = ["find_paths", "number_ranks", "read_job"]

Name = str | os.PathLike[str]


def read_job(paths: Name | Sequence[Name]) -> list[Trace]:
    """Read files, directories and globs (one, or several) as the ranks of one job, ordered by rank.

    A trace without a rank, or with one that another trace has, gets the next free number and a note. Raises
    `TraceError` for what is not a trace and `UsageError` when nothing is named.
    """
    files = find_paths(paths)
    return number_ranks([read_rank(file, alone=len(files) == 1) for file in files])


def read_rank(file: Path, *, alone: bool) -> Trace:
    """Return the trace in `file`; among several, one that cannot be read may be left out."""
    from deepprof.collectors.importers import read

    try:
        return read(file)
    except TraceError as error:
        if alone:
            raise
        raise TraceError(error.path, error.problem, f"{error.advice}, or leave it out") from error


def find_paths(paths: Name | Sequence[Name]) -> list[Path]:
    """Return the trace files that `paths` name, each once; a glob that the shell left alone is expanded here."""
    several = [paths] if isinstance(paths, str | os.PathLike) else paths
    names = [os.fspath(path) for path in several]
    if not all(names) or not names:
        raise UsageError(f"{'an empty path' if names else 'no path'} names nothing; name a file, a directory or a glob")
    found = [file for name in names for file in expand(name)]
    return list({os.path.realpath(file): file for file in found}.values())


def expand(path: str) -> list[Path]:
    """Return the trace files behind one argument; raises `TraceError` for a path that no system takes."""
    try:
        if "\0" in path:
            raise TraceError(path, "is no path: it holds a null byte", "check the path")
        return list_files(path)
    except OSError as error:
        raise TraceError(path, f"cannot be looked up: {error.strerror or error}", "check the path") from error


def list_files(path: str) -> list[Path]:
    """Return the file `path`, or the traces in it or behind it where it is a directory or a glob."""
    from deepprof.collectors.importers import find_traces

    if Path(path).is_dir():
        return find_traces(path)
    if Path(path).exists() or not glob.has_magic(path):
        return [Path(path)]
    matches = [Path(match) for match in sorted(glob.glob(path, recursive=True))]
    if not matches:
        raise TraceError(path, "no file matches", "check the pattern")
    return [file for match in matches for file in (find_traces(match) if match.is_dir() else [match])]


def number_ranks(traces: Iterable[Trace]) -> list[Trace]:
    """Return `traces` ordered by rank, each rank once."""
    traces = list(traces)
    taken = {trace.rank for trace in traces}
    free = (rank for rank in count() if rank not in taken)
    seen: set[int] = set()
    numbered = []
    for trace in traces:
        if trace.rank is None or trace.rank in seen:
            trace = number(trace, next(free), alone=len(traces) == 1)  # noqa: PLW2901  the same trace under its number
        seen.add(trace.rank or 0)
        numbered.append(trace)
    return sorted(numbered, key=lambda trace: trace.rank or 0)


def number(trace: Trace, rank: int, *, alone: bool) -> Trace:
    """Return `trace` as `rank`; one that stands alone needs no word about it."""
    if alone:
        return replace(trace, rank=rank)
    reason = "names no rank" if trace.rank is None else f"names rank {trace.rank}, which another file has"
    note = f"{Path(trace.path).name} {reason}; it is counted as rank {rank}"
    return replace(trace, rank=rank, notes=(*trace.notes, note))
