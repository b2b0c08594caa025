"""Nodes of calling contexts, each named by a hash of its path: what a sound set of them is, and which a row needs."""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import numpy.typing as npt
import polars as pl

CONTEXT_KINDS = ("python", "operator", "native")
ROOT = 0
MOST_DEPTH = 4096  # of a path: no interpreter nests calls so deep, and a chain costs a step for each
AMOUNT_LIMIT = 2**61  # of the sum over the rows of a column: sums of two stay inside int64

Places = npt.NDArray[np.int64]
_HEAD = struct.Struct("<QBI")


def hash_context(parent: int, kind: int, name: str, line: int) -> int:
    """Return the 64-bit hash of a context below `parent`, which no process, restart or rank changes; never `ROOT`.

    `kind` is a place in `CONTEXT_KINDS`. It is a BLAKE2b hash, so that no one meets two equal ones by chance.
    """
    head = _HEAD.pack(parent, kind, line)
    digest = hashlib.blake2b(head + name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1


def find_fault(nodes: pl.DataFrame, sums: pl.DataFrame) -> str:
    """Return what keeps `nodes` (CONTEXT_NODES) from being a tree that has every context of `sums`, "" where nothing.

    A set without a fault has each context once, every node's parent, and no path that is deeper than `MOST_DEPTH` or
    comes back to itself. The sums have no nulls, and no amount that is negative or reaches `AMOUNT_LIMIT` in all.
    """
    if not nodes.height and not sums.height:
        return ""
    if nodes.null_count().row(0) != (0,) * nodes.width or sums.null_count().row(0) != (0,) * sums.width:
        return "nulls in columns that need a value"
    contexts = nodes["context"].to_numpy()
    if len(contexts) and (contexts[0] == ROOT or (contexts[1:] <= contexts[:-1]).any()):
        return "a context that is the root, comes twice or is not sorted"
    if (_find_places(contexts, sums["context"].to_numpy()) < 0).any():
        return "sums of a context that is no node"
    return _find_tree_fault(contexts, nodes["parent"].to_numpy()) or _find_amount_fault(sums)


def _find_tree_fault(contexts: npt.NDArray[np.uint64], parents: npt.NDArray[np.uint64]) -> str:
    """Return what is wrong with the parents of sorted contexts, "" where nothing."""
    above = _find_parents(contexts, parents)
    if (above < 0).any():
        return "a node without its parent"
    return f"a path of more than {MOST_DEPTH} nodes" if (_measure_depths(above) > MOST_DEPTH).any() else ""


def _measure_depths(above: Places) -> Places:
    """Return how many nodes are on the path to each; more than `MOST_DEPTH` where it is longer, or has no end."""
    count = len(above)
    steps = np.append(np.ones(count, np.int64), 0)  # the root is the last place, and its own parent
    above = np.append(above, count)
    for _ in range(MOST_DEPTH.bit_length()):  # each turn doubles how far up every node looks
        steps, above = steps + steps[above], above[above]
    depths: Places = np.where(above[:-1] < count, MOST_DEPTH + 1, steps[:-1])
    return depths


def order_by_depth(nodes: pl.DataFrame) -> pl.DataFrame:
    """Return `nodes` (CONTEXT_NODES, sound), each after its parent."""
    above = _find_parents(nodes["context"].to_numpy(), nodes["parent"].to_numpy())
    return nodes[np.argsort(_measure_depths(above), kind="stable")]


def _find_amount_fault(sums: pl.DataFrame) -> str:
    """Return which amounts cannot be, "" where all can."""
    for column in ("window_ns", "count", "host_ns", "device_count", "device_ns"):
        values = sums[column].cast(pl.Float64)
        if values.len() and (values.min() < 0 or values.sum() >= AMOUNT_LIMIT):  # type: ignore[operator]
            return f"{column} below 0, or above {AMOUNT_LIMIT} in all"
    return ""


def _find_places(contexts: npt.NDArray[np.uint64], wanted: npt.NDArray[np.uint64]) -> Places:
    """Return the places of `wanted` among sorted contexts, -1 where they are not."""
    if not len(contexts):
        return np.full(len(wanted), -1, np.int64)
    places = np.minimum(np.searchsorted(contexts, wanted), len(contexts) - 1)
    return np.where(contexts[places] == wanted, places, -1)


def _find_parents(contexts: npt.NDArray[np.uint64], parents: npt.NDArray[np.uint64]) -> Places:
    """Return the place of every node's parent; the number of nodes represents the root, -1 for a missing parent."""
    return np.where(parents == ROOT, len(contexts), _find_places(contexts, parents))


def select_needed(nodes: pl.DataFrame, contexts: pl.Series) -> pl.DataFrame:
    """Return the rows of `nodes` (CONTEXT_NODES, sound) on the paths to `contexts`, in their order."""
    known = nodes["context"].to_numpy()
    above = np.append(_find_parents(known, nodes["parent"].to_numpy()), len(known))
    needed = np.zeros(len(known) + 1, np.bool_)
    needed[-1] = True
    places = np.unique(_find_places(known, contexts.to_numpy()))
    while (places := places[~needed[places]]).size:
        needed[places] = True
        places = np.unique(above[places])
    return nodes.filter(pl.Series(needed[:-1], dtype=pl.Boolean))
