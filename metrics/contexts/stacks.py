"""Call stacks that recorders attach to rows: whose frames are between a row and what is around it.

Of a row that is in another one with a stack only the frames beyond the common outer part are put in. These are a
chain. Equal stacks and equal chains are one, and of either there are few.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.trace import Trace
from deepprof.metrics.contexts.frames import KIND, PYTHON, SCOPE
from deepprof.metrics.contexts.slices import HostSlices

Int64s = npt.NDArray[np.int64]

DEEPEST_STACK = 256  # frames, the inner ones; those left out have one in their place
LEFT_OUT = "(outer frames)"
NAMELESS = "[Unknown]"  # what a recorder could not resolve states nothing


class FrameLists(Struct, frozen=True, eq=False):
    """Stacks, or chains: the frames of list `n` are `frame[begin[n]:begin[n + 1]]`, the outermost first.

    `of_rows` is the list of every slice, then of every device event; -1 for none.
    """

    begin: Int64s
    frame: Int64s
    of_rows: Int64s


def read_stacks(trace: Trace, slices: HostSlices) -> tuple[FrameLists, pl.Series]:
    """Return the stacks of a trace, and the texts of their frames by number.

    Where Python functions were recorded as slices, stacks of the host state the same again. Only those of compiled
    programs count then: they are of the time of compilation.
    """
    if trace.stacks.is_empty():
        nothing = np.full(len(slices.start) + trace.device_events.height, -1, np.int64)
        return FrameLists(np.zeros(1, np.int64), np.zeros(0, np.int64), nothing), pl.Series("text", [], dtype=pl.String)
    known = trace.stacks.drop_nulls().unique("stack_id", keep="first", maintain_order=True).with_row_index("stack")
    listed = _list_frames(known)
    texts = listed["text"].unique(maintain_order=True)
    numbers = pl.DataFrame({"text": texts}).with_row_index("frame")
    frame = listed.join(numbers, on="text", how="left", maintain_order="left")["frame"].cast(pl.Int64).to_numpy()
    sizes = np.bincount(listed["stack"].to_numpy(), minlength=known.height)
    of_slices, of_events = _find_stacks(slices.rows["stack_id"], known), _find_events(trace, known)
    if (slices.rows["kind"] == "python").any():
        compiled = listed.filter(pl.col("text").str.contains(SCOPE))["stack"].unique().to_numpy()
        of_slices[~np.isin(of_slices, compiled)] = -1
    begin = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    of_rows = np.concatenate([of_slices, of_events])
    return FrameLists(begin, frame, np.where(np.append(sizes, 0)[of_rows] > 0, of_rows, -1)), texts


def _list_frames(known: pl.DataFrame) -> pl.DataFrame:
    """Return `stack` and `text` of every frame, stack by stack, the outermost first."""
    frames = pl.col("frames").str.split(";").list.eval(pl.element().filter(~pl.element().is_in(["", NAMELESS])))
    listed = known.select("stack", text=frames)
    deep = pl.col("text").list.len() > DEEPEST_STACK
    kept = pl.col("text").list.head(DEEPEST_STACK)
    short = pl.when(deep).then(pl.concat_list(kept, pl.lit(LEFT_OUT))).otherwise(kept)
    return listed.select("stack", short.list.reverse()).explode("text").drop_nulls()


def kinds_of(texts: pl.Series) -> pl.Series:
    """Return the kinds, of `KINDS`, of frames that are written as in `Trace.stacks`."""
    text = pl.lit(texts)
    python = pl.when(text.str.contains(PYTHON)).then(pl.lit("python")).otherwise(pl.lit("native"))
    return pl.select(pl.when(text.str.contains(SCOPE)).then(pl.lit("scope")).otherwise(python).cast(KIND)).to_series()


def _find_stacks(ids: pl.Series, known: pl.DataFrame) -> Int64s:
    """Return the stack of every `stack_id`, -1 for none."""
    rows = ids.cast(pl.UInt32).to_frame("stack_id").join(known, on="stack_id", how="left", maintain_order="left")
    return np.array(rows["stack"].cast(pl.Int64).fill_null(-1).to_numpy())


def _find_events(trace: Trace, known: pl.DataFrame) -> Int64s:
    """Return the stack of every device event, -1 for none; of several the last counts."""
    rows = trace.event_stacks.filter(pl.col("event") < trace.device_events.height)
    found = np.full(trace.device_events.height, -1, np.int64)
    found[rows["event"].to_numpy()] = _find_stacks(rows["stack_id"], known)
    return found


def find_chains(stacks: FrameLists, around: Int64s) -> FrameLists:
    """Return the frames to put in front of rows; `around` is the slice around each row, -1 for none."""
    has, many = np.flatnonzero(stacks.of_rows >= 0), len(stacks.begin)
    if not has.size:
        return FrameLists(np.zeros(1, np.int64), np.zeros(0, np.int64), stacks.of_rows)
    outer = _find_outer(stacks.of_rows, around)
    pairs, row = np.unique(stacks.of_rows[has] * many + outer[has] + 1, return_inverse=True)
    own, other = pairs // many, pairs % many - 1
    first = stacks.begin[own] + _measure_common(stacks, own, other)
    keys, pair = np.unique(first * many + own, return_inverse=True)
    begin, end = keys // many, stacks.begin[keys % many + 1]
    of_rows = np.full(len(stacks.of_rows), -1, np.int64)
    of_rows[has] = np.where(end > begin, np.arange(len(keys)), -1)[pair[row]]
    return FrameLists(np.concatenate([[0], np.cumsum(end - begin)]), stacks.frame[expand(begin, end)], of_rows)


def expand(begin: Int64s, end: Int64s) -> Int64s:
    """Return the numbers of all ranges [`begin`, `end`), one after the other."""
    sizes = end - begin
    places: Int64s = np.arange(sizes.sum()) + np.repeat(begin - np.cumsum(sizes) + sizes, sizes)
    return places


def _find_outer(stack: Int64s, around: Int64s) -> Int64s:
    """Return the stack of the innermost slice around each row that has one, -1 for none."""
    found = around.copy()
    while (passed := np.flatnonzero((found >= 0) & (stack[found] < 0))).size:  # twice as far each time
        found[passed] = found[found[passed]]
    return np.where(found >= 0, stack[found], -1)


def _measure_common(stacks: FrameLists, one: Int64s, other: Int64s) -> Int64s:
    """Return how many outer frames two stacks have in common; `other` may be -1, for none."""
    common, size = np.zeros(len(one), np.int64), np.diff(stacks.begin)
    alike = np.flatnonzero(other >= 0)
    while alike.size:
        alike = alike[common[alike] < np.minimum(size[one[alike]], size[other[alike]])]
        frames = (stacks.frame[stacks.begin[stack[alike]] + common[alike]] for stack in (one, other))
        alike = alike[np.equal(*frames)]
        common[alike] += 1
    return common
