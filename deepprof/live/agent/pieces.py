"""Tables cut into batches in the order of time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import polars as pl

from deepprof.collectors.context_nodes import select_needed
from deepprof.live.wire.sent_tables import SENT_RECORDS, SENT_SIDES

Tables = Mapping[str, pl.DataFrame]
UNBOUND = ("devices", "stacks")  # belong to no record, and go with the first piece


def count_records(tables: Tables) -> int:
    """Return the rows of the record tables."""
    return sum(rows.height for table, rows in tables.items() if table in SENT_RECORDS)


def cut_tables(tables: Tables, until_ns: int, most: int) -> Iterator[tuple[Tables, int]]:
    """Yield pieces of about `most` records, each with the time before which no record of a later one begins.

    Tables are sorted by time. Records of one time stay together, however many there are.
    """
    if count_records(tables) <= most:
        yield tables, until_ns
        return
    starts = {table: tables[table].to_series(0).to_numpy() for table in SENT_RECORDS if table in tables}
    merged = np.sort(np.concatenate(list(starts.values())), kind="stable")
    borders = np.unique(merged[most::most])
    at = dict.fromkeys(starts, 0)
    for number, border in enumerate([*borders.tolist(), None]):
        ends = {table: len(s) if border is None else int(np.searchsorted(s, border)) for table, s in starts.items()}
        piece = {table: tables[table][at[table] : ends[table]] for table in starts}
        piece |= _sides_of(tables, at, ends, is_first=number == 0)
        piece |= _contexts_of(tables, piece)
        yield piece, until_ns if border is None else min(border, until_ns)
        at = ends


def _sides_of(tables: Tables, at: Mapping[str, int], ends: Mapping[str, int], *, is_first: bool) -> Tables:
    """Return the side tables' rows that belong to rows [at, ends) of their record tables."""
    sides = {}
    for side, table in SENT_SIDES.items():
        if side in tables and table in at:
            rows = tables[side].filter(pl.col("event").is_between(at[table], ends[table], closed="left"))
            sides[side] = rows.with_columns(pl.col("event") - at[table])
    return sides | ({table: tables[table] for table in UNBOUND if table in tables} if is_first else {})


def _contexts_of(tables: Tables, piece: Tables) -> Tables:
    if not {"context_nodes", "context_sums"} <= tables.keys():
        return {}
    return {"context_nodes": select_needed(tables["context_nodes"], piece["context_sums"]["context"])}
