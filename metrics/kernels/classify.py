"""What the kernels of a trace compute, by their names and by the operators that launched them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.trace import Trace
from deepprof.metrics.contexts.launches import LaunchSites
from deepprof.metrics.contexts.slices import HostSlices
from deepprof.metrics.kernels.deciding import decide
from deepprof.metrics.kernels.hlo import refine_kinds
from deepprof.metrics.kernels.launching import find_launch_operators
from deepprof.metrics.kernels.name_kinds import classify_names

__all__ = ["KernelKinds", "classify_names", "find_kernel_kinds"]

Int64s = npt.NDArray[np.int64]


class KernelKinds(Struct, frozen=True, eq=False):
    """The kinds of a trace's kernels: `table` has `name`, `operator` (null: unknown) and `KERNEL_KINDS`.

    `of_events` is the row of `table` for every device event, -1 for those that are no kernels.
    """

    table: pl.DataFrame
    of_events: Int64s


def find_kernel_kinds(
    trace: Trace, recorded: Trace | None = None, placed: tuple[HostSlices, LaunchSites] | None = None
) -> KernelKinds:
    """Return what the kernels of a trace compute, by their names and by the operators that launched them.

    `recorded` is the trace as it was read, if operators were made its kernels since (CPU fallback). `placed` are the
    slices of its host and where kernels were launched, if they are available already.
    """
    is_kernel = (trace.device_events["activity"] == "kernel").to_numpy()
    kernels = trace.device_events.filter(pl.Series(is_kernel))
    ranked = _rank_names(kernels)
    names = trace.names.gather(ranked)
    of_name = np.full(len(trace.names), -1, np.int64)
    of_name[ranked.to_numpy()] = np.arange(len(ranked))
    number = of_name[kernels["name_id"].to_numpy()]
    launched = find_launch_operators(trace, recorded, placed)
    table, rows = decide(names, classify_names(names), number, None if launched is None else launched.filter(is_kernel))
    of_events = np.full(len(is_kernel), -1, np.int64)
    of_events[is_kernel] = rows
    return KernelKinds(*refine_kinds(trace, table, of_events))


def _rank_names(kernels: pl.DataFrame) -> pl.Series:
    """Return the names of kernels, those with most time first: only this many are searched."""
    spans = kernels.select("name_id", ns=pl.col("end_ns") - pl.col("start_ns"))
    return spans.group_by("name_id").agg(pl.col("ns").sum()).sort("ns", "name_id", descending=[True, False])["name_id"]
