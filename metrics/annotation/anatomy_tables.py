"""The tables of what a loop's iterations are made of: stages and layers."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from deepprof.collectors.table_schema import TableSchema
from deepprof.metrics.annotation.stage_names import STAGE

STAGE_TIMES = TableSchema.of(
    "What one stage took of one iteration. The busy times of all stages add up to that of the iteration, as the idle "
    "times do; the host's add up to the time from one iteration's begin on the host to the next one's.",
    {
        "iteration": (pl.Int64(), "the iteration's number in the loop"),
        "stage": (STAGE, "the stage"),
        "busy_ns": (pl.Int64(), "how long the device worked for it"),
        "idle_ns": (pl.Int64(), "how long the device waited for its first or next event"),
        "host_ns": (pl.Int64(), "how long the threads that launch were in it; null: not recorded"),
        "kernels": (pl.Int64(), "kernels and graphs of it that begin in the iteration"),
        "confidence": (pl.Float64(), "how sure it is, from 0 to 1: the mean over its work; null without any"),
    },
)
STAGES_IN_LOOP = TableSchema.of(
    "What one stage takes of the usual iterations of a loop. The means of all stages add up to the mean iteration.",
    {
        "stage": (STAGE, "the stage"),
        "device_ns": (pl.Int64(), "how long the device works or waits for it: the median"),
        "low_ns": (pl.Int64(), "the 5th percentile of that"),
        "high_ns": (pl.Int64(), "the 95th percentile of that"),
        "mean_busy_ns": (pl.Float64(), "how long the device works for it: the mean"),
        "mean_idle_ns": (pl.Float64(), "how long the device waits for its first or next event: the mean"),
        "mean_host_ns": (pl.Float64(), "how long the threads that launch are in it: the mean; null: not recorded"),
        "kernels": (pl.Float64(), "kernels and graphs of it: the mean"),
        "confidence": (pl.Float64(), "how sure it is, from 0 to 1; null where it has no work of the device"),
    },
)
LAYER_TIMES = TableSchema.of(
    "What one layer of the model takes of a usual iteration, with all layers within; `own_…` is without them.",
    {
        "layer": (pl.UInt32(), "its number, and the row's; 0 is the model, with whatever is part of no layer"),
        "parent": (pl.UInt32(), "the layer around it, a smaller number; null: none, of the first"),
        "depth": (pl.UInt16(), "how many layers are around it"),
        "name": (pl.String(), "its name, without those of the layers around it; empty for the first"),
        "path": (pl.String(), "its name with those of the layers around it, from the outermost one on"),
        "busy_ns": (pl.Int64(), "how long the device works for it: the median"),
        "low_ns": (pl.Int64(), "the 5th percentile of that"),
        "high_ns": (pl.Int64(), "the 95th percentile of that"),
        "forward_ns": (pl.Int64(), "the median of that in forward passes"),
        "backward_ns": (pl.Int64(), "the median of that in backward passes"),
        "idle_ns": (pl.Int64(), "how long the device waits for its events: the median"),
        "own_busy_ns": (pl.Int64(), "how long the device works for it itself: the median"),
        "kernels": (pl.Float64(), "events of the device that it has in an iteration: the mean"),
    },
)


class Anatomy(Struct, frozen=True, eq=False, dict=True):
    """The stages and the layers of a loop's usual iterations.

    `stages` has the schema `STAGES_IN_LOOP`, `in_iterations` has `STAGE_TIMES`, `layers` has `LAYER_TIMES` and no row
    where no layer is known; `source` is how they are. `representative` is the `index` of the iteration whose stages are
    nearest to the medians of all, None without a usual one.
    """

    stages: pl.DataFrame
    in_iterations: pl.DataFrame
    layers: pl.DataFrame
    source: str | None
    representative: int | None
