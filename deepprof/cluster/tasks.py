"""What a worker does: open the traces of one path, tell of them what the job must know, and look at them.

A task that fails because of its input returns an `ErrorValue` instead of raising, and those that follow hand it on:
errors with several arguments do not survive being sent. What a task opens stays with the worker that opened it; if that
dies, another one opens it again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np
import polars as pl

from deepprof.analysis.part import AnalysisOptions, RankPart, examine, without_timelines
from deepprof.collectors.clocks import TraceClock, read_clock
from deepprof.collectors.errors import DeepProfError, TraceError, UsageError
from deepprof.collectors.processes import session_of, split_all, split_processes
from deepprof.collectors.store.rank import StoredRank
from deepprof.collectors.trace import TABLES, Trace
from deepprof.job import open_stored, read_rank
from deepprof.job.alignment import ClockCorrection, ClockOffset, collective_ends, correct, measure_offset
from deepprof.job.part import Between, RankBegin, find_begin, read_part
from deepprof.job.ranks import NumberedTrace, put_number
from deepprof.job.sources import TraceSource, TraceSources
from deepprof.metrics.operators import stand_in
from deepprof.metrics.sharing.shared_places import list_devices
from deepprof.metrics.sharing.work import DeviceWork, read_work
from deepprof.version import read_version

if TYPE_CHECKING:
    from deepprof.collectors.importers.generic.columns import GenericColumns

__all__ = [
    "ErrorValue",
    "OpenedTraces",
    "RankCorrection",
    "RankHead",
    "ReadOptions",
    "cut_parts",
    "find_begins",
    "find_ends",
    "look",
    "measure_offsets",
    "open_path",
    "read_works",
    "tell_heads",
    "tell_versions",
]

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class ErrorValue:
    """An error as a value: its kind, and what makes it again."""

    kind: Literal["trace", "usage", "system"]
    arguments: tuple[str | int | None, ...]

    def error(self) -> Exception:
        """Return the error itself."""
        if self.kind == "trace":
            path, problem, advice = map(str, self.arguments)
            return TraceError(path, problem, advice)
        return UsageError(*self.arguments) if self.kind == "usage" else OSError(*self.arguments)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a path is read: `path` is what it is called, `place` where it is found from any directory.

    `alone`: the job has no other. `stored`: a rank in a store is only opened, for a part of it will be read.
    """

    path: str
    place: str
    alone: bool = False
    stored: bool = False
    columns: GenericColumns | None = None


@dataclass(frozen=True, slots=True)
class RankHead:
    """What the job must know of one rank before it can be numbered and put on the common clock."""

    rank: int | None
    path: str
    events: int  # on devices
    clock: TraceClock
    session: str | None = None  # the file of several processes that it is a part of
    devices: tuple[tuple[int, str | None], ...] = ()  # that it has work on, with what identifies each


@dataclass(frozen=True, slots=True)
class RankCorrection:
    """What is done to one rank before it is looked at; `stand_in`: no rank of the job has an event on a device."""

    number: NumberedTrace
    correction: ClockCorrection
    stand_in: bool


@dataclass(frozen=True, slots=True)
class OpenedTraces:
    """The traces behind one path, which stay with the worker that opened it."""

    ranks: tuple[Trace | StoredRank, ...]

    def __sizeof__(self) -> int:
        """Return the bytes of their tables: Dask asks, lest it move them to where a worker has nothing to do."""
        return sum(int(getattr(trace, table).estimated_size()) for trace in self.traces for table in TABLES)

    @property
    def traces(self) -> tuple[Trace, ...]:
        """Those that are read."""
        return tuple(rank for rank in self.ranks if isinstance(rank, Trace))


def tell_versions() -> dict[str, str]:
    """Return the versions that must be the same everywhere for results to be."""
    return {"deepprof": read_version(), "polars": pl.__version__, "numpy": np.__version__}


def open_path(how: ReadOptions) -> OpenedTraces | ErrorValue:
    """Return the traces behind one path, several where it is an archive."""
    return attempt(how, lambda: read_sources(how))


def read_sources(how: ReadOptions) -> OpenedTraces:
    """Return the traces behind one path."""
    sources = TraceSources([Path(how.place)])
    with closing(sources):
        sources.measure()  # opens an archive, so that `total` is known
        return OpenedTraces(tuple(part for source in sources for part in split(read_source(source, sources, how), how)))


