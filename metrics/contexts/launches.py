"""From which slice of the host each device event was launched, or why no one has."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.trace import Trace
from deepprof.metrics.contexts.slices import HostSlices
from deepprof.metrics.operators import is_stand_in

Int64s = npt.NDArray[np.int64]

NOT_RECORDED = "the recording has no launch calls"
NOT_LINKED = "it names no launch call"
NOT_IN_TRACE = "its launch call is not in the trace"
REASONS = (NOT_RECORDED, NOT_LINKED, NOT_IN_TRACE)


class LaunchSites(Struct, frozen=True, eq=False):
    """For each device event the row of the slice that launched it, or -1 and the number of the reason in `REASONS`.

    `is_slice`: the event is that slice itself, as operators are on a machine without a device.
    """

    row: Int64s
    reason: Int64s
    is_slice: bool = False


def find_sites(trace: Trace, slices: HostSlices) -> LaunchSites:
    """Return where the device events of a trace were launched: the call of the same correlation, else the operator."""
    if is_stand_in(trace):
        row = _find_operators(trace, slices)
        return LaunchSites(row, np.full(len(row), REASONS.index(NOT_IN_TRACE)), is_slice=True)
    calls = _first_of_each(slices.rows, "runtime", "correlation")
    operators = _first_of_each(slices.rows, "operator", "external_id")
    events = trace.device_events.select("correlation", "external_id")
    for keys in (calls, operators):
        events = events.join(keys, on=keys.columns[0], how="left", maintain_order="left")
    linked = events["correlation"].is_not_null() | events["external_id"].is_not_null()
    row = events.select(pl.coalesce("runtime", "operator").fill_null(-1)).to_series().to_numpy()
    reason = np.where(linked.to_numpy(), REASONS.index(NOT_IN_TRACE), REASONS.index(NOT_LINKED))
    if not calls.height and not operators.height:
        reason = np.full(len(row), REASONS.index(NOT_RECORDED))
    return LaunchSites(row, reason)


def _first_of_each(rows: pl.DataFrame, kind: str, key: str) -> pl.DataFrame:
    """Return `key` and the row, named as its kind, of the first slice of a kind with every value of the key."""
    found = rows.with_row_index(kind).filter(pl.col("kind") == kind).select(key, pl.col(kind).cast(pl.Int64))
    return found.drop_nulls(key).unique(key, keep="first", maintain_order=True)


def _find_operators(trace: Trace, slices: HostSlices) -> Int64s:
    """Return for every operator that counts as a kernel (CPU fallback) its slice; their stream is their thread."""
    keys = ("start_ns", "end_ns", "thread", "name_id")
    rows = slices.rows.with_row_index("row").select(*keys, pl.col("row").cast(pl.Int64))
    known = rows.with_columns(pl.col("thread").fill_null(0)).unique(keys, keep="first", maintain_order=True)
    events = trace.device_events.select("start_ns", "end_ns", "name_id", thread="stream")
    return events.join(known, on=keys, how="left", maintain_order="left")["row"].fill_null(-1).to_numpy()
