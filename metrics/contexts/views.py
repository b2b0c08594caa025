"""Two ways to examine a tree of contexts: from the threads down, and from what ran up to whoever called it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.metrics.contexts.frames import FRAMES, number_distinct
from deepprof.metrics.contexts.paths import add_up, read_places

Int64s = npt.NDArray[np.int64]


class FlameTree(Struct, frozen=True, eq=False):
    """Frames in each other with a value each; parents are before their children, the first is around all.

    `frames` has the schema `FRAMES`, `parent` is a row (0 for the first), `value` contains what is within, too.
    """

    frames: pl.DataFrame
    parent: Int64s
    value: Int64s

    def __len__(self) -> int:
        return len(self.parent)


def look_down(contexts: pl.DataFrame, own: pl.Series) -> FlameTree:
    """Return the contexts of one rank as they are called; `own` is what each took itself."""
    parent, depth = read_places(contexts)
    value = add_up(own.cast(pl.Int64).to_numpy(), parent, depth)
    return FlameTree(contexts.select(list(FRAMES)), parent, value)


def look_up(contexts: pl.DataFrame, own: pl.Series) -> FlameTree:
    """Return what used something itself, each frame once, with its callers within it, and theirs within them."""
    tree, values = look_up_by(contexts, own.to_frame())
    return FlameTree(tree.frames, tree.parent, values[:, 0])


def look_up_by(contexts: pl.DataFrame, own: pl.DataFrame) -> tuple[FlameTree, Int64s]:
    """Return the same for several measures, a column of `own` each, and the values, a column per measure.

    The tree's own value is their sum.
    """
    around, _ = read_places(contexts)
    frame, frames = number_distinct(contexts.select(list(FRAMES)))
    number, amount = frame.to_numpy(), own.cast(pl.Int64).to_numpy()
    at = np.flatnonzero(amount.any(axis=1))
    node, first, taken = np.zeros(len(at), np.int64), 1, amount[at]
    parents, labels, values = [np.zeros(1, np.int64)], [number[:1]], [taken.sum(axis=0, keepdims=True)]
    while (inner := at > 0).any():
        at, node, taken = at[inner], node[inner], taken[inner]
        keys, found = np.unique(node * len(frames) + number[at], return_inverse=True)
        sums = np.zeros((len(keys), own.width), np.int64)
        np.add.at(sums, found, taken)
        parents, labels, values = [*parents, keys // len(frames)], [*labels, keys % len(frames)], [*values, sums]
        node, first, at = first + found, first + len(keys), around[at]
    value = np.concatenate(values)
    return FlameTree(frames[np.concatenate(labels)], np.concatenate(parents), value.sum(axis=1)), value
