"""One iteration that represents all of a loop: the kernels that most of them run, their median times and operators."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.trace import Trace
from deepprof.metrics.enclosure import enclose, order_slices
from deepprof.metrics.loop import Loop
from deepprof.metrics.names import coarse_ids
from deepprof.metrics.sequence import main_kernels
from deepprof.mining.nesting import NestedBlock

Int64s = npt.NDArray[np.int64]

CELLS = 1 << 22  # kernels read: of more, iterations spread evenly are enough for a median

DEEPEST = 128  # operators around a launch that are reported, at most
COLUMNS = ("row", "start_ns", "end_ns", "process", "thread")


class MedianIteration(Struct, frozen=True, eq=False):
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


def operators_at_launch(trace: Trace, events: Int64s) -> Int64s:
    """Return the operators that were open on the launching thread when `events` were launched.

    `events` are rows of `Trace.device_events`. The result has a row per event and a column per level, the outermost
    operator first: rows of `Trace.host_events`, -1 after the innermost one. Events without a launch record have none.
    """
    launches = _find_launches(trace, events)
    operators = trace.host_events.with_row_index("row").filter(pl.col("category") == "op").select(COLUMNS)
    marks = launches.select("row", "start_ns", pl.col("start_ns").alias("end_ns"), "process", "thread")
    around = _find_parents(pl.concat([operators, marks]))
    levels = _climb(around, operators.height)
    rows = np.append(operators["row"].cast(pl.Int64).to_numpy(), -1)
    found = np.full((len(events), levels.shape[1]), -1, np.int64)
    found[launches["event"].to_numpy()] = rows[levels]
    return found


def _find_launches(trace: Trace, events: Int64s) -> pl.DataFrame:
    """Return `COLUMNS` of the calls that launched `events`, with every event's place in them."""
    calls = trace.host_events.with_row_index("row").filter(
        (pl.col("category") == "runtime") & pl.col("correlation").is_not_null()
    )
    first = calls.unique("correlation", keep="first", maintain_order=True).select(*COLUMNS, "correlation")
    wanted = trace.device_events[events].select("correlation").with_row_index("event")
    return wanted.join(first, on="correlation", how="inner", maintain_order="left")


def _find_parents(slices: pl.DataFrame) -> Int64s:
    """Return for every slice the place of the one around it on its thread, -1 for none."""
    track = slices.select(pl.struct("process", "thread").rank("dense").cast(pl.Int64)).to_series().to_numpy()
    start = slices["start_ns"].to_numpy()
    end = slices.select(pl.max_horizontal("start_ns", "end_ns")).to_series().to_numpy()
    order = order_slices(track, start, end)
    found = enclose(track[order], start[order], end[order])
    parent = np.empty(len(order), np.int64)
    parent[order] = np.where(found.crosses | (found.parent < 0), -1, order[found.parent])
    return parent


def _climb(parent: Int64s, first: int) -> Int64s:
    """Return the ancestors of the slices from `first` on, a row each, the outermost first and -1 after the last."""
    chain = [parent[first:]]
    while len(chain) < DEEPEST and (chain[-1] >= 0).any():
        chain.append(np.where(chain[-1] >= 0, parent[chain[-1]], -1))
    upward = np.stack(chain, axis=1)
    depth = (upward >= 0).sum(axis=1, keepdims=True)
    place = depth - 1 - np.arange(upward.shape[1])
    return np.where(place >= 0, np.take_along_axis(upward, np.maximum(place, 0), axis=1), -1)
