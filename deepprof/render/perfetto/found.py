"""What DeepProf found on a device: findings, iterations, nested loops, and why the device waits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding
from deepprof.metrics.annotation.boxes import BOXES
from deepprof.metrics.annotation.device_segments import cut_device
from deepprof.metrics.annotation.iteration_boxes import box_device
from deepprof.metrics.annotation.trace_annotation import TraceAnnotation
from deepprof.metrics.annotation.typical import box_typical
from deepprof.metrics.breakdown.parts import PART_NAMES, PARTS
from deepprof.metrics.breakdown.timeline import Timeline
from deepprof.metrics.contexts.frames import number_distinct
from deepprof.metrics.iteration import ITERATIONS
from deepprof.metrics.loop import Loop
from deepprof.metrics.template.blocks import place_blocks
from deepprof.plurals import counted
from deepprof.render.perfetto.layers import SLICES, SliceLayer, number

UNTIL = pl.col("start_ns") + pl.col("busy_ns") + pl.col("idle_ns")  # of an iteration: the next adjacent one's start
SHOWN = [name for name in ITERATIONS if name not in {"index", "start_ns", "end_ns"}]


def found_layers(
    findings: Sequence[Finding], loops: Sequence[Loop], timeline: Timeline | None, known: TraceAnnotation
) -> list[SliceLayer]:
    """Return what was found on one device, from top to bottom; `known` are the stages and layers of its trace."""
    trace = known.trace
    return [
        finding_layer(findings, loops, extent_of(trace)),
        _iteration_layer(loops),
        *([] if timeline is None else _box_layers(loops, timeline, known)),
        _nested_layer(loops, trace),
        _idle_layer(timeline),
    ]


def extent_of(trace: Trace) -> tuple[int, int]:
    """Return when the device events begin and end, or else the host's: findings without iterations cover that time."""
    events = trace.device_events if trace.device_events.height else trace.host_events
    times = events.select(begin=pl.col("start_ns").min(), end=pl.max_horizontal("start_ns", "end_ns").max())
    begin, end = times.row(0)
    return begin or 0, end or 0


def _iteration_layer(loops: Sequence[Loop]) -> SliceLayer:
    """Return the iterations of a device's loops, a track per loop; their arguments are the per-iteration table."""
    empty = pl.DataFrame(schema={**ITERATIONS, **PARTS})
    tables = [loop.table.select(pl.lit(i, pl.UInt32).alias("track"), *empty.columns) for i, loop in enumerate(loops)]
    rows = pl.concat([empty.select(pl.lit(0, pl.UInt32).alias("track"), pl.all()), *tables]).with_columns(end_ns=UNTIL)
    most = int(rows["index"].max() or 0) if rows.height else -1  # type: ignore[arg-type]
    labels = ["iterations" if len(loops) == 1 else f"iterations of {counted(loop.period, 'kernel')}" for loop in loops]
    names = pl.Series([f"iteration {i}" for i in range(most + 1)], dtype=pl.String)
    args = {name: number(name) for name in SHOWN}
    args |= {name: number(name, unless=0) for name in PARTS if name != "index"}
    return SliceLayer(
        labels, rows.with_columns(name_id=pl.col("index").cast(pl.UInt32)), names, pl.lit("iteration"), args
    )


def _nested_layer(loops: Sequence[Loop], trace: Trace) -> SliceLayer:
    """Return the loops inside of complete iterations: each whole, and in it one slice per repetition."""
    tables: list[pl.DataFrame] = [pl.DataFrame(schema=SLICES)]
    names: list[str] = []
    for loop in loops:
        placed = place_blocks(loop, trace)
        kinds = placed.select("block", "repeat").unique(maintain_order=True)
        numbered = placed.join(kinds.with_row_index("name_id", offset=len(names)), on=["block", "repeat"])
        tables.append(numbered.select(pl.lit(0, pl.UInt32).alias("track"), "start_ns", "end_ns", "name_id"))
        names += [_name_block(loop, block, repeat) for block, repeat in kinds.iter_rows()]
    return SliceLayer(["nested loops"], pl.concat(tables), pl.Series(names, dtype=pl.String), pl.lit("nested"))


