"""The operators around a launch: what the framework was computing when it launched a kernel."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.metrics.enclosure import enclose, order_slices

Int64s = npt.NDArray[np.int64]

DEEPEST = 128  # operators around a launch that are reported, at most
COLUMNS = ("row", "start_ns", "end_ns", "process", "thread")


def operators_at_launch(trace: Trace, events: Int64s) -> Int64s:
    """Return the operators that were open on the launching thread when `events` were launched.

    `events` are rows of `Trace.device_events`. The result has a row per event and a column per level, the outermost
    operator first: rows of `Trace.host_events`, -1 after the innermost one. Events without a launch record have none.
    """
    launches = _find_launches(trace, events)
    operators = trace.host_events.with_row_index("row").filter(pl.col("category") == "op").select(COLUMNS)
    marks = launches.select("row", "start_ns", pl.col("start_ns").alias("end_ns"), "process", "thread")
    around = _find_parents(pl.concat([operators, marks]))
    levels = _climb(around, operators.height)
    rows = np.append(operators["row"].cast(pl.Int64).to_numpy(), -1)
    found = np.full((len(events), levels.shape[1]), -1, np.int64)
    found[launches["event"].to_numpy()] = rows[levels]
    return found


def _find_launches(trace: Trace, events: Int64s) -> pl.DataFrame:
    """Return `COLUMNS` of the calls that launched `events`, with each event's place in them."""
    calls = trace.host_events.with_row_index("row").filter(
        (pl.col("category") == "runtime") & pl.col("correlation").is_not_null()
    )
    first = calls.unique("correlation", keep="first", maintain_order=True).select(*COLUMNS, "correlation")
    wanted = trace.device_events[events].select("correlation").with_row_index("event")
    return wanted.join(first, on="correlation", how="inner", maintain_order="left")


def _find_parents(slices: pl.DataFrame) -> Int64s:
    """Return for each slice the place of the one around it on its thread, -1 for none."""
    track = slices.select(pl.struct("process", "thread").rank("dense").cast(pl.Int64)).to_series().to_numpy()
    start = slices["start_ns"].to_numpy()
    end = slices.select(pl.max_horizontal("start_ns", "end_ns")).to_series().to_numpy()
    order = order_slices(track, start, end)
    found = enclose(track[order], start[order], end[order])
    parent = np.empty(len(order), np.int64)
    parent[order] = np.where(found.crosses | (found.parent < 0), -1, order[found.parent])
    return parent


def _climb(parent: Int64s, first: int) -> Int64s:
    """Return the ancestors of the slices from `first` on, a row each, the outermost first and -1 after the last."""
    chain = [parent[first:]]
    while len(chain) < DEEPEST and (chain[-1] >= 0).any():
        chain.append(np.where(chain[-1] >= 0, parent[chain[-1]], -1))
    upward = np.stack(chain, axis=1)
    depth = (upward >= 0).sum(axis=1, keepdims=True)
    place = depth - 1 - np.arange(upward.shape[1])
    return np.where(place >= 0, np.take_along_axis(upward, np.maximum(place, 0), axis=1), -1)
