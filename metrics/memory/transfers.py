"""Copies that come again in every iteration, and what is copied there and back: candidates to keep where it is.

A trace has sizes, directions and places of copies, not what they carry. So equal copies may carry new data in every
iteration, as those of a batch do: what speaks for that is stated as a doubt, and nothing here is more than a candidate.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.table_schema import TableSchema
from deepprof.collectors.trace import COPY_KINDS, Trace
from deepprof.metrics.annotation.stage_names import STAGES
from deepprof.metrics.annotation.trace_annotation import TraceAnnotation, place_events
from deepprof.metrics.contexts.tree import ContextTree
from deepprof.metrics.loop import Loop
from deepprof.metrics.memory.owners import name_contexts

Int64s = npt.NDArray[np.int64]

I64, TEXT, RATIO = pl.Int64(), pl.String(), pl.Float64()
KIND = pl.Enum(COPY_KINDS)
DIRECTIONS = TableSchema.of(
    "What is copied in one direction in a usual iteration.",
    {
        "copy_kind": (KIND, "the direction"),
        "copies": (RATIO, "how many copies (mean)"),
        "nbytes": (RATIO, "how much (mean)"),
        "copy_ns": (RATIO, "how long they take, added up (mean)"),
    },
)
REPEATED_TRANSFERS = TableSchema.of(
    "One copy that comes again in most usual iterations: of one size and direction, at one place among these.",
    {
        "copy_kind": (KIND, "the direction"),
        "nbytes": (I64, "its size"),
        "place": (I64, "its place among the copies of this size and direction in the iteration, from 0"),
        "iterations": (I64, "usual iterations that have it"),
        "iterations_ratio": (RATIO, "their share"),
        "median_ns": (I64, "how long it takes (median)"),
        "places": (I64, "from how many operators and lines it was asked for; 0: not recorded"),
        "operator": (TEXT, "the outermost operator of most of them"),
        "function": (TEXT, "the function of user's or library code of most of them"),
        "file": (TEXT, "its file"),
        "line": (pl.UInt32(), "its line"),
        "candidate": (pl.Boolean(), "whether one line asks for it and nothing speaks against keeping it on the device"),
        "doubt": (TEXT, "what speaks against that, or what is not known"),
    },
)
ROUND_TRIPS = TableSchema.of(
    "What is copied to one side and back again, in the same size and iteration.",
    {
        "first": (KIND, "the direction of the first of the two copies"),
        "nbytes": (I64, "the size of each"),
        "pairs": (RATIO, "how many pairs per usual iteration (mean)"),
        "iterations": (I64, "usual iterations with one"),
        "copy_ns": (RATIO, "how long both take, added up, per usual iteration (mean)"),
    },
)
OFTEN = 0.9  # of the usual iterations have a copy that repeats
FEWEST_ITERATIONS = 3  # in which it must come again
SMALL_NBYTES = 1 << 16  # smaller ones are numbers, flags and shapes: their size states nothing
SOURCE = ("operator", "function", "file", "line")


def read_copies(loop: Loop, trace: Trace, known: TraceAnnotation | None = None) -> pl.DataFrame:
    """Return the copies of the loop's device that start in its usual iterations, in order of time.

    The columns are `iteration`, `copy_kind`, `nbytes`, `start_ns`, `copy_ns`, `between` (whether it starts after the
    last kernel of its iteration), `stage`, and `SOURCE`: who asked for it, as far as that was recorded.
    """
    rows = loop.usual
    begin, end = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    events = trace.device_events.hstack(place_events(known, trace.device_events.height).select("stage"))
    events = events.hstack(_find_sources(None if known is None else known.tree, events.height))
    copies = events.filter((pl.col("device") == loop.device) & pl.col("copy_kind").is_not_null())
    start = copies["start_ns"].to_numpy()
    at = np.searchsorted(begin, start, side="right") - 1
    until = np.append(begin + rows["iteration_ns"].to_numpy(), 0)[at]
    placed = copies.with_columns(
        iteration=pl.Series(np.append(rows["index"].to_numpy(), -1)[at], dtype=I64),
        between=pl.Series(start >= np.append(end, 0)[at], dtype=pl.Boolean),
        copy_ns=pl.col("end_ns") - pl.col("start_ns"),
        nbytes=pl.col("nbytes").cast(I64, strict=False),
    )
    columns = ("iteration", "copy_kind", "nbytes", "start_ns", "copy_ns", "between", "stage", *SOURCE)
    return placed.filter(pl.Series((at >= 0) & (start < until), dtype=pl.Boolean)).select(columns)


def _find_sources(tree: ContextTree | None, many: int) -> pl.DataFrame:
    """Return `SOURCE` of each of `many` device events, null where it is unknown."""
    nothing = {"operator": TEXT, "function": TEXT, "file": TEXT, "line": pl.UInt32()}
    if tree is None or not many:
        return pl.DataFrame(schema=nothing).clear(many)
    return name_contexts(tree)[tree.of_events].select(SOURCE)


def sum_directions(loop: Loop, copies: pl.DataFrame) -> pl.DataFrame:
    """Return what is copied in every direction, the longest first, with the schema `DIRECTIONS`."""
    many = max(1, loop.usual.height)
    groups = copies.group_by("copy_kind").agg(
        copies=pl.len() / many, nbytes=pl.col("nbytes").sum() / many, copy_ns=pl.col("copy_ns").sum() / many
    )
    return groups.sort("copy_ns", "copy_kind", descending=[True, False]).cast(dict(DIRECTIONS))  # type: ignore[arg-type]


def find_repeated_transfers(loop: Loop, copies: pl.DataFrame) -> pl.DataFrame:
    """Return the copies (`read_copies`) that come again in most usual iterations, the largest first.

    The schema is `REPEATED_TRANSFERS`. Those below `SMALL_NBYTES` are left out; so are all of a loop with fewer than
    `FEWEST_ITERATIONS` usual iterations.
    """
    many = loop.usual.height
    large = copies.filter(pl.col("nbytes") >= SMALL_NBYTES)
    if many < FEWEST_ITERATIONS or large.is_empty():
        return pl.DataFrame(schema=REPEATED_TRANSFERS)
    placed = large.with_columns(place=pl.int_range(pl.len()).over("iteration", "copy_kind", "nbytes"))
    source, named = pl.struct(SOURCE), pl.any_horizontal(pl.col(name).is_not_null() for name in SOURCE)
    groups = placed.group_by("copy_kind", "nbytes", "place", maintain_order=True).agg(
        iterations=pl.len(),
        iterations_ratio=pl.len() / many,
        median_ns=pl.col("copy_ns").median().round(),
        places=source.filter(named).n_unique(),
        source=source.mode(maintain_order=True).first(),
        between=pl.col("between").mean() > 1 - OFTEN,
        loading=(pl.col("stage") == pl.lit("data loading", pl.Enum(STAGES))).any(),
    )
    repeated = groups.filter(pl.col("iterations_ratio") >= OFTEN).unnest("source")
    judged = repeated.with_columns(doubt=_doubt()).with_columns(
        candidate=pl.col("copy_kind").is_in(["HtoD", "DtoH"]) & ~pl.col("doubt").is_in([*AGAINST])
    )
    ordered = judged.sort("candidate", "nbytes", "copy_kind", "place", descending=[True, True, False, False])
    return ordered.select(list(REPEATED_TRANSFERS)).cast(dict(REPEATED_TRANSFERS))  # type: ignore[arg-type]


LOADED = "asked for while data is loaded: the batch"
LARGEST = "the most that is copied from the host: it may be the batch"
BETWEEN = "copied between iterations: it may be the batch"
MANY_PLACES = "asked for by several lines: not the same copy each time"
ON_DEVICE = "it stays on the device, or goes to another one"
NO_LINE = "neither what asks for it is recorded nor what it carries"
NOT_SEEN = "what it carries is not recorded: it may be new in each iteration"
AGAINST = (LOADED, LARGEST, BETWEEN, MANY_PLACES, ON_DEVICE, NO_LINE)


def _doubt() -> pl.Expr:
    """Return what speaks against keeping a repeated copy's data on the device."""
    from_host = pl.col("copy_kind") == "HtoD"
    largest = pl.col("nbytes") == pl.col("nbytes").filter(from_host).max()
    texts = (
        (~pl.col("copy_kind").is_in(["HtoD", "DtoH"]), ON_DEVICE),
        (from_host & pl.col("loading"), LOADED),
        (from_host & largest, LARGEST),
        (from_host & pl.col("between"), BETWEEN),
        (pl.col("places") > 1, MANY_PLACES),
        (pl.col("places") == 0, NO_LINE),
    )
    return pl.coalesce(*(pl.when(condition).then(pl.lit(text)) for condition, text in texts), pl.lit(NOT_SEEN))


