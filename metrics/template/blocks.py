"""Where the nested loops of an iteration ran: each repetition of every block, in every iteration that shows it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.metrics.loop import Loop
from deepprof.metrics.names import coarse_ids
from deepprof.metrics.sequence import main_kernels
from deepprof.mining.nesting import NestedBlock

Int64s = npt.NDArray[np.int64]

# One row per repetition of a block, and one with `repeat` 0 for all of them together. `iteration` is its index, `block`
# a number in `Loop.blocks`; a repetition ends with its last kernel, or where the next one begins.
BLOCKS = pl.Schema(dict.fromkeys(("iteration", "block", "repeat", "start_ns", "end_ns"), pl.Int64()))


def place_blocks(loop: Loop, trace: Trace) -> pl.DataFrame:
    """Return where the blocks of a loop's template ran, with the schema `BLOCKS`.

    The template gives the kernel of an iteration at which a block begins; an iteration in which nothing repeats from
    there on, because kernels were added or left out before, has no row for it.
    """
    whole = loop.iterations.filter("complete")
    work = main_kernels(trace, loop.device, loop.stream)
    if not loop.blocks or not whole.height:
        return pl.DataFrame(schema=BLOCKS)
    symbols = coarse_ids(trace.names).gather(work["name_id"]).to_numpy()
    start, end = work["start_ns"].to_numpy(), work["end_ns"].to_numpy()
    first = np.searchsorted(start, whole["start_ns"].to_numpy())
    tables = [pl.DataFrame(schema=BLOCKS)]
    for number, block in enumerate(loop.blocks):
        rows = np.flatnonzero(block.first + block.events * block.repeats <= whole["kernels"].to_numpy())
        at = first[rows, None] + block.first + np.arange(block.events * block.repeats)
        shown = repeats(symbols, at, block)
        index = whole["index"].to_numpy()[rows][shown]
        tables.append(_as_rows(index, number, start[at[shown]], end[at[shown]], block))
    return pl.concat(tables)


def repeats(symbols: npt.NDArray[np.uint32], at: Int64s, block: NestedBlock) -> npt.NDArray[np.bool_]:
    """Return in which rows of `at`, the places of a block's kernels, the kernels repeat."""
    names = symbols[at]
    return np.asarray((names[:, block.events :] == names[:, : -block.events]).all(axis=1))


def _as_rows(index: Int64s, number: int, start: Int64s, end: Int64s, block: NestedBlock) -> pl.DataFrame:
    shape = (len(index), block.repeats, block.events)
    begins, ends = start.reshape(shape)[:, :, 0], end.reshape(shape).max(axis=2)
    ends[:, :-1] = np.minimum(ends[:, :-1], begins[:, 1:])
    begins = np.concatenate([begins[:, :1], begins], axis=1)
    ends = np.concatenate([ends.max(axis=1, keepdims=True), ends], axis=1)
    columns = {
        "iteration": np.repeat(index, block.repeats + 1),
        "block": np.full(begins.size, number),
        "repeat": np.tile(np.arange(block.repeats + 1), len(index)),
        "start_ns": begins.ravel(),
        "end_ns": ends.ravel(),
    }
    return pl.DataFrame(columns, schema=BLOCKS)