def _box_layers(loops: Sequence[Loop], timeline: Timeline, known: TraceAnnotation) -> Iterator[SliceLayer]:
    """Yield the stages and the layers of all iterations of a device's loops, and the sections of the typical ones."""
    kinds = {"stage": "stages", "layer": "layers", "section": "sections of typical iterations"}
    tables = [pl.DataFrame(schema=BOXES)]
    for loop in loops:
        typical = box_typical(known, loop, timeline)
        tables.append(box_device(known, loop, cut_device(known.trace, loop, timeline)))
        tables.append(typical.filter(pl.col("side") == "device", pl.col("kind") == "section"))
    boxes = pl.concat(tables)
    for kind, label in kinds.items():
        rows = boxes.filter(pl.col("kind") == kind)
        ids, titles = number_distinct(rows.select("title"))
        columns = rows.select(pl.lit(0, pl.UInt32).alias("track"), "start_ns", "end_ns", "busy_ns", "events")
        slices = columns.with_columns(name_id=ids.cast(pl.UInt32))
        args = {name: number(name) for name in ("busy_ns", "events")}
        yield SliceLayer([label], slices, titles["title"], pl.lit(kind), args)


def _name_block(loop: Loop, block: int, repeat: int) -> str:
    found = loop.blocks[block]
    return f"{repeat} of {found.repeats}" if repeat else f"{found.repeats} times {counted(found.events, 'kernel')}"


def _idle_layer(timeline: Timeline | None) -> SliceLayer:
    """Return why a device is idle: a slice per maximal run of one cause."""
    names = pl.Series([part.removeprefix("idle_").removesuffix("_ns") for part in PART_NAMES])
    rows = pl.DataFrame(schema=SLICES) if timeline is None else _idle_runs(timeline)
    return SliceLayer(["idle causes"], rows, names, pl.lit("idle"))


def _idle_runs(timeline: Timeline) -> pl.DataFrame:
    starts, ends, parts = timeline.find_waits()
    columns = {"track": np.zeros(len(starts)), "start_ns": starts, "end_ns": ends, "name_id": parts}
    return pl.DataFrame(columns).cast(SLICES)


def finding_layer(findings: Sequence[Finding], loops: Sequence[Loop], extent: tuple[int, int]) -> SliceLayer:
    """Return findings over the iterations that they name; those that name none over all of `extent` (start, end)."""
    spans = [_span_of(finding, loops, extent) for finding in findings]
    columns: dict[str, Any] = {
        "track": [0] * len(spans),
        "start_ns": [start for start, _ in spans],
        "end_ns": [end for _, end in spans],
        "name_id": range(len(spans)),
    }
    facts = [msgspec.json.encode(_describe(finding)).decode() for finding in findings]
    rows = pl.DataFrame(columns, schema=SLICES).with_columns(finding=pl.Series(facts, dtype=pl.String))
    names = pl.Series([f"{finding.rule}: {finding.title}" for finding in findings], dtype=pl.String)
    return SliceLayer(["findings"], rows, names, pl.lit("finding"), {"finding": pl.col("finding")})


def _span_of(finding: Finding, loops: Sequence[Loop], extent: tuple[int, int]) -> tuple[int, int]:
    if finding.iterations is None:
        return extent
    first, last = finding.iterations
    for loop in loops:
        rows = loop.iterations.filter(pl.col("index").is_between(first, last))
        if rows.height and finding.stream in {None, loop.stream}:
            ends = rows.select(UNTIL.max()).item()
            return int(rows["start_ns"][0]), int(ends)
    return extent


def _describe(finding: Finding) -> dict[str, Any]:
    shown = ("severity", "summary", "advice", "confidence", "headroom_ns_per_iteration", "caused_by")
    facts = {key: getattr(finding, key) for key in shown} | {"evidence": dict(finding.evidence)}
    return {key: value for key, value in facts.items() if value is not None}
