"""What each context needed in a usual iteration of a loop, and what it needed in early and in late ones."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.trace import Trace
from deepprof.metrics.breakdown.timeline import Timeline
from deepprof.metrics.contexts.code_lines import Place, describe_place, find_lines
from deepprof.metrics.contexts.measures import COLUMNS, list_amounts
from deepprof.metrics.contexts.per_iteration import measure_windows
from deepprof.metrics.contexts.tree import ContextTree
from deepprof.metrics.loop import Loop

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

STAGES = 6  # of a loop, one after the other: that all six grow by chance has the probability 1/720
STAGE_ITERATIONS = 2  # at least: one alone may be anything


class LoopContexts(Struct, frozen=True, eq=False, dict=True):
    """The contexts of a loop's trace, with what they needed in a usual iteration of it.

    `table` has the columns of `CONTEXTS`, and of `MEASURES` as means per usual iteration. `stages` is an array of
    `STAGES` × contexts × `COLUMNS`: the means with all within in the first sixth of the usual iterations, the second …;
    it has no rows where a stage has fewer than `STAGE_ITERATIONS`.
    """

    loop: Loop
    trace: Trace
    tree: ContextTree
    table: pl.DataFrame
    stages: Floats

    @cached_property
    def lines(self) -> Int64s:
        """For each context that of the line of code that it belongs to, -1 where none is recorded."""
        return find_lines(self.table)

    @cached_property
    def functions(self) -> Bools:
        """Which contexts are such lines of code."""
        found = np.zeros(self.table.height, np.bool_)
        found[self.lines[self.lines >= 0]] = True
        return found

    @cached_property
    def definitions(self) -> Bools:
        """Which contexts are functions recorded as slices: their line is where the function begins, in no call."""
        found, slices = np.zeros(self.table.height, np.bool_), self.tree.slices.rows
        found[self.tree.of_slices[(slices["kind"] == "python").to_numpy()]] = True
        return found

    def describe_place(self, context: int) -> Place:
        """Return where a context is, as `code_lines.describe_place` does."""
        return describe_place(self.table, self.lines, context, self.definitions)

    def stages_of(self, column: str) -> Floats:
        """Return the means of one of `COLUMNS`: `STAGES` × contexts."""
        return self.stages[:, :, COLUMNS.index(column)]


def read_loop_contexts(
    trace: Trace, tree: ContextTree, loop: Loop, timelines: Iterable[Timeline] = ()
) -> LoopContexts | None:
    """Return what contexts needed in the usual iterations of a loop, on its device; None where there are none."""
    usual, many = loop.usual, tree.contexts.height
    if usual.is_empty():
        return None
    start = usual["start_ns"].to_numpy()
    stage = np.arange(len(start)) * STAGES // len(start)
    amounts = list_amounts(trace, tree, timelines, loop.device)
    taken = measure_windows(tree, amounts, start, start + usual["iteration_ns"].to_numpy(), stage)
    whole, own = (np.zeros((STAGES, many, len(COLUMNS)), np.int64) for _ in range(2))
    whole[taken.window, taken.context], own[taken.window, taken.context] = taken.whole, taken.own
    means = np.hstack([whole.sum(axis=0), own.sum(axis=0)]) / len(start)
    names = [*COLUMNS, *(f"own_{name}" for name in COLUMNS)]
    counts = np.bincount(stage, minlength=STAGES)
    enough = counts.min() >= STAGE_ITERATIONS
    stages = whole / counts[:, None, None] if enough else np.empty((0, many, len(COLUMNS)))
    return LoopContexts(loop, trace, tree, tree.contexts.hstack(pl.DataFrame(means, schema=names)), stages)
