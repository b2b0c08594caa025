"""One analysis from many workers: a job's files are sent as paths, and the results of its ranks come back.

All ranks are opened before any is examined, because their numbers and their clocks depend on each other; meanwhile the
workers hold their tables. If a worker dies, another one opens its files again, which uses time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from deepprof.analysis import Analysis
from deepprof.analysis.merging import check_job, merge
from deepprof.cluster import tasks
from deepprof.collectors.errors import TraceError, UsageError
from deepprof.collectors.importers.generic.columns import Mapped
from deepprof.job import Name, find_files
from deepprof.job.alignment import AlignedRank, ClockOffset, plan_corrections
from deepprof.job.files import TraceFiles
from deepprof.job.parallel import Watch
from deepprof.job.part import Between, check_between, check_parts, find_zeros
from deepprof.job.ranks import assign_ranks
from deepprof.metrics.options import AnalysisOptions
from deepprof.metrics.sharing.shared_places import RankDevices, SharedPlaces, SharedWork, find_shared

if TYPE_CHECKING:
    from distributed import Client, Future


def analyze_on(  # noqa: PLR0913  options by name
    client: Client,
    paths: TraceFiles | Name | Sequence[Name],
    *,
    counts: Sequence[int] = (),
    stream: tuple[int, int] | None = None,
    between: Between | None = None,
    columns: Mapped | None = None,
    shapes: bool = True,
    same_device: bool = False,
    watch: Watch | None = None,
) -> Analysis:
    """Analyse the job in `paths` on the workers of `client`, which must see the files under the same absolute paths.

    The result equals that of `analyze(read_job(paths, …), …)`, but has no traces and no timelines. Raises the errors
    of both, and `TraceError` for a file whose worker died each time it was tried.
    """
    if between is not None:
        check_between(between)
    found = paths if isinstance(paths, TraceFiles) else find_files(paths)
    readings = _plan_readings(found.paths, stored=between is not None, columns=columns, shapes=shapes)
    workers = _ClusterWorkers(client, [reading.path for reading in readings])
    opened = workers.map(tasks.open_path, readings)
    if between is not None:
        opened = _cut(workers, opened, between, shapes=shapes)
    heads = workers.fetch(workers.map(tasks.tell_heads, opened), watch)
    if between is not None:
        check_parts([head.events for head in chain.from_iterable(heads)])
    orders = _plan_orders(workers, opened, heads)
    devices = sorted(map(_list_devices, chain.from_iterable(heads), orders), key=lambda each: each.rank)
    shared = _read_shared(workers, opened, split(orders, heads), find_shared(devices, same_device=same_device))
    question = AnalysisOptions(tuple(counts), stream, alone=len(orders) < 2, shared=shared)
    check_job([order.number.rank for order in orders], question)
    looks = workers.map(tasks.look, opened, split(orders, heads), question=question)
    for future in opened:
        future.release()  # a worker frees a trace as soon as it has been examined
    parts = chain.from_iterable(workers.fetch(looks))
    return _add_notes(merge(sorted(parts, key=lambda part: part.rank), question), found.notes)


def _add_notes(analysis: Analysis, notes: Sequence[str]) -> Analysis:
    """Return the analysis with notes on all of the job before those on its first rank, as `read_job` puts them."""
    first, *others = analysis.recordings
    return replace(analysis, recordings=(replace(first, notes=(*notes, *first.notes)), *others)) if notes else analysis


class _ClusterWorkers:
    """The workers, which are asked to do one task per path at a time."""

    def __init__(self, client: Client, paths: Sequence[str]) -> None:
        self.client, self.paths = client, paths

    def map(self, task: Callable[..., Any], *arguments: Iterable[Any], **same: Any) -> list[Future[Any]]:
        """Submit `task` with every path's arguments; `same` is passed to all."""
        futures: list[Future[Any]] = self.client.map(task, *map(list, arguments), pure=False, **same)
        return futures

    def fetch(self, futures: Sequence[Future[Any]], watch: Watch | None = None) -> list[Any]:
        """Return the results in order; raises the first path's error as soon as all before it are done."""
        from distributed import as_completed

        found: dict[object, Any] = {}
        done = 0
        for future, value in as_completed(futures, loop=self.client.loop, with_results=True, raise_errors=False):
            found[future.key] = value if future.status == "finished" else TaskFailure(future.status, value)
            while done < len(futures) and futures[done].key in found:
                _check(found[futures[done].key], self.paths[done])
                done += 1
            if watch is not None:
                watch(len(found), len(futures))
        return [found[future.key] for future in futures]


