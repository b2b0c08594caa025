"""What each context needed in every iteration of a loop: growth, noise and warm-up have a place in the code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.table_schema import TableSchema
from deepprof.collectors.trace import Trace
from deepprof.metrics.breakdown.timeline import Timeline
from deepprof.metrics.contexts.measures import COLUMNS, MEASURES, Amounts, list_amounts
from deepprof.metrics.contexts.paths import add_up
from deepprof.metrics.contexts.tree import ContextTree
from deepprof.metrics.loop import Loop

Int64s = npt.NDArray[np.int64]

MARKED = 10_000_000  # windows times contexts: a byte for each

IN_ITERATIONS = TableSchema.of(
    "What one context took in one iteration, with all within; without a row it took nothing.",
    {
        "iteration": (pl.Int64(), "the iteration's number in the loop"),
        "context": (pl.UInt32(), "the context"),
        **{name: (MEASURES[name], MEASURES.meanings[name]) for name in COLUMNS},
    },
)


IN_LOOPS = TableSchema.of(
    "How much of one measure a context takes in the usual iterations of a loop, with all within; without a row none.",
    {
        "context": (pl.UInt32(), "the context"),
        "measure": (pl.Enum(COLUMNS), "the measure, a column of contexts"),
        "mean": (pl.Float64(), "its mean per iteration"),
        "deviation": (pl.Float64(), "its standard deviation over the iterations"),
        "trend": (pl.Float64(), "by how much it changes from one iteration to the next: the slope of least squares"),
    },
)


class _TakenInWindows(Struct, frozen=True, eq=False):
    """What contexts needed in windows of time, a row for every window and context that has anything.

    `window` is the window's number; `whole` and `own` have a column for each of `COLUMNS`, with all within and without.
    """

    window: Int64s
    context: Int64s
    whole: Int64s
    own: Int64s


def measure_iterations(trace: Trace, tree: ContextTree, loop: Loop, timelines: Iterable[Timeline] = ()) -> pl.DataFrame:
    """Return what contexts needed in every iteration of a loop, with the schema `IN_ITERATIONS`.

    What begins in an iteration counts in it. On devices only the loop's own one counts.
    """
    length = (loop.table["busy_ns"] + loop.table["idle_ns"]).to_numpy()
    start, number = loop.table["start_ns"].to_numpy(), np.arange(len(length))
    taken = measure_windows(tree, list_amounts(trace, tree, timelines, loop.device), start, start + length, number)
    index = loop.table["index"].gather(taken.window)
    table = pl.DataFrame({"iteration": index, "context": taken.context})
    return table.hstack(pl.DataFrame(taken.whole, schema=list(COLUMNS))).cast(dict(IN_ITERATIONS))  # type: ignore[arg-type]


def summarize_iterations(taken: pl.DataFrame, loop: Loop) -> pl.DataFrame:
    """Return mean, deviation and trend over the usual iterations of a loop, with the schema `IN_LOOPS`.

    `taken` has the schema `IN_ITERATIONS`; an iteration without a row counts as 0.
    """
    index = loop.usual["index"]
    places = pl.DataFrame({"iteration": index, "at": np.arange(len(index)) - (len(index) - 1) / 2})
    known = taken.join(places, on="iteration").select("context", "at", pl.col(COLUMNS).cast(pl.Float64))
    rows = known.unpivot(index=["context", "at"], variable_name="measure", value_name="value").filter(
        pl.col("value") != 0
    )
    value, count, spread = pl.col("value"), max(1, len(index)), float((places["at"] ** 2).sum()) or 1.0
    sums = (
        rows.filter(value != 0)
        .group_by("context", "measure")
        .agg(mean=value.sum() / count, square=(value**2).sum() / count, trend=(value * pl.col("at")).sum() / spread)
    )
    deviation = (pl.col("square") - pl.col("mean") ** 2).clip(lower_bound=0).sqrt()
    table = sums.with_columns(deviation=deviation).sort("context", pl.col("measure").cast(pl.Enum(COLUMNS)))
    return table.select(list(IN_LOOPS)).cast(dict(IN_LOOPS))  # type: ignore[arg-type]


def measure_windows(
    tree: ContextTree, amounts: Iterable[Amounts], start: Int64s, end: Int64s, number: Int64s
) -> _TakenInWindows:
    """Return what contexts took of `amounts` in the windows [`start`, `end`) of each `number`; several may share one.

    Windows are sorted and do not overlap.
    """
    many, parent = tree.contexts.height, tree.parent
    placed = [_place(each, start, end, number * many) for each in amounts]
    nodes = _with_ancestors(_distinct([keys for keys, _ in placed]), parent, many)
    own = np.zeros((len(nodes), len(COLUMNS)), np.int64)
    for keys, taken in placed:
        np.add.at(own[:, COLUMNS.index(taken.column)], np.searchsorted(nodes, keys), taken.amount)
    context = nodes % many
    around = np.searchsorted(nodes, nodes - context + parent[context])
    return _TakenInWindows(nodes // many, context, add_up(own, around, tree.depth[context]), own)


def _place(amounts: Amounts, start: Int64s, end: Int64s, first_key: Int64s) -> tuple[Int64s, Amounts]:
    """Return the amounts within the windows, and for each the first key of its window plus the context."""
    at = np.searchsorted(start, amounts.time_ns, side="right") - 1
    inside = at >= 0
    inside[inside] = amounts.time_ns[inside] < end[at[inside]]
    kept = Amounts(amounts.column, amounts.context[inside], amounts.amount[inside], amounts.time_ns[inside])
    return first_key[at[inside]] + kept.context, kept


def _with_ancestors(keys: Int64s, parent: Int64s, many: int) -> Int64s:
    """Return the keys with those of all contexts around them, sorted."""
    found, outer = keys, keys
    while (inner := outer[outer % many > 0]).size:
        outer = _distinct([inner - inner % many + parent[inner % many]])
        found = _distinct([found, outer])
    return found


def _distinct(keys: Sequence[Int64s]) -> Int64s:
    """Return the different keys, sorted; small ones are marked in an array, which is several times quicker."""
    most = max((int(each.max(initial=-1)) for each in keys), default=-1) + 1
    if most > MARKED:
        return np.unique(np.concatenate(keys))
    marked = np.zeros(most, np.bool_)
    for each in keys:
        marked[each] = True
    return np.flatnonzero(marked)
