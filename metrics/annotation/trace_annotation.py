"""What is known of one trace's stages and layers, beside the trace and its contexts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deepprof.collectors.trace import Trace
from deepprof.metrics.annotation.event_stages import TraceStages, find_stages
from deepprof.metrics.annotation.layers import Layers, find_layers
from deepprof.metrics.contexts.tree import ContextTree
from deepprof.metrics.loop import Loop


@dataclass(frozen=True, slots=True)
class TraceAnnotation:
    """The stages and layers of one trace; `tree` and `layers` are None where the trace shows none."""

    trace: Trace
    tree: ContextTree | None
    stages: TraceStages
    layers: Layers | None


def annotate(trace: Trace, loops: Sequence[Loop], tree: ContextTree | None) -> TraceAnnotation:
    """Return the stages and layers of a trace; `loops` are those found in it, `tree` are its calling contexts."""
    stages = find_stages(trace, loops, tree)
    return TraceAnnotation(trace, tree, stages, find_layers(trace, loops, tree, stages))