def split(rank: Trace | StoredRank, how: ReadOptions) -> Sequence[Trace | StoredRank]:
    """Return the processes of a trace as traces of their own; where it will be cut, that is done afterwards."""
    return split_processes(rank) if isinstance(rank, Trace) and not how.stored else [rank]


def read_source(source: TraceSource, sources: TraceSources, how: ReadOptions) -> Trace | StoredRank:
    """Return one trace under the name it has in the report."""
    found: Trace | StoredRank | None = open_stored(source) if how.stored else None
    found = found or read_rank(source, alone=how.alone and sources.total == 1, columns=how.columns)
    source.forget()
    return replace(found, path=rename(found.path, how)) if isinstance(found, Trace) else found


def rename(text: str, how: ReadOptions) -> str:
    """Return a path at or behind the place of `how` as the caller wrote it."""
    return how.path + text[len(how.place) :] if text.startswith(how.place) else text


def attempt(how: ReadOptions | None, work: Callable[[], Found]) -> Found | ErrorValue:
    """Return what `work` returns, or the problem with its input; bugs are raised."""
    try:
        return work()
    except TraceError as error:
        path = rename(error.path, how) if how else error.path
        return ErrorValue("trace", (path, error.problem, error.advice))
    except DeepProfError as error:
        return ErrorValue("usage", (str(error),))
    except MemoryError:
        return ErrorValue(
            "trace", (how.path if how else "job", "needs more memory than a worker has", "give workers more")
        )
    except OSError as error:
        name = rename(os.fsdecode(error.filename), how) if how and error.filename else error.filename
        return ErrorValue("system", (error.errno, error.strerror or str(error), name and str(name)))


def find_begins(opened: OpenedTraces | ErrorValue) -> tuple[RankBegin, ...] | ErrorValue:
    """Return when each trace begins."""
    return opened if isinstance(opened, ErrorValue) else tuple(find_begin(rank) for rank in opened.ranks)


def cut_parts(opened: OpenedTraces | ErrorValue, zeros: Sequence[int], between: Between) -> OpenedTraces | ErrorValue:
    """Return what of each trace lies in the range that counts from its zero."""
    if isinstance(opened, ErrorValue):
        return opened
    pairs = zip(opened.ranks, zeros, strict=True)
    return attempt(
        None, lambda: OpenedTraces(tuple(split_all([read_part(rank, zero, between) for rank, zero in pairs])))
    )


def tell_heads(opened: OpenedTraces | ErrorValue) -> tuple[RankHead, ...] | ErrorValue:
    """Return what the job must know of each trace."""
    if isinstance(opened, ErrorValue):
        return opened
    return tuple(tell_head(trace) for trace in opened.traces)


def read_works(
    opened: OpenedTraces, orders: Sequence[RankCorrection], devices: Sequence[Sequence[int]]
) -> tuple[tuple[DeviceWork, ...], ...]:
    """Return what each trace has on those of its devices that other ranks use too."""
    given = zip(opened.traces, orders, devices, strict=True)
    return tuple(tuple(read_work(prepare(trace, order), device) for device in wanted) for trace, order, wanted in given)


def tell_head(trace: Trace) -> RankHead:
    """Return what the job must know of one trace."""
    events, devices = trace.device_events.height, list_devices(trace).devices
    return RankHead(trace.rank, trace.path, events, read_clock(trace), session_of(trace), devices)


def find_ends(opened: OpenedTraces, index: int) -> pl.DataFrame:
    """Return the ends of the collectives of the trace that the others' clocks are compared with."""
    return collective_ends(opened.traces[index])


def measure_offsets(opened: OpenedTraces, ends: pl.DataFrame) -> tuple[ClockOffset | None, ...]:
    """Return how far each trace's clock is ahead of the one with these ends."""
    return tuple(measure_offset(ends, collective_ends(trace)) for trace in opened.traces)


def look(opened: OpenedTraces, orders: Sequence[RankCorrection], question: AnalysisOptions) -> tuple[RankPart, ...]:
    """Return what each trace shows, without what only pictures need."""
    prepared = (prepare(trace, order) for trace, order in zip(opened.traces, orders, strict=True))
    return tuple(without_timelines(examine(trace, question)[1]) for trace in prepared)


def prepare(trace: Trace, order: RankCorrection) -> Trace:
    """Return the trace as the rank that it is in the job, on its clock."""
    numbered = correct(put_number(trace, order.number), order.correction)
    return (stand_in(numbered) if order.stand_in else None) or numbered
