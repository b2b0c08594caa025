"""The waits of a device within the boxes of one iteration: how long, why, and in which box each is."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.table_schema import TableSchema
from deepprof.collectors.trace import empty_table
from deepprof.metrics.annotation.boxes import RECORDED_KINDS
from deepprof.metrics.breakdown.parts import PART_NAMES
from deepprof.metrics.breakdown.timeline import Timeline

Int64s = npt.NDArray[np.int64]

MOST_WAITS = 400  # of an iteration, the longest: each is compared with all boxes
SHORTEST = 5e-4  # of the iteration: a shorter one is no wider than a pixel

IDLE_BOXES = TableSchema.of(
    "One wait of the device.",
    {
        "around": (pl.UInt32(), "the innermost box that it lies in, of those that are no single event"),
        "part": (pl.Enum(PART_NAMES), "what the device waits for, as in the table of parts"),
        "start_ns": (pl.Int64(), "when it begins"),
        "end_ns": (pl.Int64(), "when it ends"),
    },
)


def find_idle_boxes(boxes: pl.DataFrame, timeline: Timeline) -> pl.DataFrame:
    """Return the longest waits within the first box of `boxes` (`BOXES`, of a device), with the schema `IDLE_BOXES`."""
    wide = boxes.filter((pl.col("side") == "device") & ~pl.col("kind").is_in(RECORDED_KINDS))
    if wide.is_empty():
        return empty_table(IDLE_BOXES)
    begin, end = int(wide["start_ns"][0]), int(wide["end_ns"][0])
    start, until, part = _cut_waits(timeline, begin, end)
    return pl.DataFrame(
        {
            "around": _find_innermost(wide, start, until),
            "part": pl.Series(PART_NAMES).gather(part),
            "start_ns": start,
            "end_ns": until,
        }
    ).cast(dict(IDLE_BOXES))  # type: ignore[arg-type]


def _cut_waits(timeline: Timeline, begin: int, end: int) -> tuple[Int64s, Int64s, Int64s]:
    """Return begin, end and part of the longest waits in [begin, end), in the order of time; of one part as one."""
    starts, ends, part = timeline.find_waits()
    starts, ends = np.clip(starts, begin, end), np.clip(ends, begin, end)
    length = ends - starts
    longest = np.sort(np.argsort(-length, kind="stable")[:MOST_WAITS])
    longest = longest[length[longest] >= SHORTEST * (end - begin)]
    return starts[longest], ends[longest], part[longest]


def _find_innermost(wide: pl.DataFrame, start: Int64s, end: Int64s) -> Int64s:
    """Return the number of the deepest box around each of a few sections; the first box is around all."""
    begins, ends = wide["start_ns"].to_numpy(), wide["end_ns"].to_numpy()
    box, depth = (wide[name].to_numpy().astype(np.int64) for name in ("box", "depth"))
    found = np.full(len(start), box[0])
    for wait in range(len(start)):  # all of them at once would take waits x boxes of memory
        around = np.flatnonzero((begins <= start[wait]) & (end[wait] <= ends))
        found[wait] = box[around[np.argmax(depth[around])]]
    return found