class TaskFailure(Struct, frozen=True):
    """A task that has no result: its status, and its error as Dask reports it."""

    status: str
    value: Any


def _check(value: Any, path: str) -> None:
    """Raise the error that was returned in place of a result, if there is one."""
    if isinstance(value, tasks.ErrorValue):
        raise value.error()
    if isinstance(value, TaskFailure):
        raise explain(value, path)


def explain(failure: TaskFailure, path: str) -> BaseException:
    """Return the error of a task that failed for another reason than its input."""
    from distributed import KilledWorker

    if failure.status != "error":
        return UsageError("the cluster's scheduler went away while it was at work; start it again, and then this")
    error = failure.value[1] if isinstance(failure.value, tuple) else failure.value
    if isinstance(error, KilledWorker):
        advice = "the memory of the workers may be too small, see their logs; or leave it out"
        return TraceError(path, "could not be looked at: every worker that tried was ended", advice)
    return error if isinstance(error, BaseException) else RuntimeError(f"{path}: {error}")


def _plan_readings(
    files: Sequence[Path], *, stored: bool, columns: Mapped | None, shapes: bool
) -> list[tasks.ReadOptions]:
    from deepprof.collectors.importers.generic.columns import parse_columns

    mapping = None if columns is None else parse_columns(columns)
    return [tasks.ReadOptions(str(f), os.path.abspath(f), len(files) == 1, stored, mapping, shapes) for f in files]


def _cut(
    workers: _ClusterWorkers, opened: Sequence[Future[Any]], between: Between, *, shapes: bool
) -> list[Future[Any]]:
    """Return the parts of the traces that are in a range of time."""
    begins = workers.fetch(workers.map(tasks.find_begins, opened))
    zeros = find_zeros(list(chain.from_iterable(begins)))
    return workers.map(tasks.cut_parts, opened, split(zeros, begins), between=between, shapes=shapes)


def _plan_orders(
    workers: _ClusterWorkers, opened: Sequence[Future[Any]], heads: Sequence[Sequence[tasks.RankHead]]
) -> list[tasks.RankCorrection]:
    """Return the correction of every rank, in the order of the paths."""
    told = list(chain.from_iterable(heads))
    numbers = assign_ranks([(head.rank, head.path) for head in told])
    by_rank = sorted(range(len(told)), key=lambda place: numbers[place].rank)
    offsets = _measure(workers, opened, heads, by_rank[0])
    members = [
        AlignedRank(numbers[place].rank, told[place].clock, offsets[place], told[place].session) for place in by_rank
    ]
    corrections = dict(zip(by_rank, plan_corrections(members), strict=True))
    bare = not any(head.events for head in told)
    return [tasks.RankCorrection(number, corrections[place], bare) for place, number in enumerate(numbers)]


def _list_devices(head: tasks.RankHead, order: tasks.RankCorrection) -> RankDevices:
    unix = order.correction.to_unix or head.clock.clock == "unix"
    return RankDevices(order.number.rank, head.devices, "unix" if unix else head.session)


def _read_shared(
    workers: _ClusterWorkers,
    opened: Sequence[Future[Any]],
    orders: Sequence[Sequence[tasks.RankCorrection]],
    shared: Sequence[SharedPlaces],
) -> tuple[SharedWork, ...]:
    if not shared:
        return ()
    places = [place for each in shared for place in each.places]
    devices = [[[d for rank, d in places if rank == order.number.rank] for order in group] for group in orders]
    read = chain.from_iterable(workers.fetch(workers.map(tasks.read_works, opened, orders, devices)))
    works = {(work.rank, work.device): work for work in chain.from_iterable(read)}
    return tuple(SharedWork(each.identity, tuple(works[place] for place in each.places)) for each in shared)


def _measure(
    workers: _ClusterWorkers, opened: Sequence[Future[Any]], heads: Sequence[Sequence[tasks.RankHead]], first: int
) -> list[ClockOffset | None]:
    """Return how far each clock is ahead of that of the rank at place `first`, in the order of the paths."""
    places = [(number, index) for number, ranks in enumerate(heads) for index in range(len(ranks))]
    if len(places) < 2:
        return [None] * len(places)
    number, index = places[first]
    ends = workers.client.submit(tasks.find_ends, opened[number], index, pure=False)
    found = workers.fetch(workers.map(tasks.measure_offsets, opened, ends=ends))
    return [None if place == first else offset for place, offset in enumerate(chain.from_iterable(found))]


def split(values: Iterable[Any], groups: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Return `values` cut into tuples, each as long as the group of `groups` that it belongs to."""
    rest = iter(values)
    return [tuple(islice(rest, len(group))) for group in groups]