def find_round_trips(loop: Loop, copies: pl.DataFrame) -> pl.DataFrame:
    """Return what is copied there and back in the same size and iteration, with the schema `ROUND_TRIPS`.

    Copies (`read_copies`) from and to the host of one size are paired in order: each with the next one in the opposite
    direction. That they carry the same data is not recorded.
    """
    host = copies.filter(pl.col("copy_kind").is_in(["HtoD", "DtoH"]) & (pl.col("nbytes") >= SMALL_NBYTES))
    many = loop.usual.height
    if host.is_empty() or not many:
        return pl.DataFrame(schema=ROUND_TRIPS)
    group = ("iteration", "nbytes")
    again = (pl.col("copy_kind") == pl.col("copy_kind").shift(1)).fill_null(value=True).cum_sum().over(group)
    runs = host.sort("start_ns", maintain_order=True).with_columns(run=again)
    runs = runs.with_columns(row=pl.int_range(pl.len()).over(*group, "run"), length=pl.len().over(*group, "run"))
    paired = runs.filter(pl.col("row") < pl.col("length") // 2 * 2)
    first = paired.with_columns(first=pl.col("copy_kind").first().over(*group, "run"))
    found = first.group_by("first", "nbytes", maintain_order=True).agg(
        pairs=pl.len() / 2 / many, iterations=pl.col("iteration").n_unique(), copy_ns=pl.col("copy_ns").sum() / many
    )
    ordered = found.sort("copy_ns", "nbytes", "first", descending=[True, True, False])
    return ordered.select(list(ROUND_TRIPS)).cast(dict(ROUND_TRIPS))  # type: ignore[arg-type]
