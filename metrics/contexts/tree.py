"""The calling context tree of a trace: what ran on the device, and on whose behalf.

A context is a path of frames from a thread down to what it launched (DeepContext, section 4): equal paths are one
context, however often they were taken. Backward operators stand under the forward operator that made them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.table_schema import TableSchema
from deepprof.collectors.trace import Trace
from deepprof.metrics.contexts.backward import ENGINE, find_forward
from deepprof.metrics.contexts.frames import FRAMES, KIND, number_frames
from deepprof.metrics.contexts.launches import REASONS, LaunchSites, find_sites
from deepprof.metrics.contexts.paths import measure_depths, number_paths, read_places, spread
from deepprof.metrics.contexts.slices import HostSlices, read_slices
from deepprof.metrics.names import are_named

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

CONTEXTS = TableSchema.side_by_side(
    "One calling context.",
    [
        TableSchema.of(
            "Its place in the tree.",
            {
                "context": (pl.UInt32(), "its number, and the row's"),
                "parent": (pl.UInt32(), "the context around it, a smaller number; null: none, of the first"),
                "depth": (pl.UInt16(), "how many contexts are around it"),
            },
        ),
        FRAMES,
        TableSchema.of("What it is part of.", {"backward": (pl.Boolean(), "whether it is part of a backward pass")}),
    ],
)


@dataclass(frozen=True, slots=True)
class ContextTree:
    """The calling contexts of one trace.

    `contexts` has the schema `CONTEXTS`; `sites` says from where device events were launched; `of_slices` and
    `of_events` are the context of each row of `slices` and of `Trace.device_events`.
    """

    contexts: pl.DataFrame
    slices: HostSlices
    sites: LaunchSites
    of_slices: Int64s
    of_events: Int64s

    @property
    def parent(self) -> Int64s:
        """The number of the context around each one, 0 for the first, which is around all."""
        return read_places(self.contexts)[0]

    @property
    def depth(self) -> Int64s:
        """How many contexts are around each one."""
        return read_places(self.contexts)[1]


@dataclass(frozen=True, slots=True)
class _ContextNodes:
    """Contexts by number: the one around each (-1: none), its frame, and whether a backward pass begins there."""

    parent: Int64s
    frame: Int64s
    begins_backward: Bools

    def __add__(self, other: _ContextNodes) -> _ContextNodes:
        pairs = ((getattr(self, name), getattr(other, name)) for name in ("parent", "frame", "begins_backward"))
        return _ContextNodes(*(np.concatenate(pair) for pair in pairs))


def build_tree(trace: Trace, recorded: Trace | None = None) -> ContextTree:
    """Return the calling contexts of a trace in O(n log n), with the memory of a few columns of its rows.

    `recorded` is the trace as it was read, if operators were made its kernels since (CPU fallback).
    """
    slices = read_slices(recorded or trace)
    sites, fixed = find_sites(trace, slices), _fixed_frames(slices)
    numbers, frames = number_frames(_list_frames(trace, slices), trace.names)
    host, device = np.split(numbers.to_numpy() + fixed.height, [len(slices.start)])
    top = _ContextNodes(
        np.minimum(np.arange(fixed.height), 1) - 1, np.arange(fixed.height), np.zeros(fixed.height, np.bool_)
    )
    below, of_slices = _place_slices(slices, trace.names, host, fixed.height)
    last, of_events = _place_events(sites, device, of_slices, fixed.height + len(below.parent))
    contexts = _tabulate(top + below + last, pl.concat([fixed, frames]))
    return ContextTree(contexts, slices, sites, of_slices, of_events)


def _fixed_frames(slices: HostSlices) -> pl.DataFrame:
    """Return the frames that every tree begins with, a context each: all, the reasons, the threads by first start."""
    kinds = ("all", *["unattributed"] * len(REASONS), *["thread"] * slices.threads)
    names = ("all", *REASONS, *(f"thread {number}" for number in range(1, slices.threads + 1)))
    nothing = {"file": pl.lit(None, pl.String), "line": pl.lit(None, pl.UInt32)}
    return pl.DataFrame({"kind": kinds, "name": names}, {"kind": KIND, "name": pl.String}).with_columns(**nothing)


def _list_frames(trace: Trace, slices: HostSlices) -> pl.DataFrame:
    """Return kind and name of all slices, then of all device events."""
    kind = pl.col("activity").cast(pl.String).cast(KIND)
    return pl.concat([slices.rows.select("kind", "name_id"), trace.device_events.select(kind.alias("kind"), "name_id")])


def _place_slices(slices: HostSlices, names: pl.Series, frame: Int64s, first: int) -> tuple[_ContextNodes, Int64s]:
    """Return the contexts of slices, from number `first` on, and the one of each slice."""
    forward = find_forward(slices, names)
    backward = (forward >= 0) | are_named(names, slices.rows["name_id"], ENGINE)
    top = 1 + len(REASONS) + slices.track
    paths = number_paths(np.where(forward >= 0, forward, slices.parent), 2 * frame + backward, top, first)
    return _ContextNodes(paths.parent, paths.frame // 2, paths.frame % 2 == 1), paths.context


def _place_events(sites: LaunchSites, frame: Int64s, of_slices: Int64s, first: int) -> tuple[_ContextNodes, Int64s]:
    """Return the contexts of device events, from number `first` on, and the one of each event."""
    around = 1 + sites.reason
    linked = sites.row >= 0
    around[linked] = of_slices[sites.row[linked]]
    apart = ~linked | (not sites.is_slice)  # of an event that is a slice the context is there
    many = int(frame.max(initial=0)) + 1
    keys, inverse = np.unique(around[apart] * many + frame[apart], return_inverse=True)
    around[apart] = first + inverse
    return _ContextNodes(keys // many, keys % many, np.zeros(len(keys), np.bool_)), around


def _tabulate(nodes: _ContextNodes, frames: pl.DataFrame) -> pl.DataFrame:
    """Return the table of contexts, with the schema `CONTEXTS`."""
    depth = measure_depths(nodes.parent)
    backward = spread(nodes.begins_backward, nodes.parent, depth)
    parent = pl.Series(nodes.parent).replace(-1, None)
    place = pl.DataFrame({"context": np.arange(len(depth)), "parent": parent, "depth": depth})
    return place.hstack(frames[nodes.frame]).with_columns(backward=pl.Series(backward)).cast(dict(CONTEXTS))  # type: ignore[arg-type]
