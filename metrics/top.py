"""Which kernels and which copies take the time of a mean iteration, or of a recording without one.

All events of the device, on any stream, belong to the iteration in which they start. The time of a name is the time in
which at least one call of it runs: calls that overlap count once. Calls of different names that overlap both count, so
that all names together may take longer than the device is busy. Shares are of the mean iteration's time, as in the
table of parts, and not of the busy time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.names.short import shorten
from deepprof.collectors.trace import Trace
from deepprof.metrics.kernels.readable_names import name_instructions
from deepprof.metrics.loop import Loop
from deepprof.metrics.operators import is_stand_in
from deepprof.metrics.streams import busy_time
from deepprof.metrics.top_tables import TOP_COPIES, TOP_KERNELS, TopWork

Int64s = npt.NDArray[np.int64]

MOST_NAMES = 1_000  # names that are shortened one by one; only artificial traces have more
OTHERS = "(others)"
BACKWARD_STEP = "autograd::engine::evaluate_function: "
COLUMNS = ("start_ns", "end_ns", "device", "activity", "name_id", "copy_kind", "nbytes")
# Words in a copy's name, as in "Memcpy HtoD (Pageable -> Device)"; the first that it contains counts.
MEMORIES = ("pageable", "pinned", "managed")


def top_of_loop(loop: Loop, trace: Trace) -> TopWork | None:
    """Return what takes the time of the iterations that the table of parts is a mean of; None where there are none."""
    usual = loop.usual
    if usual.is_empty():
        return None
    begin = usual["start_ns"].to_numpy()
    return measure_top(trace, loop.device, begin, begin + usual["iteration_ns"].to_numpy(), loop.single or "iterations")


def top_of_recording(trace: Trace, device: int) -> TopWork | None:
    """Return what takes the time of a device from its first event to its last; None where it has no work."""
    events = trace.device_events.lazy().filter((pl.col("device") == device) & (pl.col("activity") != "sync"))
    first, last = events.select(pl.col("start_ns").min(), pl.col("end_ns").max()).collect().row(0)
    if first is None or last <= first:
        return None
    return measure_top(trace, device, np.array([first]), np.array([last]), "recording")


def measure_top(
    trace: Trace, device: int, begin: Int64s, until: Int64s, over: Literal["iterations", "marked step", "recording"]
) -> TopWork:
    """Return the means over the stretches [begin, until), one or more, which are sorted and do not overlap."""
    trace = name_instructions(trace)
    work = select_work(trace, device, begin, until)
    count, mean_ns = len(begin), float((until - begin).mean())
    kernels = _sum_kernels(work.filter(pl.col("activity").is_in(["kernel", "graph"])), trace)
    copies = _sum_copies(work.filter(pl.col("activity") == "memcpy"), trace)
    return TopWork(
        over=over,
        iterations=count,
        mean_ns=mean_ns,
        kernels=_average(kernels, count, mean_ns).select(TOP_KERNELS.names()).cast(TOP_KERNELS),
        copies=_average(copies, count, mean_ns).select(TOP_COPIES.names()).cast(TOP_COPIES),
    )


def select_work(trace: Trace, device: int, begin: Int64s, until: Int64s) -> pl.DataFrame:
    """Return the device's events that start in one of the stretches, with their duration in `ns`."""
    events = trace.device_events.select(COLUMNS)
    start = events["start_ns"].to_numpy()
    change = np.zeros(len(start) + 1, np.int32)
    np.add.at(change, np.searchsorted(start, begin), 1)
    np.add.at(change, np.searchsorted(start, until), -1)
    inside = pl.Series(np.cumsum(change[:-1]) > 0, dtype=pl.Boolean)
    rows = events.filter(inside & (events["device"] == device))
    return rows.with_columns(ns=pl.col("end_ns") - pl.col("start_ns"))


def _sum_kernels(kernels: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """Return `name`, `variants` (full names), `calls`, `ns` and `max_ns` of each short name."""
    label, names = label_kernels(kernels, trace)
    summed = kernels.group_by(label=label).agg(
        variants=pl.col("name_id").n_unique(), **total_calls(), max_ns=pl.col("ns").max()
    )
    return summed.with_columns(name=names.gather(summed["label"]))


def label_kernels(kernels: pl.DataFrame, trace: Trace) -> tuple[pl.Expr, pl.Series]:
    """Return the number of the short name of each of `kernels` (`name_id`, `ns`), and the short names by number."""
    ids = kernels.group_by("name_id").agg(pl.col("ns").sum()).sort("ns", "name_id", descending=[True, False])["name_id"]
    full = trace.names.gather(ids).fill_null("").to_list()
    call_it = _name_operator if is_stand_in(trace) else shorten
    short = [call_it(name) for name in full[:MOST_NAMES]] + [OTHERS] * (len(full) - MOST_NAMES)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(short))}
    labels = pl.Series([numbers[name] for name in short], dtype=pl.UInt32)
    label = pl.col("name_id").replace_strict(ids, labels, return_dtype=pl.UInt32())
    return label, pl.Series(list(numbers), dtype=pl.String)


def _name_operator(name: str) -> str:
    """Return an operator's name without the prefix of every backward step; other namespaces show the owner."""
    return name.removeprefix(BACKWARD_STEP)


def total_calls() -> dict[str, pl.Expr]:
    """Return a group's number of `calls`, their summed durations `spent_ns`, and `ns`, the time in which any ran."""
    return {"calls": pl.len(), "spent_ns": pl.col("ns").sum(), "ns": busy_time()}


def _sum_copies(copies: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """Return `direction`, `memory` (of the host), `calls`, `nbytes`, `ns`, and `known_ns` of those with a size."""
    ids = copies["name_id"].unique()
    kinds = dict(zip(ids.to_list(), map(_memory_of, trace.names.gather(ids).to_list()), strict=True))
    memory = pl.col("name_id").replace_strict(kinds, default=None, return_dtype=pl.String())
    sized = pl.col("nbytes").is_not_null()
    return copies.group_by(direction=pl.col("copy_kind").cast(pl.String), memory=memory).agg(
        nbytes=pl.when(sized.any()).then(pl.col("nbytes").cast(pl.Int64, strict=False).sum()),
        known_ns=pl.col("ns").filter(sized).sum(),
        **total_calls(),
    )


def _memory_of(name: str | None) -> str | None:
    """Return the kind of host memory that a copy's name contains; None if it contains none."""
    return next((kind for kind in MEMORIES if kind in (name or "").lower()), None)


def _average(sums: pl.DataFrame, count: int, mean_ns: float) -> pl.DataFrame:
    """Return the sums as means of `count` iterations of `mean_ns`, the longest first."""
    exact: Mapping[str, pl.Expr] = {
        "calls": (pl.col("calls") / count).round(3),
        "time_ns": (pl.col("ns") / count).round(),
        "share_ratio": (pl.col("ns") / (count * max(mean_ns, 1.0))).round(6),
        "mean_ns": (pl.col("spent_ns") / pl.col("calls")).round(),
    }
    if "nbytes" in sums.columns:
        rate = pl.when(pl.col("known_ns") > 0).then(pl.col("nbytes") / pl.col("known_ns"))
        exact = {**exact, "nbytes": (pl.col("nbytes") / count).ceil(), "gigabytes_per_s": rate.round(3)}
    keys = [name for name in ("name", "direction", "memory") if name in sums.columns]
    order = sums.sort("ns", *keys, descending=[True] + [False] * len(keys), nulls_last=True)
    return order.with_columns(**exact)
