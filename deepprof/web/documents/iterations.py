"""The iterations of one loop: every one of them by parts, and what uses the time of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec
import polars as pl
from msgspec.structs import replace

from deepprof.metrics.breakdown.parts import PART_NAMES
from deepprof.metrics.kernels.classify import find_kernel_kinds
from deepprof.metrics.top import copies_of_each, kernels_of_each
from deepprof.render.top import DIRECTIONS
from deepprof.render.wording import wording_of
from deepprof.web.documents.figures import write_table_iii
from deepprof.web.documents.marks import Mark, mark_iterations
from deepprof.web.documents.places import name_parts
from deepprof.web.documents.schema import Figure, TimePart
from deepprof.web.documents.texts import TextTable

if TYPE_CHECKING:
    from deepprof.analysis import Analysis

MOST_ITERATIONS = 2_000  # in full: 100 bytes each, without kernels
AS_MEASURED = ("iteration_ns", "operation_ns", "interval_ns", "overlap_ratio", "kernels", "edits")


class TopKernels(msgspec.Struct, frozen=True, kw_only=True):
    """The kernels that use most of single iterations, columns; `index` is the iteration's, `name` a text's number."""

    index: list[int]
    name: list[int]
    calls: list[int]
    time_ns: list[int]


class TopCopies(msgspec.Struct, frozen=True, kw_only=True):
    """The copies of single iterations, columns; `direction` is a text's number, `nbytes` null if not recorded."""

    index: list[int]
    direction: list[int]
    calls: list[int]
    nbytes: list[int | None]
    time_ns: list[int]


class IterationsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A loop's iterations, one column a list; `parts[p][i]` is what part `p` takes of iteration `i`.

    The parts of an iteration add up to `length_ns`: from its start to the next one's, or its own end. `figures` are the
    paper's Table III. `left_out` iterations, the last ones, are not in it.
    """

    schema: Literal["deepprof.view.iterations/1"] = "deepprof.view.iterations/1"
    loop: int
    strings: list[str]
    index: list[int]
    start_ns: list[int]  # since the first iteration's
    length_ns: list[int]
    iteration_ns: list[int | None]
    operation_ns: list[int]
    interval_ns: list[int | None]
    overlap_ratio: list[float | None]
    htod_nbytes: list[int]
    kernels: list[int]
    edits: list[int]
    mark: list[Mark]
    part: list[TimePart]
    parts: list[list[int]]
    top_kernels: TopKernels
    top_copies: TopCopies
    figures: list[Figure]
    left_out: int = 0


def write_iterations(analysis: Analysis, number: int) -> IterationsDocument:
    """Return the iterations of the loop `number` of an analysis."""
    loop, words, texts = analysis.loops[number], wording_of(analysis), TextTable()
    kept = replace(loop, iterations=loop.iterations.head(MOST_ITERATIONS))
    table, trace = kept.table, analysis.find_trace(loop.rank)
    names = [name for name in PART_NAMES if table[name].sum()]
    first = table["start_ns"].item(0) if table.height else 0
    kinds = find_kernel_kinds(trace, analysis.recorded.get(loop.rank))
    kernels, copies = kernels_of_each(trace, kept, kinds), copies_of_each(trace, kept)
    return IterationsDocument(
        loop=number,
        index=table["index"].to_list(),
        start_ns=(table["start_ns"] - first).to_list(),
        length_ns=(table["busy_ns"] + table["idle_ns"]).to_list(),
        **_columns(table.select(AS_MEASURED)),
        htod_nbytes=table["htod_bytes"].to_list(),
        mark=mark_iterations(loop)[: table.height],
        part=name_parts(names, words),
        parts=[table[name].fill_null(0).to_list() for name in names],
        top_kernels=TopKernels(**_columns(kernels, name=texts.column(kernels["name"]))),
        top_copies=TopCopies(**_columns(copies, direction=texts.column(_name_directions(copies)))),
        figures=write_table_iii(loop, words),
        strings=texts.strings,
        left_out=loop.iterations.height - table.height,
    )


def _columns(table: pl.DataFrame, **texts: list[int]) -> dict[str, Any]:
    """Return the columns of a table as lists, with `texts` in place of those of texts."""
    return table.drop(*texts).to_dict(as_series=False) | texts


def _name_directions(copies: pl.DataFrame) -> pl.Series:
    known = {way: name for way, name in DIRECTIONS.items() if way is not None}
    return copies["direction"].replace_strict(known, default=DIRECTIONS[None], return_dtype=pl.String())
