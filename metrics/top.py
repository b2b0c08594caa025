"""Which kernels and which copies use the time of a mean iteration, of every iteration, or of a recording without one.

The time of a kernel's title (`metrics.kernels.kernel_titles`) is its part of the time in which any kernel runs: where
several run at once each has an equal part of that time, and collectives only have what nothing hides
(`metrics.kernels.running`). So the rows add up to the compute time and the exposed communication of the table of parts.
Copies belong to the iteration in which they start, and the time of a kind of copies is that in which at least one of
them runs. Shares are of the mean iteration's time, as in the table of parts, and not of the busy time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.metrics.kernels.classify import KernelKinds
from deepprof.metrics.kernels.computed_work import list_kernels, list_running_kinds
from deepprof.metrics.kernels.kernel_titles import title_kernels
from deepprof.metrics.kernels.readable_names import name_instructions
from deepprof.metrics.kernels.running import OUTSIDE
from deepprof.metrics.loop import Loop
from deepprof.metrics.streams import busy_time
from deepprof.metrics.top_tables import TOP_COPIES, TOP_KERNELS, TopWork

Int64s = npt.NDArray[np.int64]
Over = Literal["iterations", "marked step", "recording"]

COLUMNS = ("start_ns", "end_ns", "device", "activity", "name_id", "copy_kind", "nbytes")
# Words in a copy's name, as in "Memcpy HtoD (Pageable -> Device)"; the first that it contains counts.
MEMORIES = ("pageable", "pinned", "managed")

KERNELS_EACH = 8  # names of an iteration


def top_of_loop(loop: Loop, trace: Trace, kinds: KernelKinds) -> TopWork | None:
    """Return what uses the time of the iterations that the table of parts is a mean of; None where there are none."""
    usual = loop.usual
    if usual.is_empty():
        return None
    begin = usual["start_ns"].to_numpy()
    windows = begin, begin + usual["iteration_ns"].to_numpy()
    return measure_top(trace, kinds, loop.device, windows, loop.single or "iterations")


def top_of_recording(trace: Trace, device: int, kinds: KernelKinds) -> TopWork | None:
    """Return what uses the time of a device from its first event to its last; None where it has no work."""
    events = trace.device_events.lazy().filter((pl.col("device") == device) & (pl.col("activity") != "sync"))
    first, last = events.select(pl.col("start_ns").min(), pl.col("end_ns").max()).collect().row(0)
    if first is None or last <= first:
        return None
    return measure_top(trace, kinds, device, (np.array([first]), np.array([last])), "recording")


def measure_top(trace: Trace, kinds: KernelKinds, device: int, windows: tuple[Int64s, Int64s], over: Over) -> TopWork:
    """Return the means over the windows, one or more: starts and ends, sorted and without overlap."""
    begin, until = windows
    trace = name_instructions(trace)
    count, mean_ns = len(begin), float((until - begin).mean())
    kernels = _sum_kernels(list_running_kinds(trace, kinds, device, windows), trace, kinds)
    copies = _sum_copies(select_work(trace, device, begin, until).filter(pl.col("activity") == "memcpy"), trace)
    return TopWork(
        over=over,
        iterations=count,
        mean_ns=mean_ns,
        kernels=_average(kernels, count, mean_ns).select(TOP_KERNELS.names()).cast(TOP_KERNELS),
        copies=_average(copies, count, mean_ns).select(TOP_COPIES.names()).cast(TOP_COPIES),
    )


def select_work(trace: Trace, device: int, begin: Int64s, until: Int64s) -> pl.DataFrame:
    """Return the device's events that start in one of the sections, with their duration in `ns`."""
    events = trace.device_events.select(COLUMNS)
    start = events["start_ns"].to_numpy()
    change = np.zeros(len(start) + 1, np.int32)
    np.add.at(change, np.searchsorted(start, begin), 1)
    np.add.at(change, np.searchsorted(start, until), -1)
    inside = pl.Series(np.cumsum(change[:-1]) > 0, dtype=pl.Boolean)
    rows = events.filter(inside & (events["device"] == device))
    return rows.with_columns(ns=pl.col("end_ns") - pl.col("start_ns"))


