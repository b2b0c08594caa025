"""Frames of stacks in front of contexts: compound frames while equal paths are found, their own contexts then."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from deepprof.metrics.contexts.paths import number_paths
from deepprof.metrics.contexts.stacks import FrameLists, expand

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class ContextNodes(Struct, frozen=True, eq=False):
    """Contexts by number: the one around each (-1: none), its frame, and whether a backward pass begins there."""

    parent: Int64s
    frame: Int64s
    begins_backward: Bools

    def __add__(self, other: ContextNodes) -> ContextNodes:
        pairs = ((getattr(self, name), getattr(other, name)) for name in ("parent", "frame", "begins_backward"))
        return ContextNodes(*(np.concatenate(pair) for pair in pairs))


class _ChainedFrames(Struct, frozen=True, eq=False):
    """Frames with a chain of frames in front: a number from `first` on is that of a row of `frame` and `chain`.

    A smaller number is a frame. `of_rows` is the number of every slice, then of every device event.
    """

    first: int
    frame: Int64s
    chain: Int64s
    chains: FrameLists
    of_rows: Int64s


def chain_frames(frame: Int64s, first: int, chains: FrameLists) -> _ChainedFrames:
    """Return the frames of rows with the chains in front of them; `first` is a number that no frame has."""
    rows = np.flatnonzero(chains.of_rows >= 0)
    keys, number = np.unique(chains.of_rows[rows] * first + frame[rows], return_inverse=True)
    of_rows = frame.copy()
    of_rows[rows] = first + number
    return _ChainedFrames(first, keys % first, keys // first, chains, of_rows)


def unfold(
    nodes: ContextNodes, chained: _ChainedFrames, inserted: Int64s, begins_backward: Bools, first: int
) -> tuple[ContextNodes, Int64s]:
    """Return contexts, numbered from `first` on, with those of the frames in front of them, and each one's new number.

    `inserted` are the frames of stacks, `begins_backward` is by frame. Chains that begin alike are one as far as that.
    """
    rows, many = np.flatnonzero(nodes.frame >= chained.first), len(chained.chains.begin)
    end = first + len(nodes.parent)
    if not rows.size:
        return nodes, np.arange(end)
    which = nodes.frame[rows] - chained.first
    keys, pair = np.unique(nodes.parent[rows] * many + chained.chain[which], return_inverse=True)
    begins, ends = chained.chains.begin[keys % many], chained.chains.begin[keys % many + 1]
    extra = inserted[chained.chains.frame[expand(begins, ends)]]
    places = np.cumsum(ends - begins)
    around = end - 1 + np.arange(len(extra))
    around[places - (ends - begins)] = keys // many
    parent, frame = nodes.parent.copy(), nodes.frame.copy()
    parent[rows], frame[rows] = end - 1 + places[pair], chained.frame[which]
    whole = ContextNodes(parent, frame, nodes.begins_backward) + ContextNodes(around, extra, begins_backward[extra])
    unfolded, numbers = _merge_equal(whole, first)
    return unfolded, numbers[:end]


def _merge_equal(nodes: ContextNodes, first: int) -> tuple[ContextNodes, Int64s]:
    """Return contexts, numbered from `first` on, with those of equal paths as one, and the new number of each."""
    inner = nodes.parent >= first
    parent, top = np.where(inner, nodes.parent - first, -1), np.where(inner, 0, nodes.parent)
    paths = number_paths(parent, 2 * nodes.frame + nodes.begins_backward, top, first)
    merged = ContextNodes(paths.parent, paths.frame // 2, paths.frame % 2 == 1)
    return merged, np.concatenate([np.arange(first), paths.context])
