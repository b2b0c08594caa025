"""Copies of an iteration, and memory in use over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import msgspec
import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.metrics.memory.floors import HOST_MEMORY
from deepprof.metrics.memory.use import read_use, sum_up
from deepprof.render.top import DIRECTIONS

if TYPE_CHECKING:
    from deepprof.analysis import Analysis

MOST_POINTS = 800  # sections of a series: about the pixels of a picture's width
# How the recorder of a format is made to record allocations, empty where it cannot be. Importers of other formats read
# none: no one is instructed to record them for nothing.
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
    """Memory of one device (-1: the host) over time, in at most `MOST_POINTS` sections of equal length.

    `time_ns` is when a section begins, since the first; `low` and `high` what is in use at least and at most in it.
    """

    rank: int
    device: int
    title: str
    time_ns: list[int]
    low_nbytes: list[int]
    high_nbytes: list[int]
    limit_nbytes: int | None


class MemoryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Copies and memory of a job; `problem` states why there is no `series`, and how to record it."""

    schema: Literal["deepprof.view.memory/1"] = "deepprof.view.memory/1"
    copies: list[CopyEntry]
    series: list[MemorySeries]
    problem: str | None


def write_memory(analysis: Analysis) -> MemoryDocument:
    """Return the copies of every loop, and the memory in use on every device."""
    series = [each for trace in analysis.traces for each in _list_series(trace)]
    return MemoryDocument(
        copies=list(_list_copies(analysis.copies)),
        series=series,
        problem=None if series else _explain_none(analysis),
    )


def _list_copies(copies: pl.DataFrame) -> Iterator[CopyEntry]:
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
    """Yield the memory in use on every device of a trace, and on the host, where it was recorded."""
    rank, limits = trace.rank or 0, dict(trace.devices.select("device", "memory_nbytes").iter_rows())
    for device in trace.memory_events["device"].drop_nulls().unique().sort().to_list():
        use = read_use(trace.memory_events, device)
        if use is None:
            continue
        where = "host" if device == HOST_MEMORY else f"device {device}"
        begins, low, high = sum_up(use.time_ns, use.allocated_nbytes, MOST_POINTS)
        yield MemorySeries(
            rank=rank,
            device=device,
            title=f"rank {rank}, {where}",
            time_ns=begins.tolist(),
            low_nbytes=low.tolist(),
            high_nbytes=high.tolist(),
            limit_nbytes=limits.get(device),
        )


def _explain_none(analysis: Analysis) -> str:
    """Return why there is no memory in use, and how each recorder is made to record it."""
    if not analysis.traces:
        return "Other machines read the traces, and kept what memory was in use."
    formats = dict.fromkeys(recording.format.partition("-")[0] for recording in analysis.recordings)
    advice = (ADVICE.get(each, ELSEWHERE.format(format=each)) for each in formats)
    return "; ".join(["No allocation was recorded", *dict.fromkeys(filter(None, advice))]) + "."
