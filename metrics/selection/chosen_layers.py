"""A layer of the model with everything below it, forward and backward."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.kept_rows import RowMarks
from deepprof.collectors.trace import Trace
from deepprof.metrics.annotation.trace_annotation import TraceAnnotation
from deepprof.metrics.contexts.paths import spread
from deepprof.metrics.contexts.slices import HostSlices, find_open
from deepprof.metrics.operators import is_stand_in
from deepprof.metrics.selection.marks import find_launchers, mark_nothing
from deepprof.metrics.selection.thread_spans import lie_in, merge_spans

Bools = npt.NDArray[np.bool_]

STREAM = ("stream",)


def list_layers(known: TraceAnnotation | None) -> list[str]:
    """Return the paths of the layers of a trace."""
    return [] if known is None or known.layers is None else known.layers.write_paths()[1:]


def mark_layer(known: TraceAnnotation | None, path: str, recorded: Trace) -> RowMarks | None:
    """Return what worked for the layer of a path and for those below it; None where there is none.

    `recorded` is the trace whose rows are marked: that of `known`, or the one that was read, if operators were made its
    kernels since (CPU fallback).
    """
    if known is None or known.layers is None or path not in list_layers(known):
        return None
    layers = known.layers
    named = np.array([False, *(each == path for each in layers.write_paths()[1:])])
    found = spread(named, np.maximum(layers.parent, 0), layers.depth)
    marks = dict(mark_nothing(recorded))
    events = found[layers.of_events]
    if not is_stand_in(known.trace):
        marks["device_events"] = events
    if known.tree is not None and len(layers.of_slices):
        return {**marks, **_mark_host(recorded, known.tree.slices, found[layers.of_slices])}
    if is_stand_in(known.trace):
        return marks | {"host_events": _mark_operators(recorded, known.trace, events)}
    return marks | {"host_events": find_launchers(recorded, events)}


def _mark_host(trace: Trace, slices: HostSlices, of_layer: Bools) -> RowMarks:
    """Return what slices of a layer are on the host, and what happened in memory while they were open."""
    rows, marks = slices.rows.filter(pl.Series(of_layer, dtype=pl.Boolean)), mark_nothing(trace)
    for table, column in (("host_events", "event"), ("annotations", "annotation")):
        marks[table][rows[column].drop_nulls().to_numpy()] = True
    memory = (
        np.append(of_layer, False)[find_open(slices, trace.memory_events)]
        if trace.memory_events.height
        else marks["memory_events"]
    )
    return {"host_events": marks["host_events"], "annotations": marks["annotations"], "memory_events": memory}


def _mark_operators(recorded: Trace, trace: Trace, events: Bools) -> Bools:
    """Return the host events within the operators that were made the marked kernels of a trace."""
    kernels = trace.device_events.filter(pl.Series(events, dtype=pl.Boolean))
    rows = recorded.host_events.with_columns(stream=pl.col("thread").fill_null(0))
    return lie_in(rows, merge_spans(kernels, STREAM), STREAM)
