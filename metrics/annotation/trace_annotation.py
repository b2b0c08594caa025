"""What is known of one trace's stages and layers, next to the trace and its contexts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from msgspec import Struct

from deepprof.collectors.trace import Trace
from deepprof.metrics.annotation.event_stages import TraceStages, find_stages
from deepprof.metrics.annotation.layers import TraceLayers, find_layers
from deepprof.metrics.annotation.stage_names import STAGE, STAGES
from deepprof.metrics.contexts.tree import ContextTree
from deepprof.metrics.loop import Loop


class TraceAnnotation(Struct, frozen=True, eq=False):
    """The stages and layers of one trace; `tree` and `layers` are None where the trace shows none."""

    trace: Trace
    tree: ContextTree | None
    stages: TraceStages
    layers: TraceLayers | None


def annotate(trace: Trace, loops: Sequence[Loop], tree: ContextTree | None) -> TraceAnnotation:
    """Return the stages and layers of a trace; `loops` are those found in it, `tree` are its calling contexts."""
    stages = find_stages(trace, loops, tree)
    return TraceAnnotation(trace, tree, stages, find_layers(trace, loops, tree, stages))


def place_events(known: TraceAnnotation | None, many: int) -> pl.DataFrame:
    """Return `stage` and the path of the `layer` of each of `many` device events; null where it is unknown."""
    stage, layer = np.full(many, -1), np.zeros(many, np.int64)
    paths = [""]
    if known is not None:
        stage = known.stages.stage
        if known.layers is not None:
            layer, paths = known.layers.of_events, known.layers.write_paths()
    return pl.DataFrame(
        {
            "stage": pl.Series([*STAGES, None], dtype=STAGE).gather(np.where(stage < 0, len(STAGES), stage)),
            "layer": pl.Series([None, *paths[1:]], dtype=pl.String).gather(layer),
        }
    )
