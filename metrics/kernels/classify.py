"""What kernels compute, by their names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.metrics.kernels.hlo import refine_kinds
from deepprof.metrics.kernels.kinds import KERNEL_KINDS
from deepprof.metrics.kernels.pattern_tables import PatternTable, list_tables

Int64s = npt.NDArray[np.int64]
UNKNOWN = {"category": "unknown", "precision": None, "unit": None, "library": None, "algorithm": None, "sure": False}


@dataclass(frozen=True, slots=True, eq=False)
class KernelKinds:
    """The kinds of a trace's kernels: `table` has `name`, `operator` (null: not known) and `KERNEL_KINDS`.

    `of_events` is the row of `table` for each device event, -1 for those that are no kernels.
    """

    table: pl.DataFrame
    of_events: Int64s


def classify_names(names: pl.Series, tables: Iterable[PatternTable] | None = None) -> pl.DataFrame:
    """Return what kernels of these names compute, a row each with the schema `KERNEL_KINDS`."""
    kinds = [UNKNOWN]
    chosen = np.zeros(len(names), np.int64)
    text = names.cast(pl.String).fill_null("")
    left = np.arange(len(names))
    for table in list_tables() if tables is None else tables:
        for pattern in table.patterns:
            found = text.gather(left).str.contains(pattern.match).to_numpy()
            if found.any():
                chosen[left[found]] = len(kinds)
                left = left[~found]
                own = {name: getattr(pattern, name) for name in UNKNOWN if name != "library"}
                kinds.append(own | {"library": table.library})
    return pl.DataFrame(kinds, schema=dict(KERNEL_KINDS))[chosen]


def find_kernel_kinds(trace: Trace) -> KernelKinds:
    """Return what the kernels of a trace compute."""
    is_kernel = trace.device_events["activity"].is_in(["kernel"]).to_numpy()
    ids = trace.device_events["name_id"].to_numpy()
    used, rows = np.unique(ids[is_kernel], return_inverse=True)
    names = trace.names.gather(used)
    of_events = np.full(len(ids), -1, np.int64)
    of_events[is_kernel] = rows
    table = pl.DataFrame({"name": names, "operator": pl.Series([None] * len(names), dtype=pl.String)})
    return KernelKinds(*refine_kinds(trace, table.hstack(classify_names(names)), of_events))
