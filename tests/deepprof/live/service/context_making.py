"""Sums of calling contexts by hand, and from random trees: what they come to is added up next to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from deepprof.collectors.context_nodes import hash_context, select_needed
from deepprof.collectors.trace import CONTEXT_KINDS, CONTEXT_NODES, CONTEXT_SUMS, Accounting, Trace
from deepprof.live.service.context_windows import AMOUNTS, MINUTE_NS, TREE
from tests.tables import table

__all__ = ["Totals", "batch_tables", "made_tree", "paths_of", "totals_of", "trace_of", "window_rows"]

SECOND = 10**9
START = 1_800_000_000 * SECOND // MINUTE_NS * MINUTE_NS
Totals = Counter[tuple[int, str]]
"""Amounts by context and column."""


def made_tree(parents: Sequence[int]) -> pl.DataFrame:
    """Return contexts of which number i hangs below number `parents[i]` (-1: the root); name i is its own."""
    hashes: list[int] = []
    rows: list[dict[str, object]] = []
    for number, parent in enumerate(parents):
        above = hashes[parent] if parent >= 0 else 0
        hashes.append(hash_context(above, number % 3, f"name {number}", number))
        kind = CONTEXT_KINDS[number % 3]
        rows.append({"context": hashes[-1], "parent": above, "kind": kind, "name_id": number, "line": number})
    return table(rows, CONTEXT_NODES)


def window_rows(time_ns: int, amounts: Mapping[int, Sequence[int]]) -> list[dict[str, object]]:
    """Return what contexts did in a second: count, time on the host, number and time on devices."""
    return [
        {"time_ns": time_ns, "window_ns": SECOND, "context": context, **dict(zip(AMOUNTS, values, strict=True))}
        for context, values in amounts.items()
    ]


def batch_tables(nodes: pl.DataFrame, rows: Sequence[Mapping[str, Any]]) -> dict[str, pl.DataFrame]:
    """Return the tables of a batch of sums, with the contexts that they need."""
    sums = table([dict(row) for row in rows], CONTEXT_SUMS)
    return {"context_sums": sums, "context_nodes": select_needed(nodes, sums["context"])}


def trace_of(nodes: pl.DataFrame, rows: Sequence[Mapping[str, Any]], rank: int = 0) -> Trace:
    """Return a trace of sums alone."""
    names = pl.Series("name", [f"name {number}" for number in range(nodes.height)], dtype=pl.String)
    count = Accounting(len(rows), len(rows))
    sums = table([dict(row) for row in rows], CONTEXT_SUMS)
    return Trace(
        path="", format="test", names=names, accounting=count, rank=rank, context_sums=sums, context_nodes=nodes
    )


def totals_of(tables: Iterable[pl.DataFrame]) -> Totals:
    """Return the sums of tables with `context` and amounts."""
    found: Totals = Counter()
    for rows in tables:
        for amount in AMOUNTS:
            for context, value in rows.select("context", amount).iter_rows():
                found[context, amount] += value
    return +found


def paths_of(tree: pl.DataFrame) -> dict[int, tuple[str, ...]]:
    """Return the names on the path to every context; callers come first, which is asserted."""
    assert tree.schema == TREE or tree.columns == list(TREE)[:5]
    found: dict[int, tuple[str, ...]] = {0: ()}
    for context, parent, name in tree.select("context", "parent", "name").iter_rows():
        found[context] = (*found[parent], name)
    return found
