"""The code of both runs as one tree: paths of Python functions, modules, operators, ranges and scopes.

A path is the same in both runs where its frames are: their kinds, names and files. Lines do not count, for they move
when code is edited, nor do threads, which have other numbers in another run. What is between (calls, native frames)
is left out, and what ran on the device belongs to the code around it. A frame directly within an equal one is the same
frame: what records operators writes some of them twice.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.metrics.contexts.frames import number_distinct
from deepprof.metrics.contexts.paths import find_nearest, number_paths, read_places

Int64s = npt.NDArray[np.int64]

CODE = ("python", "module", "operator", "range", "scope")
KEY = ("kind", "name", "file")


class CodePaths(Struct, frozen=True, eq=False):
    """Paths by number, parents before children; 0 is around all.

    `parent` is the path around each, `frames` has the columns `KEY` of each, but the first. `of_a` and `of_b` are the
    path of every context of the runs, 0 for contexts that are no code.
    """

    parent: Int64s
    frames: pl.DataFrame
    of_a: Int64s
    of_b: Int64s

    def spell(self, path: int) -> tuple[str, ...]:
        """Return the names of a path's frames, the outermost first."""
        names: list[str] = []
        while path:
            names.append(self.frames["name"][path - 1])
            path = int(self.parent[path])
        return tuple(reversed(names))


def match_paths(a: pl.DataFrame, b: pl.DataFrame) -> CodePaths:
    """Return the paths of two trees, tables with the columns of `CONTEXTS`."""
    both = pl.concat([a.select("parent", "depth", *KEY), b.select("parent", "depth", *KEY)])
    parent, depth = read_places(both)
    parent[a.height :] += a.height
    code = both["kind"].cast(pl.String).is_in(CODE).to_numpy()
    numbers, frames = number_distinct(both.select(KEY))
    frame = numbers.to_numpy()
    outer = find_nearest(code, parent, depth)[parent]
    code = code & ~((outer >= 0) & (frame[outer] == frame))
    rows = np.flatnonzero(code)
    around = find_nearest(code, parent, depth)[parent[rows]]
    inner = np.where(around >= 0, np.searchsorted(rows, around), -1)
    paths = number_paths(inner, frame[rows], np.zeros_like(rows), 1)
    context = np.zeros(both.height, np.int64)
    context[rows] = paths.context
    return CodePaths(np.append(0, paths.parent), frames[paths.frame], context[: a.height], context[a.height :])
