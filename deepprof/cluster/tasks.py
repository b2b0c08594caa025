"""The tasks of a worker: open the traces of one path, return what the job must know of them, and examine them.

A task that fails because of its input returns an `ErrorValue` instead of raising, and the tasks that follow pass it on:
exceptions with several arguments cannot be sent. Traces stay with the worker that opened them; if it dies, another one
opens them again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from deepprof.analysis.part import RankPart, without_timelines
from deepprof.analysis.pipeline import examine
from deepprof.collectors.clocks import TraceClock, read_clock
from deepprof.collectors.errors import DeepProfError, TraceError, UsageError
from deepprof.collectors.importers.generic.columns import GenericColumns
from deepprof.collectors.processes import session_of, split_all, split_processes
from deepprof.collectors.store.rank import StoredRank
from deepprof.collectors.trace import TABLES, Trace
from deepprof.job import open_stored, read_rank
from deepprof.job.alignment import ClockCorrection, ClockOffset, collective_ends, correct, measure_offset
from deepprof.job.part import Between, RankBegin, find_begin, read_part
from deepprof.job.ranks import NumberedTrace, put_number
from deepprof.job.sources import TraceSource, TraceSources
from deepprof.metrics.cpu_fallback import stand_in
from deepprof.metrics.options import AnalysisOptions
from deepprof.metrics.sharing.shared_places import list_devices
from deepprof.metrics.sharing.work import DeviceWork, read_work
from deepprof.version import read_version

Found = TypeVar("Found")


class ErrorValue(Struct, frozen=True):
    """An error as a value: its kind, and the arguments to create it again."""

    kind: Literal["trace", "usage", "system"]
    arguments: tuple[str | int | None, ...]

    def error(self) -> Exception:
        """Return the error itself."""
        if self.kind == "trace":
            path, problem, advice = map(str, self.arguments)
            return TraceError(path, problem, advice)
        return UsageError(*self.arguments) if self.kind == "usage" else OSError(*self.arguments)


class ReadOptions(Struct, frozen=True):
    """How a path is read: `path` as the caller wrote it, `place` as an absolute path.

    `alone`: the job has no other path. `stored`: a rank in a store is only opened, because a part of it is read later.
    `shapes` is that of `read`.
    """

    path: str
    place: str
    alone: bool = False
    stored: bool = False
    columns: GenericColumns | None = None
    shapes: bool = True


class RankHead(Struct, frozen=True):
    """What the job must know of one rank before it can be numbered and put on the common clock."""

    rank: int | None
    path: str
    events: int  # number of events on devices
    clock: TraceClock
    session: str | None = None  # the file of several processes that this rank is a part of
    devices: tuple[tuple[int, str | None], ...] = ()  # that the rank has work on, each with its identity


class RankCorrection(Struct, frozen=True):
    """The changes to one rank before it is examined; `stand_in`: no rank of the job has an event on a device."""

    number: NumberedTrace
    correction: ClockCorrection
    stand_in: bool


class OpenedTraces(Struct, frozen=True, eq=False):
    """The traces behind one path, which stay with the worker that opened it."""

    ranks: tuple[Trace | StoredRank, ...]

    def __sizeof__(self) -> int:
        """Return the bytes of their tables: Dask requests them, and else would move the traces to an idle worker."""
        return sum(int(getattr(trace, table).estimated_size()) for trace in self.traces for table in TABLES)

    @property
    def traces(self) -> tuple[Trace, ...]:
        """The ranks whose tables are read."""
        return tuple(rank for rank in self.ranks if isinstance(rank, Trace))


def tell_versions() -> dict[str, str]:
    """Return the versions that must be the same everywhere, so that results are the same."""
    return {"deepprof": read_version(), "polars": pl.__version__, "numpy": np.__version__}


def open_path(how: ReadOptions) -> OpenedTraces | ErrorValue:
    """Return the traces behind one path, several if it is an archive."""
    return attempt(how, lambda: _read_sources(how))


def _read_sources(how: ReadOptions) -> OpenedTraces:
    sources = TraceSources([Path(how.place)])
    with closing(sources):
        sources.measure()  # opens an archive, so that `total` is known
        return OpenedTraces(
            tuple(part for source in sources for part in split(_read_source(source, sources, how), how))
        )


def split(rank: Trace | StoredRank, how: ReadOptions) -> Sequence[Trace | StoredRank]:
    """Return the processes of a trace as their own traces; a trace that will be cut is split after that."""
    return split_processes(rank) if isinstance(rank, Trace) and not how.stored else [rank]


def _read_source(source: TraceSource, sources: TraceSources, how: ReadOptions) -> Trace | StoredRank:
    found: Trace | StoredRank | None = open_stored(source) if how.stored else None
    alone = how.alone and sources.total == 1
    found = found or read_rank(source, alone=alone, columns=how.columns, details=None, shapes=how.shapes)
    source.forget()
    return replace(found, path=_rename(found.path, how)) if isinstance(found, Trace) else found


def _rename(text: str, how: ReadOptions) -> str:
    """Return a path that begins with the place of `how` as the caller wrote it."""
    return how.path + text[len(how.place) :] if text.startswith(how.place) else text


def attempt(how: ReadOptions | None, work: Callable[[], Found]) -> Found | ErrorValue:
    """Return the result of `work`, or the problem with its input as a value; bugs are raised."""
    try:
        return work()
    except TraceError as error:
        path = _rename(error.path, how) if how else error.path
        return ErrorValue("trace", (path, error.problem, error.advice))
    except DeepProfError as error:
        return ErrorValue("usage", (str(error),))
    except MemoryError:
        return ErrorValue(
            "trace", (how.path if how else "job", "needs more memory than a worker has", "give workers more")
        )
    except OSError as error:
        name = _rename(os.fsdecode(error.filename), how) if how and error.filename else error.filename
        return ErrorValue("system", (error.errno, error.strerror or str(error), name and str(name)))


def find_begins(opened: OpenedTraces | ErrorValue) -> tuple[RankBegin, ...] | ErrorValue:
    """Return when each trace begins."""
    return opened if isinstance(opened, ErrorValue) else tuple(find_begin(rank) for rank in opened.ranks)


def cut_parts(
    opened: OpenedTraces | ErrorValue, zeros: Sequence[int], between: Between, *, shapes: bool
) -> OpenedTraces | ErrorValue:
    """Return the part of every trace that is in the range, which counts from the trace's zero."""
    if isinstance(opened, ErrorValue):
        return opened
    pairs = zip(opened.ranks, zeros, strict=True)
    return attempt(
        None,
        lambda: OpenedTraces(tuple(split_all([read_part(rank, zero, between, shapes=shapes) for rank, zero in pairs]))),
    )


