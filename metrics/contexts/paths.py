"""One context for all slices with the same path: the frames from the thread down to the slice."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Numbers = TypeVar("Numbers", npt.NDArray[np.int64], npt.NDArray[np.float64])

DEEPEST = 1_000  # levels, as Python allows; what is deeper belongs to the context there


class _NumberedPaths(Struct, frozen=True, eq=False):
    """Contexts by number, parents before children, and the `context` of every slice.

    `parent` is the number of the context around, `frame` what the context is; both continue the contexts given.
    """

    parent: Int64s
    frame: Int64s
    context: Int64s


def measure_depths(parent: Int64s) -> Int64s:
    """Return how many slices are around each one; `parent` is a row, -1 for none, without circles."""
    jump, depth = parent.copy(), (parent >= 0).astype(np.int64)
    while (inner := np.flatnonzero(jump >= 0)).size:  # twice as far each time
        depth[inner] += depth[jump[inner]]
        jump[inner] = jump[jump[inner]]
    return depth


def number_paths(parent: Int64s, frame: Int64s, top: Int64s, first: int) -> _NumberedPaths:
    """Return the contexts of slices, numbered from `first` on.

    `top` is for every slice the context of its thread, which is around those without a `parent`; a frame is a number.
    """
    depth, context, many = measure_depths(parent), top.copy(), int(frame.max(initial=0)) + 1
    found: list[Int64s] = [np.empty(0, np.int64)]
    for rows in list_levels(depth):
        around = np.where(parent[rows] >= 0, context[parent[rows]], top[rows])
        if depth[rows[0]] > DEEPEST:
            context[rows] = around
            continue
        keys, inverse = np.unique(around * many + frame[rows], return_inverse=True)
        context[rows] = first + inverse
        first += len(keys)
        found.append(keys)
    keys = np.concatenate(found)
    return _NumberedPaths(keys // many, keys % many, context)


def add_up(own: Numbers, parent: Int64s, depth: Int64s) -> Numbers:
    """Return for every node of a tree the sum of its row of `own` and of those of all nodes within it."""
    whole = own.copy()
    for rows in reversed(list_levels(depth)[1:]):
        ordered = rows[np.argsort(parent[rows], kind="stable")]
        begins = np.flatnonzero(np.diff(parent[ordered], prepend=-1))
        whole[parent[ordered[begins]]] += np.add.reduceat(whole[ordered], begins, axis=0)
    return whole


def spread(found: Bools, parent: Int64s, depth: Int64s) -> Bools:
    """Return the nodes of a tree that were found, and all within them."""
    reached = found.copy()
    for rows in list_levels(depth)[1:]:
        reached[rows] |= reached[parent[rows]]
    return reached


def find_nearest(found: Bools, parent: Int64s, depth: Int64s) -> Int64s:
    """Return for every node of a tree the innermost one that was found, itself or around it; -1 for none."""
    nearest = np.where(found, np.arange(len(found)), -1)
    for rows in list_levels(depth)[1:]:
        missing = rows[nearest[rows] < 0]
        nearest[missing] = nearest[parent[missing]]
    return nearest


def read_places(contexts: pl.DataFrame) -> tuple[Int64s, Int64s]:
    """Return the context around each one of a table, 0 for the first, and the depths."""
    numbers = contexts.select(pl.col("parent").fill_null(0), "depth").cast(pl.Int64)
    return numbers["parent"].to_numpy(), numbers["depth"].to_numpy()


def list_levels(depth: Int64s) -> list[Int64s]:
    """Return the rows of every depth, the outermost first."""
    order = np.argsort(depth, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(depth[order])) + 1) if len(order) else []
