"""The calling context tree of a trace: what ran on the device, and on whose behalf.

A context is a path of frames from a thread down to what it launched (DeepContext, section 4): equal paths are one
context, however often they were taken. Backward operators are under the forward operator that made them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.table_schema import TableSchema
from deepprof.collectors.trace import Trace
from deepprof.metrics.contexts.backward import ENGINE, find_forward
from deepprof.metrics.contexts.frames import FRAMES, KIND, TRANSPOSED, number_frames
from deepprof.metrics.contexts.launches import REASONS, LaunchSites, find_sites
from deepprof.metrics.contexts.paths import measure_depths, number_paths, read_places, spread
from deepprof.metrics.contexts.slices import HostSlices, read_slices
from deepprof.metrics.contexts.stacks import find_chains, kinds_of, read_stacks
from deepprof.metrics.contexts.unfolding import ContextNodes, chain_frames, unfold
from deepprof.metrics.kernels.readable_names import name_instructions
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


class ContextTree(Struct, frozen=True, eq=False):
    """The calling contexts of one trace.

    `contexts` has the schema `CONTEXTS`; `sites` states from where device events were launched; `of_slices` and
    `of_events` are the context of every row of `slices` and of `Trace.device_events`. `forward` is for every row of
    `slices` that is a backward node the one of its forward operator, else -1.
    """

    contexts: pl.DataFrame
    slices: HostSlices
    sites: LaunchSites
    of_slices: Int64s
    of_events: Int64s
    forward: Int64s

    @property
    def parent(self) -> Int64s:
        """The number of the context around each one, 0 for the first, which is around all."""
        return read_places(self.contexts)[0]

    @property
    def depth(self) -> Int64s:
        """How many contexts are around each one."""
        return read_places(self.contexts)[1]


def build_tree(trace: Trace, recorded: Trace | None = None) -> ContextTree:
    """Return the calling contexts of a trace in O(n log n), with the memory of a few columns of its rows.

    `recorded` is the trace as it was read, if operators were made its kernels since (CPU fallback).
    """
    slices = read_slices(recorded or trace)
    sites, fixed = find_sites(trace, slices), _fixed_frames(slices)
    stacks, texts = read_stacks(trace, slices)
    numbers, frames = number_frames(*_list_frames(trace, slices, texts))
    frames = pl.concat([fixed, frames])
    own, inserted = np.split(numbers.to_numpy() + fixed.height, [len(stacks.of_rows)])
    forward = find_forward(slices, trace.names)
    around = np.where(forward >= 0, forward, slices.parent)
    chained = chain_frames(own, frames.height, find_chains(stacks, np.concatenate([around, sites.row])))
    host, device = np.split(chained.of_rows, [len(slices.start)])
    top = ContextNodes(
        np.minimum(np.arange(fixed.height), 1) - 1, np.arange(fixed.height), np.zeros(fixed.height, np.bool_)
    )
    backward = (forward >= 0) | are_named(trace.names, slices.rows["name_id"], ENGINE)
    below, of_slices = _place_slices(slices, around, host, backward, fixed.height)
    last, of_events = _place_events(sites, device, of_slices, fixed.height + len(below.parent))
    nodes, places = unfold(below + last, chained, inserted, _are_transposed(frames), fixed.height)
    return ContextTree(
        tabulate_contexts(top + nodes, frames), slices, sites, places[of_slices], places[of_events], forward
    )


def _fixed_frames(slices: HostSlices) -> pl.DataFrame:
    """Return the frames that every tree begins with, a context each: all, the reasons, the threads by first start."""
    kinds = ("all", *["unattributed"] * len(REASONS), *["thread"] * slices.threads)
    names = ("all", *REASONS, *(f"thread {number}" for number in range(1, slices.threads + 1)))
    nothing = {"file": pl.lit(None, pl.String), "line": pl.lit(None, pl.UInt32)}
    return pl.DataFrame({"kind": kinds, "name": names}, {"kind": KIND, "name": pl.String}).with_columns(**nothing)


def _list_frames(trace: Trace, slices: HostSlices, texts: pl.Series) -> tuple[pl.DataFrame, pl.Series]:
    """Return kind and name of all slices, all device events and the frames of stacks, `texts`; and the names."""
    trace = name_instructions(trace)
    kind = pl.col("activity").cast(pl.String).cast(KIND)
    rows = [slices.rows.select("kind", "name_id"), trace.device_events.select(kind.alias("kind"), "name_id")]
    if texts.is_empty():
        return pl.concat(rows), trace.names
    ids = pl.arange(len(trace.names), len(trace.names) + len(texts), dtype=pl.UInt32, eager=True)
    rows.append(pl.DataFrame({"kind": kinds_of(texts), "name_id": ids}))
    return pl.concat(rows), pl.concat([trace.names, texts.rename(trace.names.name)])


def _place_slices(
    slices: HostSlices, around: Int64s, frame: Int64s, backward: Bools, first: int
) -> tuple[ContextNodes, Int64s]:
    """Return the contexts of slices, from number `first` on, and the one of every slice."""
    top = 1 + len(REASONS) + slices.track
    paths = number_paths(around, 2 * frame + backward, top, first)
    return ContextNodes(paths.parent, paths.frame // 2, paths.frame % 2 == 1), paths.context


def _place_events(sites: LaunchSites, frame: Int64s, of_slices: Int64s, first: int) -> tuple[ContextNodes, Int64s]:
    """Return the contexts of device events, from number `first` on, and the one of every event."""
    around = 1 + sites.reason
    linked = sites.row >= 0
    around[linked] = of_slices[sites.row[linked]]
    apart = ~linked | (not sites.is_slice)  # of an event that is a slice the context is there
    many = int(frame.max(initial=0)) + 1
    keys, inverse = np.unique(around[apart] * many + frame[apart], return_inverse=True)
    around[apart] = first + inverse
    return ContextNodes(keys // many, keys % many, np.zeros(len(keys), np.bool_)), around


def _are_transposed(frames: pl.DataFrame) -> Bools:
    """Return which frames are name scopes of a backward pass."""
    return (
        frames.select((pl.col("kind") == "scope") & pl.col("name").str.starts_with(TRANSPOSED)).to_series().to_numpy()
    )


def tabulate_contexts(nodes: ContextNodes, frames: pl.DataFrame) -> pl.DataFrame:
    """Return the table of contexts, with the schema `CONTEXTS`."""
    depth = measure_depths(nodes.parent)
    backward = spread(nodes.begins_backward, nodes.parent, depth)
    parent = pl.Series(nodes.parent).replace(-1, None)
    place = pl.DataFrame({"context": np.arange(len(depth)), "parent": parent, "depth": depth})
    return place.hstack(frames[nodes.frame]).with_columns(backward=pl.Series(backward)).cast(dict(CONTEXTS))  # type: ignore[arg-type]