def tell_heads(opened: OpenedTraces | ErrorValue) -> tuple[RankHead, ...] | ErrorValue:
    """Return what the job must know of every trace."""
    if isinstance(opened, ErrorValue):
        return opened
    return tuple(_tell_head(trace) for trace in opened.traces)


def read_works(
    opened: OpenedTraces, orders: Sequence[RankCorrection], devices: Sequence[Sequence[int]]
) -> tuple[tuple[DeviceWork, ...], ...]:
    """Return the work of every trace on those of its devices that other ranks use too."""
    given = zip(opened.traces, orders, devices, strict=True)
    return tuple(
        tuple(read_work(_prepare(trace, order)[0], device) for device in wanted) for trace, order, wanted in given
    )


def _tell_head(trace: Trace) -> RankHead:
    events, devices = trace.device_events.height, list_devices(trace).devices
    return RankHead(trace.rank, trace.path, events, read_clock(trace), session_of(trace), devices)


def find_ends(opened: OpenedTraces, index: int) -> pl.DataFrame:
    """Return the ends of the collectives of the trace `index`, with which the others' clocks are compared."""
    return collective_ends(opened.traces[index])


def measure_offsets(opened: OpenedTraces, ends: pl.DataFrame) -> tuple[ClockOffset | None, ...]:
    """Return how far each trace's clock is ahead of the clock of `ends`."""
    return tuple(measure_offset(ends, collective_ends(trace)) for trace in opened.traces)


def look(opened: OpenedTraces, orders: Sequence[RankCorrection], question: AnalysisOptions) -> tuple[RankPart, ...]:
    """Return the analysis of every trace, without the timelines that only pictures need."""
    prepared = (_prepare(trace, order) for trace, order in zip(opened.traces, orders, strict=True))
    return tuple(without_timelines(examine(trace, question, recorded)[1]) for trace, recorded in prepared)


def _prepare(trace: Trace, order: RankCorrection) -> tuple[Trace, Trace]:
    """Return the trace with its number in the job and on the job's clock, ready to examine, and as it was recorded."""
    numbered = correct(put_number(trace, order.number), order.correction)
    return (stand_in(numbered) if order.stand_in else None) or numbered, numbered
