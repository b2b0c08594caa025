"""A part of a trace: the rows of its record tables that are marked; all others are counted as dropped."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec.structs import replace

from deepprof.collectors.time_range import ROW, SIDE_TABLES, account_part, join_again
from deepprof.collectors.trace import RECORD_TABLES, Trace

NOT_SELECTED = "not-selected"

RowMarks = Mapping[str, npt.NDArray[np.bool_]]
"""For each of `RECORD_TABLES` which of its rows are meant."""


def keep_rows(trace: Trace, kept: RowMarks) -> Trace:
    """Return the part of `trace` that `kept` marks; the rest is dropped as `not-selected`.

    Names keep their ids. Only the flags that can be found from the part alone are kept.
    """
    numbered = {
        table: getattr(trace, table).with_row_index(ROW).filter(pl.Series(kept[table], dtype=pl.Boolean))
        for table in RECORD_TABLES
    }
    sides = {side: join_again(getattr(trace, side), numbered[of]) for side, of in SIDE_TABLES.items()}
    tables = {table: rows.drop(ROW) for table, rows in numbered.items()} | sides
    return replace(trace, accounting=account_part(trace.accounting, tables, NOT_SELECTED), **tables)
