"""A section of a recording as a trace for Perfetto: what runs in it, and what was found there."""

from __future__ import annotations

import gzip
from io import BytesIO
from typing import TYPE_CHECKING

import polars as pl
from msgspec.structs import replace

from deepprof.collectors.time_range import cut
from deepprof.metrics.annotation.device_segments import find_windows
from deepprof.render.perfetto import write_perfetto

if TYPE_CHECKING:
    from deepprof.analysis import Analysis, Loop

COMPRESSION = 6


def cut_region(analysis: Analysis, loop: Loop, iteration: int, within: tuple[int, int] | None = None) -> bytes | None:
    """Return one iteration of a loop, or what is `within` it, as a gzipped trace of its rank; None if there is none.

    `within` are begin and end in ns since the iteration's start; a section may begin before that, as its host does.
    """
    rows = loop.iterations["index"].to_list()
    if iteration not in rows:
        return None
    begin, until = (int(each[rows.index(iteration)]) for each in find_windows(loop))
    start, end = (begin, until) if within is None else (begin + within[0], begin + within[1])
    trace = analysis.find_trace(loop.rank)
    there = loop.iterations.filter((pl.col("start_ns") < end) & (pl.col("end_ns") > start))
    shown = replace(loop, iterations=there, blocks=())
    part = replace(analysis, traces=(cut(trace, start, end),), loops=(shown,), findings=(), timelines={}, annotated={})
    file = BytesIO()
    with gzip.GzipFile("", "wb", COMPRESSION, file, mtime=0) as packed:
        write_perfetto(part, packed)  # type: ignore[arg-type]
    return file.getvalue()
