"""The traces of one job: every rank under its own number.

`sources` finds files, `parallel` and `reader` read them, `ranks` numbers them, `alignment` puts them on one clock,
`part` cuts them in time.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from deepprof.collectors.errors import TraceError
from deepprof.job.files import Name, TraceFiles, find_files, find_paths
from deepprof.job.ranks import number_ranks

if TYPE_CHECKING:
    from deepprof.collectors.importers.generic.columns import GenericColumns, Mapped
    from deepprof.collectors.store.rank import StoredRank
    from deepprof.collectors.trace import Trace
    from deepprof.job.parallel import Watch
    from deepprof.job.part import Between
    from deepprof.job.sources import TraceSource, TraceSources

__all__ = ["Name", "find_files", "find_paths", "number_ranks", "read_job", "read_rank", "read_unaligned"]


def read_job(  # noqa: PLR0913  options by name
    paths: Name | Sequence[Name],
    *,
    jobs: int | None = None,
    between: Between | None = None,
    watch: Watch | None = None,
    columns: Mapped | None = None,
    details: bool | None = False,
    shapes: bool = True,
) -> list[Trace]:
    """Read files, directories, archives, stores and globs (one, or several) as the ranks of one job, ordered by rank.

    A trace without a rank needs the one in its file's name; where that is not clear, or another trace has it, it gets
    the next free number and a note. Clocks are aligned where the files allow it, and a note states what was done. If a
    file contains the work of several processes, each process is a rank. Other files in a directory are named in a note
    on the first rank.

    `jobs` is the number of processes that read, each one trace at a time; the default is the variable DEEPPROF_JOBS,
    else it is chosen from the processors, the free memory and the files. `between` is a range of time in ns from the
    first device event; records outside are counted as dropped. `watch` is called with the number of traces read and the
    number of all traces. `columns` maps the columns of CSV, Parquet or Arrow tables, as for `read`; this process then
    reads them all. `details` and `shapes` are those of `read`.

    Takes the memory of all tables, and for every process what the importer of the format states. Raises `TraceError`
    for a file that is not a trace and `UsageError` when nothing is named.
    """
    from deepprof.job.alignment import align

    found = find_files(paths)
    ranks = read_unaligned(
        found, jobs=jobs, between=between, watch=watch, columns=columns, details=details, shapes=shapes
    )
    return _add_notes(align(ranks), found.notes)


def _add_notes(traces: list[Trace], notes: Sequence[str]) -> list[Trace]:
    """Return the ranks of a job, with notes on the whole job put before the notes of its first rank."""
    return [replace(traces[0], notes=(*notes, *traces[0].notes)), *traces[1:]] if notes and traces else traces


def read_unaligned(  # noqa: PLR0913  options by name
    paths: TraceFiles | Name | Sequence[Name],
    *,
    jobs: int | None = None,
    between: Between | None = None,
    watch: Watch | None = None,
    columns: Mapped | None = None,
    details: bool | None = False,
    shapes: bool = True,
) -> list[Trace]:
    """Read the ranks of one job as `read_job` does, with their clocks as they were recorded."""
    from deepprof.collectors.importers.generic.columns import parse_columns
    from deepprof.collectors.processes import split_all
    from deepprof.collectors.trace import Trace
    from deepprof.job.part import check_between, read_parts

    if between is not None:
        check_between(between)
    mapping = None if columns is None else parse_columns(columns)
    files = paths if isinstance(paths, TraceFiles) else find_files(paths)
    ranks = _read_ranks(
        files.paths, jobs, watch, parts=between is not None, columns=mapping, details=details, shapes=shapes
    )
    whole = [rank for rank in ranks if isinstance(rank, Trace)]
    traces = whole if between is None else read_parts(ranks, between, details=details is not False, shapes=shapes)
    return number_ranks(split_all(traces))


def _read_ranks(  # noqa: PLR0913  options by name
    files: Sequence[Path],
    jobs: int | None,
    watch: Watch | None,
    *,
    parts: bool = False,
    columns: GenericColumns | None = None,
    details: bool | None = False,
    shapes: bool = True,
) -> list[Trace | StoredRank]:
    """Return the ranks in `files`; with `parts`, those in a store as they are stored."""
    from deepprof.job.parallel import choose_jobs, read_in_parallel
    from deepprof.job.sources import TraceSources

    sources = TraceSources(files)
    with closing(sources):
        number = choose_jobs(jobs, sources.measure()) if columns is None else 1
        if number == 1:
            return list(_read_here(sources, watch, parts=parts, columns=columns, details=details, shapes=shapes))
        with tempfile.TemporaryDirectory(prefix="deepprof-") as scratch:
            return read_in_parallel(sources, number, Path(scratch), _collect, watch, details=details, shapes=shapes)


def _read_here(  # noqa: PLR0913  options by name
    sources: TraceSources,
    watch: Watch | None,
    *,
    parts: bool,
    columns: GenericColumns | None = None,
    details: bool | None = False,
    shapes: bool = True,
) -> Iterator[Trace | StoredRank]:
    """Yield the ranks of `sources`, read by this process one after the other."""
    for done, source in enumerate(sources, 1):
        stored, alone = open_stored(source) if parts else None, sources.total == 1
        yield stored or read_rank(source, alone=alone, columns=columns, details=details, shapes=shapes)
        source.forget()
        if watch is not None:
            watch(done, sources.total)


def read_rank(
    source: TraceSource,
    *,
    alone: bool,
    columns: GenericColumns | None = None,
    details: bool | None = False,
    shapes: bool = True,
) -> Trace:
    """Return the trace of `source`; unless `alone`, the error's advice is also to leave the file out."""
    from deepprof.collectors.importers import read

    try:
        trace = read(source.path, details=details, shapes=shapes, columns=columns)
    except TraceError as error:
        raise source.explain(error, alone=alone) from error
    return trace if source.shown is None else replace(trace, path=source.shown)


def open_stored(source: TraceSource) -> StoredRank | None:
    """Return the stored rank that `source` is, None where it is not from a store."""
    from deepprof.collectors.store import open_store
    from deepprof.job.sources import is_stored

    return next(iter(open_store(source.path).ranks.values())) if is_stored(source.path) else None


def _collect(_: TraceSource, folder: Path) -> Trace | StoredRank:
    """Return the trace that another process has written to `folder`, and remove the folder."""
    from deepprof.collectors.store.rank import open_rank

    trace = open_rank(folder).read(details=True)  # as many as the other process was requested
    shutil.rmtree(folder)
    return trace
