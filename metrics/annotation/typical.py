"""The iteration that represents all of a loop, as the few dozen boxes per level that a person reads."""

from __future__ import annotations

import numpy as np
import polars as pl

from deepprof.collectors.trace import empty_table
from deepprof.metrics.annotation.boxes import BOXES
from deepprof.metrics.annotation.device_segments import cut_device
from deepprof.metrics.annotation.host_stages import cut_host
from deepprof.metrics.annotation.iteration_boxes import box_device, box_host
from deepprof.metrics.annotation.sections import group_sections
from deepprof.metrics.annotation.trace_annotation import TraceAnnotation
from deepprof.metrics.breakdown.timeline import Timeline
from deepprof.metrics.loop import Loop


def box_typical(known: TraceAnnotation, loop: Loop, timeline: Timeline) -> pl.DataFrame:
    """Return the typical iteration of a loop with the schema `BOXES`: on the device, then on the host if it is known.

    `timeline` is that of the loop's device. Without a typical iteration there is no row.
    """
    if loop.typical is None:
        return empty_table(BOXES)
    return box_whole_iteration(known, loop, timeline, loop.typical)


def box_whole_iteration(known: TraceAnnotation, loop: Loop, timeline: Timeline, index: int) -> pl.DataFrame:
    """Return the iteration with the number `index` of a loop in the same way; the loop has one of that number."""
    row = int(np.flatnonzero((loop.table["index"] == index).to_numpy())[0])
    sides = [box_device(known, loop, cut_device(known.trace, loop, timeline), row)]
    host = cut_host(known, loop)
    if host is not None:
        sides.append(box_host(known, loop, row, host))
    return _put_together([group_sections(side) for side in sides])


def _put_together(sides: list[pl.DataFrame]) -> pl.DataFrame:
    """Return tables of boxes as one, with the numbers of every after those of the ones before."""
    before = np.cumsum([0, *(side.height for side in sides)])
    shifted = (
        side.with_columns((pl.col("box", "parent") + int(first)).cast(pl.UInt32))
        for side, first in zip(sides, before, strict=False)
    )
    return pl.concat(shifted)
