"""The strip of a loop's iterations that is over all views."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from deepprof.web.documents.marks import Mark, mark_iterations

if TYPE_CHECKING:
    from deepprof.analysis import Loop

MOST_BARS = 300  # a bar of two pixels each in a narrow window


class IterationStrip(msgspec.Struct, frozen=True, kw_only=True):
    """The iterations of a loop as at most `MOST_BARS` bars, each of the iterations `first` to `last`.

    `longest` is the longest of them, `longest_ns` its time, `mark` its mark; `median_ns` is the loop's.
    """

    first: list[int]
    last: list[int]
    longest: list[int]
    longest_ns: list[int]
    mark: list[Mark]
    median_ns: int | None


def draw_strip_of(loop: Loop) -> IterationStrip:
    """Return the strip of a loop."""
    table, marks = loop.iterations, mark_iterations(loop)
    length = (table["busy_ns"] + table["idle_ns"]).to_numpy()
    bounds = np.linspace(0, table.height, min(table.height, MOST_BARS) + 1).astype(np.int64)
    longest = [int(a + np.argmax(length[a:b])) for a, b in pairwise(bounds)]
    index = table["index"].to_list()
    return IterationStrip(
        first=[index[a] for a in bounds[:-1]],
        last=[index[b - 1] for b in bounds[1:]],
        longest=[index[row] for row in longest],
        longest_ns=length[longest].tolist(),
        mark=[marks[row] for row in longest],
        median_ns=loop.metrics.iteration_ns.median if loop.metrics.iteration_ns else None,
    )
