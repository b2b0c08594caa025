"""The tables of an analysis: what their columns mean, and how they join with each other."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import polars as pl

from deepprof.collectors.table_schema import TableJoin, TableSchema
from deepprof.collectors.trace import DEVICE_EVENTS
from deepprof.metrics.annotation.anatomy_tables import LAYER_TIMES, STAGE_TIMES, STAGES_IN_LOOP
from deepprof.metrics.annotation.boxes import BOXES
from deepprof.metrics.annotation.stage_names import STAGE
from deepprof.metrics.breakdown.parts import PART_COLUMNS, PARTS
from deepprof.metrics.contexts.kernel_shapes import CONTEXT_SHAPES
from deepprof.metrics.contexts.measures import MEASURES
from deepprof.metrics.contexts.per_iteration import IN_ITERATIONS, IN_LOOPS
from deepprof.metrics.contexts.tree import CONTEXTS
from deepprof.metrics.iteration import ITERATIONS, LOOP_METRICS
from deepprof.metrics.kernels.computed_work import WORK
from deepprof.metrics.ranks.comparison import GROUP_ARRIVALS, GROUP_SKEWS, GROUP_WAITS
from deepprof.metrics.ranks.ranks_table import RANKS
from deepprof.metrics.sharing.losses import LOSSES
from deepprof.metrics.states import STATE_CHANGES, STATES
from deepprof.metrics.streams import STREAMS
from deepprof.metrics.top_tables import TOP_COPIES, TOP_KERNELS

I64, F64 = pl.Int64(), pl.Float64()

RANK = TableSchema.of("", {"rank": (I64, "the rank, 0 where the trace states none")})
DEVICE = TableSchema.of("", {"device": (pl.UInt16(), "the number of the device")})
LOOP = TableSchema.of("", {"loop": (I64, "the loop's number in `loops`, from 0; null where a device has none")})
STREAM = TableSchema.of("", {"stream": (I64, "the loop's main stream")})
PLACE = TableSchema.side_by_side("", (LOOP, RANK, DEVICE, STREAM))
METRICS = TableSchema.side_by_side(
    "Table III of the paper (Gu et al., section V) for one loop, over complete iterations after warm-up.",
    (
        PLACE,
        TableSchema.of(
            "",
            {
                "period": (I64, "kernels per iteration on the main stream"),
                "confidence": (F64, "the probability that period and first kernels are right"),
                **{
                    name: (F64 if name.endswith("_ratio") else I64, metric.meaning)
                    for name, metric in LOOP_METRICS.items()
                },
                "median_iteration_ns": (I64, "median time from start to start"),
                "warmup_excluded": (I64, "how many first iterations were left out"),
            },
        ),
    ),
)
BREAKDOWN = TableSchema.side_by_side(
    "Where the span of one device goes, from its first event to its last: every nanosecond in one column.",
    (RANK, DEVICE, TableSchema.of("", PART_COLUMNS)),
)
NAMED = TableSchema.of("", {"name": (pl.String(), "its name")})
ANNOTATED = TableSchema.of(
    "",
    {
        "stage": (STAGE, "the stage of the iteration that it is part of; null: unknown"),
        "layer": (pl.String(), "the path of the model's layer that it is part of; null: none is known"),
    },
)
EVENTS = TableSchema.side_by_side("One device event of any rank.", (DEVICE_EVENTS, NAMED, RANK, ANNOTATED))
IN_ITERATION = TableSchema.of(
    "",
    {
        "loop": (I64, "the loop of the iteration in which it starts; null outside"),
        "iteration": (I64, "the `index` of that iteration; null outside"),
    },
)
EVENTS_IN_ITERATIONS = TableSchema.side_by_side(
    "One device event of any rank, with the iteration in which it starts.", (EVENTS, IN_ITERATION)
)
PLACED_STREAMS = TableSchema.side_by_side(STREAMS.row, (RANK, STREAMS))
PLACED_ITERATIONS = TableSchema.side_by_side(ITERATIONS.row, (PLACE, ITERATIONS, PARTS))
PLACED_WORK = TableSchema.side_by_side(
    "What a device computes: the kernels of one category, precision and unit. `loop` is null for the whole recording.",
    (LOOP, RANK, DEVICE, WORK),
)
PLACED_KERNELS = TableSchema.side_by_side(TOP_KERNELS.row, (PLACE, TOP_KERNELS))
PLACED_COPIES = TableSchema.side_by_side(TOP_COPIES.row, (PLACE, TOP_COPIES))
PLACED_CONTEXTS = TableSchema.side_by_side(
    "One calling context of a rank, and what it took with all within; `own_…` is what it took itself.",
    (RANK, CONTEXTS, MEASURES),
)
PLACED_STAGES = TableSchema.side_by_side(STAGES_IN_LOOP.row, (PLACE, STAGES_IN_LOOP))
PLACED_STAGE_TIMES = TableSchema.side_by_side(STAGE_TIMES.row, (LOOP, RANK, STAGE_TIMES))
PLACED_STATES = TableSchema.side_by_side(STATES.row, (PLACE, STATES))
PLACED_STATE_CHANGES = TableSchema.side_by_side(STATE_CHANGES.row, (LOOP, RANK, STATE_CHANGES))
PLACED_LAYERS = TableSchema.side_by_side(LAYER_TIMES.row, (PLACE, LAYER_TIMES))
PLACED_BOXES = TableSchema.side_by_side(BOXES.row, (LOOP, RANK, BOXES))
CONTEXTS_IN_LOOPS = TableSchema.side_by_side(IN_LOOPS.row, (LOOP, RANK, IN_LOOPS))
PLACED_SHAPES = TableSchema.side_by_side(CONTEXT_SHAPES.row, (RANK, CONTEXT_SHAPES))
CONTEXTS_IN_ITERATIONS = TableSchema.side_by_side(IN_ITERATIONS.row, (LOOP, RANK, IN_ITERATIONS))

ANALYSIS_TABLES: Mapping[str, TableSchema] = MappingProxyType(
    {
        "iterations": PLACED_ITERATIONS,
        "metrics": METRICS,
        "kernels": PLACED_KERNELS,
        "copies": PLACED_COPIES,
        "breakdown": BREAKDOWN,
        "work": PLACED_WORK,
        "states": PLACED_STATES,
        "state_changes": PLACED_STATE_CHANGES,
        "streams": PLACED_STREAMS,
        "events": EVENTS,
        "events_in_iterations": EVENTS_IN_ITERATIONS,
        "stages": PLACED_STAGES,
        "stages_in_iterations": PLACED_STAGE_TIMES,
        "layers": PLACED_LAYERS,
        "annotations": PLACED_BOXES,
        "contexts": PLACED_CONTEXTS,
        "contexts_in_iterations": CONTEXTS_IN_ITERATIONS,
        "contexts_in_loops": CONTEXTS_IN_LOOPS,
        "context_shapes": PLACED_SHAPES,
    }
)
# Tables inside what an analysis holds for several ranks, or for several processes on one device.
INNER_TABLES: Mapping[str, TableSchema] = MappingProxyType(
    {
        "ranks.ranks": RANKS,
        "ranks.skews": GROUP_SKEWS,
        "ranks.groups[0].waits": GROUP_WAITS,
        "ranks.groups[0].arrivals": GROUP_ARRIVALS,
        "sharing[0].processes[0].losses": LOSSES,
    }
)
ON_DEVICE = (("rank", "rank"), ("device", "device"))
ON_STREAM = (*ON_DEVICE, ("stream", "stream"))
ON_LOOP = (("loop", "loop"),)
ON_ITERATION = (*ON_LOOP, ("iteration", "index"))
ON_CONTEXT = (("rank", "rank"), ("context", "context"))
LATEST = (("latest_rank", "rank"), ("latest_device", "device"))
ANALYSIS_JOINS = (
    TableJoin("events_in_iterations", "iterations", ON_ITERATION, "the iteration in which each event starts"),
    TableJoin("states", "metrics", ON_LOOP, "the figures of the loop"),
    TableJoin("state_changes", "states", (*ON_LOOP, ("source", "state")), "the state that ends"),
    TableJoin("state_changes", "states", (*ON_LOOP, ("target", "state")), "the state that follows"),
    TableJoin("stages", "metrics", ON_LOOP, "the figures of the loop"),
    TableJoin("stages_in_iterations", "iterations", ON_ITERATION, "the iteration"),
    TableJoin("stages_in_iterations", "stages", (*ON_LOOP, ("stage", "stage")), "the stage in all usual iterations"),
    TableJoin("layers", "metrics", ON_LOOP, "the figures of the loop"),
    TableJoin("annotations", "metrics", ON_LOOP, "the figures of the loop"),
    TableJoin("contexts_in_iterations", "contexts", ON_CONTEXT, "the context"),
    TableJoin("contexts_in_loops", "contexts", ON_CONTEXT, "the context"),
    TableJoin("contexts_in_loops", "metrics", ON_LOOP, "the figures of the loop"),
    TableJoin("contexts_in_iterations", "iterations", ON_ITERATION, "the iteration"),
    TableJoin("context_shapes", "contexts", ON_CONTEXT, "the context"),
    TableJoin("events", "streams", ON_STREAM, "the role of the stream"),
    TableJoin("events", "breakdown", ON_DEVICE, "where the time of its device goes"),
    TableJoin("iterations", "metrics", ON_LOOP, "the figures of the loop"),
    TableJoin("iterations", "streams", ON_STREAM, "the main stream"),
    TableJoin("kernels", "metrics", ON_LOOP, "the figures of the loop"),
    TableJoin("work", "metrics", ON_LOOP, "the figures of the loop"),
    TableJoin("work", "breakdown", ON_DEVICE, "where the time of the device goes"),
    TableJoin("copies", "metrics", ON_LOOP, "the figures of the loop"),
    TableJoin("metrics", "breakdown", ON_DEVICE, "where the time of the device goes"),
    TableJoin("streams", "breakdown", ON_DEVICE, "where the time of the device goes"),
    TableJoin("iterations", "ranks.ranks", ON_DEVICE, "the rank beside the others"),
    TableJoin("iterations", "ranks.groups[0].waits", (*ON_DEVICE, ("index", "index")), "waits for other ranks"),
    TableJoin("ranks.skews", "ranks.ranks", LATEST, "the rank that is usually last"),
)