def _sum_kernels(kernels: pl.DataFrame, trace: Trace, kinds: KernelKinds) -> pl.DataFrame:
    """Return `name`, `variants` (full names), `calls`, `ns`, `mean_ns` and `max_ns` of every title."""
    label, names = title_kernels(kernels, trace, kinds)
    starts = pl.col("window") != OUTSIDE
    lengths = pl.col("ns").filter(starts | ~starts.any())
    groups = kernels.with_columns(label=label).group_by("label", maintain_order=True)
    summed = groups.agg(
        variants=pl.col("name_id").n_unique(),
        calls=starts.sum(),
        ns=pl.col("part_ns").sum(),
        mean_ns=lengths.mean().round(),
        max_ns=lengths.max(),
    )
    return summed.with_columns(name=names.gather(summed["label"]))


def total_calls() -> dict[str, pl.Expr]:
    """Return a group's number of `calls`, and `ns`, the time in which any ran."""
    return {"calls": pl.len(), "ns": busy_time()}


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
    }
    if "nbytes" in sums.columns:
        rate = pl.when(pl.col("known_ns") > 0).then(pl.col("nbytes") / pl.col("known_ns"))
        exact = {**exact, "nbytes": (pl.col("nbytes") / count).ceil(), "gigabytes_per_s": rate.round(3)}
    keys = [name for name in ("name", "direction", "memory") if name in sums.columns]
    order = sums.sort("ns", *keys, descending=[True] + [False] * len(keys), nulls_last=True)
    return order.with_columns(**exact)


def kernels_of_each(trace: Trace, loop: Loop, kinds: KernelKinds, most: int = KERNELS_EACH) -> pl.DataFrame:
    """Return `index`, `name`, `calls` and `time_ns` of the `most` kernel names that use most of every iteration.

    `time_ns` is their part of the time, as in `metrics.top`. Iterations are in order, their longest names first.
    """
    trace = name_instructions(trace)
    work = list_kernels(trace, kinds, loop.device, _windows_of(loop))
    label, names = title_kernels(work, trace, kinds)
    each = work.with_columns(label=label, index=loop.iterations["index"].gather(work["window"]))
    summed = each.group_by("index", "label").agg(calls=pl.len(), ns=pl.col("part_ns").sum())
    first = summed.sort("index", "ns", "label", descending=[False, True, False]).group_by("index", maintain_order=True)
    rows = first.head(most)
    title = pl.lit(names.gather(rows["label"])).alias("name")
    return rows.select("index", title, "calls", time_ns=pl.col("ns").round().cast(pl.Int64))


def copies_of_each(trace: Trace, loop: Loop) -> pl.DataFrame:
    """Return `index`, `direction`, `calls`, `nbytes` and `time_ns` of the copies of every iteration.

    `direction` and `nbytes` are null where they are not recorded.
    """
    work = _select_each(trace, loop).filter(pl.col("activity") == "memcpy")
    nbytes = pl.col("nbytes")
    rows = work.group_by("index", direction=pl.col("copy_kind").cast(pl.String)).agg(
        nbytes=pl.when(nbytes.is_not_null().any()).then(nbytes.cast(pl.Int64, strict=False).sum()), **total_calls()
    )
    return rows.sort("index", "direction").select("index", "direction", "calls", "nbytes", time_ns="ns")


def _select_each(trace: Trace, loop: Loop) -> pl.DataFrame:
    """Return the device's events that start in an iteration, with its `index` and their duration in `ns`."""
    begin, until = _windows_of(loop)
    work = select_work(trace, loop.device, begin, until)
    row = np.searchsorted(begin, work["start_ns"].to_numpy(), side="right") - 1
    return work.with_columns(index=loop.iterations["index"].gather(np.maximum(row, 0)))


def _windows_of(loop: Loop) -> tuple[Int64s, Int64s]:
    """Return starts and ends: an iteration runs until the next adjacent one, or to its own end where none follows."""
    begin = loop.iterations["start_ns"].to_numpy()
    return begin, begin + (loop.iterations["busy_ns"] + loop.iterations["idle_ns"]).to_numpy()
