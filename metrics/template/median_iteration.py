"""One iteration that represents all of a loop: the kernels that most of them run, each with its median time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.metrics.loop import Loop
from deepprof.metrics.names import coarse_ids
from deepprof.metrics.sequence import main_kernels
from deepprof.mining.nesting import NestedBlock

Int64s = npt.NDArray[np.int64]

CELLS = 1 << 22  # kernels read: of more, iterations spread evenly are enough for a median


@dataclass(frozen=True, slots=True, eq=False)
class MedianIteration:
    """The kernels of the main stream in their order, arrays of one row per kernel.

    `name_ids` and `events` (rows of `device_events`) are those of one real iteration, `iterations` is how many run
    the same kernels and give the medians: `gap_ns`, the stream's pause before a kernel (0 for the first), and
    `busy_ns`, what it adds to the busy time. `interval_ns` is the pause after the last one, `blocks` are the nested
    loops that this iteration shows.
    """

    name_ids: npt.NDArray[np.uint32]
    events: Int64s
    gap_ns: Int64s
    busy_ns: Int64s
    interval_ns: int
    iterations: int
    blocks: tuple[NestedBlock, ...]


def find_median_iteration(loop: Loop, trace: Trace) -> MedianIteration | None:
    """Return the iteration that represents all of a loop, None where no iteration is complete.

    Variants of a kernel (data type, tile size) count as the same one. Iterations after warm-up that another one
    follows are used, or all complete ones where there are none.
    """
    rows = loop.usual if loop.usual.height else loop.table.filter("complete")
    work = main_kernels(trace, loop.device, loop.stream)
    if not rows.height or not work.height:
        return None
    rows = rows.filter(pl.col("kernels") == pl.col("kernels").mode().min())
    rows = rows.gather_every(max(1, rows.height * int(rows["kernels"][0]) // CELLS))
    at = np.searchsorted(work["start_ns"].to_numpy(), rows["start_ns"].to_numpy())[:, None]
    at = at + np.arange(int(rows["kernels"][0]))
    names = coarse_ids(trace.names).gather(work["name_id"]).to_numpy()[at]
    same, reference = _alike(names)
    gap, busy = _times_of(work, at[same])
    usual = at[reference]
    return MedianIteration(
        name_ids=work["name_id"].to_numpy()[usual],
        events=work["row"].cast(pl.Int64).to_numpy()[usual],
        gap_ns=gap,
        busy_ns=busy,
        interval_ns=round(rows.filter(pl.Series(same))["interval_ns"].median() or 0),  # type: ignore[arg-type]
        iterations=int(same.sum()),
        blocks=tuple(block for block in loop.blocks if shows(names[reference], block)),
    )


def _alike(names: npt.NDArray[np.uint32]) -> tuple[npt.NDArray[np.bool_], int]:
    """Return which rows equal the most frequent one, and the index of the first of them."""
    _, kind, count = np.unique(names, axis=0, return_inverse=True, return_counts=True)
    same = kind.ravel() == np.argmax(count)
    return same, int(np.argmax(same))


def _times_of(work: pl.DataFrame, at: Int64s) -> tuple[Int64s, Int64s]:
    """Return the median pause before each kernel and the median of what it adds to the busy time."""
    start, end = work["start_ns"].to_numpy()[at], work["end_ns"].to_numpy()[at]
    reach = np.maximum.accumulate(end, axis=1)
    before = np.concatenate([start[:, :1], reach[:, :-1]], axis=1)
    gap = np.maximum(start - before, 0)
    busy = np.maximum(end - np.maximum(start, before), 0)
    return np.rint(np.median(gap, axis=0)).astype(np.int64), np.rint(np.median(busy, axis=0)).astype(np.int64)


def shows(names: npt.NDArray[np.uint32], block: NestedBlock) -> bool:
    """Return whether the kernels repeat where a block of the template should be."""
    body = names[block.first : block.first + block.events * block.repeats]
    whole = len(body) == block.events * block.repeats
    return whole and bool((body[block.events :] == body[: -block.events]).all())
