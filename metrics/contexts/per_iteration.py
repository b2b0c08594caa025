"""What each context took in each iteration of a loop: growth, noise and warm-up have a place in the code."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.table_schema import TableSchema
from deepprof.collectors.trace import Trace
from deepprof.metrics.breakdown.timeline import Timeline
from deepprof.metrics.contexts.measures import COLUMNS, MEASURES, Amounts, list_amounts
from deepprof.metrics.contexts.paths import add_up
from deepprof.metrics.contexts.tree import ContextTree
from deepprof.metrics.loop import Loop

Int64s = npt.NDArray[np.int64]

IN_ITERATIONS = TableSchema.of(
    "What one context took in one iteration, with all within; without a row it took nothing.",
    {
        "iteration": (pl.Int64(), "the iteration's number in the loop"),
        "context": (pl.UInt32(), "the context"),
        **{name: (MEASURES[name], MEASURES.meanings[name]) for name in COLUMNS},
    },
)


def measure_iterations(trace: Trace, tree: ContextTree, loop: Loop, timelines: Iterable[Timeline] = ()) -> pl.DataFrame:
    """Return what contexts took in each iteration of a loop, with the schema `IN_ITERATIONS`.

    What begins in an iteration counts in it. On devices only the loop's own one counts.
    """
    windows = loop.table.select(
        "index", "start_ns", until_ns=pl.col("start_ns") + pl.col("busy_ns") + pl.col("idle_ns")
    )
    many = tree.contexts.height
    placed = [_place(amounts, windows, many) for amounts in list_amounts(trace, tree, timelines, loop.device)]
    parent = tree.parent
    nodes = _with_ancestors(np.unique(np.concatenate([keys for keys, _ in placed])), parent, many)
    own = np.zeros((len(nodes), len(COLUMNS)), np.int64)
    for keys, amounts in placed:
        np.add.at(own[:, COLUMNS.index(amounts.column)], np.searchsorted(nodes, keys), amounts.amount)
    around = np.searchsorted(nodes, nodes - nodes % many + parent[nodes % many])
    whole = add_up(own, around, tree.depth[nodes % many])
    index = windows["index"].gather(nodes // many)
    table = pl.DataFrame({"iteration": index, "context": nodes % many}).hstack(
        pl.DataFrame(whole, schema=list(COLUMNS))
    )
    return table.cast(dict(IN_ITERATIONS))  # type: ignore[arg-type]


def _place(amounts: Amounts, windows: pl.DataFrame, many: int) -> tuple[Int64s, Amounts]:
    """Return the amounts within the windows, and for each the window's number times `many` plus the context."""
    at = np.searchsorted(windows["start_ns"].to_numpy(), amounts.time_ns, side="right") - 1
    inside = at >= 0
    inside[inside] = amounts.time_ns[inside] < windows["until_ns"].to_numpy()[at[inside]]
    kept = Amounts(amounts.column, amounts.context[inside], amounts.amount[inside], amounts.time_ns[inside])
    return at[inside] * many + kept.context, kept


def _with_ancestors(keys: Int64s, parent: Int64s, many: int) -> Int64s:
    """Return the keys with those of all contexts around them, sorted."""
    found, outer = keys, keys
    while (inner := outer[outer % many > 0]).size:
        outer = np.unique(inner - inner % many + parent[inner % many])
        found = np.union1d(found, outer)
    return found
