"""Writing a job's traces to the native store, one rank after another, so that no two must be in memory at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from deepprof.collectors.importers.generic.columns import GenericColumns, Mapped, parse_columns
from deepprof.collectors.store import replace_store, write_index
from deepprof.collectors.store.manifest import RankManifest
from deepprof.collectors.store.rank import open_rank, write_rank
from deepprof.job import Name, find_files, read_rank
from deepprof.job.parallel import Watch, choose_jobs, read_in_parallel
from deepprof.job.ranks import assign_ranks
from deepprof.job.sources import TraceSources


class ConversionResult(Struct, frozen=True):
    """The content of a store: `read == kept + Σ dropped` records of `ranks` ranks, in `nbytes` on disk.

    `notes` name the files next to the traces that are not in the store.
    """

    ranks: int
    read: int
    kept: int
    dropped: Mapping[str, int]
    nbytes: int
    notes: tuple[str, ...] = ()


def convert(
    paths: Name | Sequence[Name],
    output: Name,
    *,
    jobs: int | None = None,
    watch: Watch | None = None,
    columns: Mapped | None = None,
) -> ConversionResult:
    """Write the ranks of one job, as `read_job` finds them, to the store `output`: whole, or not at all.

    The traces are stored as they are in their files; ranks are numbered and clocks aligned when the store is read.
    An existing store is replaced. `jobs`, `watch` and `columns` are those of `read_job`. Takes the memory of one rank,
    or of one for every process. Raises `TraceError`, `UsageError` where no store can be written, and `OSError`.
    """
    mapping = None if columns is None else parse_columns(columns)
    with replace_store(output) as part:
        found = find_files(paths)
        manifests = _write_ranks(found.paths, part, jobs, watch, mapping)
        ranks = [found.rank for found in assign_ranks([(said.rank, said.path) for said in manifests])]
        for index, rank in enumerate(ranks):
            (part / f"{index:06d}").rename(part / f"rank={rank}")
        write_index(part, ranks)
        nbytes = sum(file.stat().st_size for file in part.rglob("*") if file.is_file())
    return _summarize(manifests, nbytes, found.notes)


def _write_ranks(
    files: Sequence[Path], part: Path, jobs: int | None, watch: Watch | None, columns: GenericColumns | None
) -> list[RankManifest]:
    """Write every trace to a folder in `part` named by its number, and return their manifests."""
    sources = TraceSources(files)
    with closing(sources):
        number = choose_jobs(jobs, sources.measure()) if columns is None else 1
        if number > 1:
            return read_in_parallel(
                sources, number, part, lambda _, folder: open_rank(folder).manifest, watch, details=None
            )
        return list(_write_here(sources, part, watch, columns))


def _write_here(
    sources: TraceSources, part: Path, watch: Watch | None, columns: GenericColumns | None
) -> Iterator[RankManifest]:
    """Write the ranks one after the other in this process, and yield their manifests."""
    for done, source in enumerate(sources, 1):
        trace = read_rank(source, alone=sources.total == 1, columns=columns, details=None)
        yield write_rank(trace, part / f"{source.index:06d}")
        source.forget()
        if watch is not None:
            watch(done, sources.total)


def _summarize(manifests: Sequence[RankManifest], nbytes: int, notes: tuple[str, ...]) -> ConversionResult:
    dropped: Counter[str] = Counter()
    for said in manifests:
        dropped.update(said.accounting.dropped)
    read, kept = (sum(getattr(said.accounting, count) for said in manifests) for count in ("read", "kept"))
    return ConversionResult(len(manifests), read, kept, dict(dropped.most_common()), nbytes, notes)
