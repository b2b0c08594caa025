"""Copies of an iteration, and memory in use over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.metrics.series.memory import HOST_MEMORY
from deepprof.render.top import DIRECTIONS

if TYPE_CHECKING:
    from deepprof.analysis import Analysis
    from deepprof.collectors.trace import Trace

Int64s = npt.NDArray[np.int64]

MOST_POINTS = 800  # stretches of a series: about the pixels of a picture's width
# How the recorder of a format is made to record allocations, empty where it cannot be. Importers of other formats read
# none: nobody is told to record them for nothing.
ADVICE: Mapping[str, str] = MappingProxyType(
    {
        "kineto": "torch.profiler records them with profile_memory=True",
        "rocprof": "rocprofv3 records them with --memory-allocation-trace",
        "rocpd": "rocprofv3 records them with --memory-allocation-trace",
        "xplane": "",
        "xla": "the profile beside it, *.xplane.pb, may have them",
    }
)
ELSEWHERE = "none are read from {format} files; torch.profiler records them with profile_memory=True"
MOST = np.iinfo(np.int64).max


class CopyEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Copies of one direction and memory of the host per iteration; `memory` is empty where it is not recorded."""

    loop: int | None
    direction: str
    memory: str
    calls: float
    nbytes: float | None
    time_ns: float
    share_ratio: float
    gigabytes_per_s: float | None


class MemorySeries(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one device (-1: the host) over time, in at most `MOST_POINTS` stretches of equal length.

    `time_ns` is when a stretch begins, since the first; `low` and `high` what is in use at least and at most in it.
    """

    rank: int
    device: int
    title: str
    time_ns: list[int]
    low_nbytes: list[int]
    high_nbytes: list[int]
    limit_nbytes: int | None


class MemoryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Copies and memory of a job; `problem` says why there is no `series`, and how to record it."""

    schema: Literal["deepprof.view.memory/1"] = "deepprof.view.memory/1"
    copies: list[CopyEntry]
    series: list[MemorySeries]
    problem: str | None


def write_memory(analysis: Analysis) -> MemoryDocument:
    """Return the copies of each loop, and the memory in use on each device."""
    series = [each for trace in analysis.traces for each in _list_series(trace)]
    return MemoryDocument(
        copies=list(_list_copies(analysis.copies)),
        series=series,
        problem=None if series else _explain_none(analysis),
    )


def _list_copies(copies: pl.DataFrame) -> Iterator[CopyEntry]:
    """Yield the rows of a table of copies."""
    for row in copies.to_dicts():
        yield CopyEntry(
            loop=row["loop"],
            direction=DIRECTIONS[row["direction"]],
            memory=row["memory"] or "",
            calls=row["calls"],
            nbytes=row["nbytes"],
            time_ns=row["time_ns"],
            share_ratio=row["share_ratio"],
            gigabytes_per_s=row["gigabytes_per_s"],
        )


def _list_series(trace: Trace) -> Iterator[MemorySeries]:
    """Yield the memory in use on each device of a trace, and on the host, where it was recorded."""
    rank, limits = trace.rank or 0, dict(trace.devices.select("device", "memory_nbytes").iter_rows())
    for device in trace.memory_events["device"].drop_nulls().unique().sort().to_list():
        time, in_use = _read_use(trace.memory_events.filter(device=device))
        where = "host" if device == HOST_MEMORY else f"device {device}"
        begins, low, high = sum_up(time, in_use, MOST_POINTS)
        yield MemorySeries(
            rank=rank,
            device=device,
            title=f"rank {rank}, {where}",
            time_ns=begins.tolist(),
            low_nbytes=low.tolist(),
            high_nbytes=high.tolist(),
            limit_nbytes=limits.get(device),
        )


def _read_use(events: pl.DataFrame) -> tuple[Int64s, Int64s]:
    """Return when memory in use changed, and to what: as recorded, or else counted from 0 at the first event."""
    stated = events["allocated_nbytes"]
    if stated.null_count() == len(stated):
        changes = events["nbytes"].fill_null(0).cum_sum()
        in_use = changes - min(0, changes.min() or 0)
        return events["time_ns"].to_numpy(), in_use.to_numpy()
    known = events.filter(stated.is_not_null())
    return known["time_ns"].to_numpy(), known["allocated_nbytes"].clip(0, MOST).cast(pl.Int64).to_numpy()


def sum_up(time: Int64s, in_use: Int64s, most: int) -> tuple[Int64s, Int64s, Int64s]:
    """Return when at most `most` stretches begin, since the first time, and the least and the most in use in each.

    Every value holds until the next one, so that what is in use at a stretch's begin counts, too.
    """
    span = int(time[-1] - time[0]) + 1
    length = -(-span // most)
    many = -(-span // length)
    stretch = (time - time[0]) // length
    low, high = np.full(many, MOST), np.full(many, -1)
    np.minimum.at(low, stretch, in_use)
    np.maximum.at(high, stretch, in_use)
    last = np.searchsorted(stretch, np.arange(many)) - 1  # the value that holds at the begin of a stretch
    held = in_use[np.maximum(last, 0)]
    carried = last >= 0
    low[carried], high[carried] = np.minimum(low, held)[carried], np.maximum(high, held)[carried]
    return np.arange(many) * length, low, high


def _explain_none(analysis: Analysis) -> str:
    """Return why there is no memory in use, and how each recorder is made to record it."""
    if not analysis.traces:
        return "Other machines read the traces, and kept what memory was in use."
    formats = dict.fromkeys(recording.format.partition("-")[0] for recording in analysis.recordings)
    advice = (ADVICE.get(each, ELSEWHERE.format(format=each)) for each in formats)
    return "; ".join(["No allocation was recorded", *dict.fromkeys(filter(None, advice))]) + "."
