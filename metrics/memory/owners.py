"""For whom each block of memory was allocated: stage, layer, operator and line of code, by what was open on its thread.

What a backward operator allocates belongs to its forward operator, below which it is in the tree of contexts. Where
the recorder wrote the call stack of an allocation, the line is that of the stack.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.table_schema import TableSchema
from deepprof.metrics.annotation.host_stages import StageSegments
from deepprof.metrics.annotation.stage_names import STAGE, STAGES
from deepprof.metrics.annotation.trace_annotation import TraceAnnotation
from deepprof.metrics.contexts.code_lines import find_lines, is_internal
from deepprof.metrics.contexts.frames import PYTHON
from deepprof.metrics.contexts.paths import list_levels, read_places
from deepprof.metrics.contexts.slices import find_open
from deepprof.metrics.contexts.tree import ContextTree

Int64s = npt.NDArray[np.int64]

TEXT = pl.String()
OWNERS = TableSchema.of(
    "For whom a block was allocated; null where the recording does not say.",
    {
        "stage": (STAGE, "the stage of its allocation"),
        "released_in": (STAGE, "the stage of its release"),
        "layer": (TEXT, "the path of the model's layer"),
        "operator": (TEXT, "the outermost operator; of a backward pass its forward one"),
        "function": (TEXT, "the innermost function of the user's or a library's code"),
        "file": (TEXT, "the file of the function"),
        "line": (pl.UInt32(), "the line on which it begins, or, of a call stack, that it was at"),
    },
)
LINE = ("function", "file", "line")


def find_owners(known: TraceAnnotation, blocks: pl.DataFrame, host: StageSegments | None = None) -> pl.DataFrame:
    """Return the owner (`OWNERS`) of every row of a table `BLOCKS` of the trace.

    `host` are the stages of the host over time: of what happens outside of all that has a stage.
    """
    return _with_stacks(known, blocks, _find_open_owners(known, blocks, host))


def _find_open_owners(known: TraceAnnotation, blocks: pl.DataFrame, host: StageSegments | None) -> pl.DataFrame:
    tree = known.tree
    if tree is None:
        return pl.DataFrame(schema=OWNERS).clear(blocks.height)
    row, released = (_find_slices(known, tree, blocks[column]) for column in ("allocation", "release"))
    places = np.where(row < 0, tree.contexts.height, np.append(tree.of_slices, 0)[row])
    return (
        name_contexts(tree)[places]
        .with_columns(
            stage=_stages_of(known, row, blocks["begin_ns"], host),
            released_in=_stages_of(known, released, blocks["end_ns"], host),
            layer=_layers_of(known, row),
        )
        .select(list(OWNERS))
    )


def _find_slices(known: TraceAnnotation, tree: ContextTree, events: pl.Series) -> Int64s:
    """Return the innermost slice that was open at every memory event, by its row; -1 for none, and for null."""
    found = np.full(len(events), -1, np.int64)
    rows = known.trace.memory_events.select("process", "thread", "time_ns")[events.drop_nulls()]
    found[events.is_not_null().to_numpy()] = find_open(tree.slices, rows)
    return found


def _stages_of(known: TraceAnnotation, rows: Int64s, times: pl.Series, host: StageSegments | None) -> pl.Series:
    """Return the stage of every slice, else of the host at each of `times`; null where none is available."""
    slices = known.stages.of_slices
    stage = np.full(len(rows), -1) if slices is None else np.append(slices.stage, -1)[rows]
    if host is not None:
        at = np.searchsorted(host.bounds, times.fill_null(host.bounds[0] - 1).to_numpy(), side="right") - 1
        inside = (at >= 0) & (at < len(host.stage))
        stage = np.where((stage < 0) & inside, np.append(host.stage, -1)[np.where(inside, at, -1)], stage)
    return pl.Series([*STAGES, None], dtype=STAGE).gather(np.where(stage < 0, len(STAGES), stage))


def _layers_of(known: TraceAnnotation, rows: Int64s) -> pl.Series:
    """Return the path of the layer of every slice, null where none is available."""
    layers = known.layers
    if layers is None or not len(layers.of_slices):
        return pl.Series([None], dtype=TEXT).new_from_index(0, len(rows))
    return pl.Series([None, *layers.write_paths()[1:]], dtype=TEXT).gather(np.append(layers.of_slices, 0)[rows])


def name_contexts(tree: ContextTree) -> pl.DataFrame:
    """Return the outermost operator and the line of every context, and a last row of nulls for none."""
    contexts, lines, outer = tree.contexts, find_lines(tree.contexts), _find_outermost(tree)
    frames = pl.concat([contexts.select("name", "file", "line"), pl.DataFrame(schema=_FRAME).clear(1)])
    at = pl.Series(np.append(lines, -1)).replace(-1, contexts.height).cast(pl.UInt32)
    of = pl.Series(np.append(outer, -1)).replace(-1, contexts.height).cast(pl.UInt32)
    return frames[at].rename({"name": "function"}).with_columns(operator=frames["name"].gather(of))


_FRAME = {"name": TEXT, "file": TEXT, "line": pl.UInt32()}


def _find_outermost(tree: ContextTree) -> Int64s:
    """Return for every context the outermost operator that it is or is in, -1 for none."""
    parent, depth = read_places(tree.contexts)
    operator = (tree.contexts["kind"] == "operator").to_numpy()
    outer = np.where(operator, np.arange(len(parent)), -1)
    for rows in list_levels(depth)[1:]:
        around = outer[parent[rows]]
        outer[rows] = np.where(around >= 0, around, outer[rows])
    return outer


def _with_stacks(known: TraceAnnotation, blocks: pl.DataFrame, owners: pl.DataFrame) -> pl.DataFrame:
    """Return the owners, those whose allocation has a call stack with the line of that."""
    stacks = known.trace.allocations.select(allocation="event", stack_id="stack_id").drop_nulls()
    if stacks.is_empty() or blocks.is_empty():
        return owners
    lines = stacks.join(name_stacks(known.trace.stacks), on="stack_id").drop("stack_id")
    found = blocks.select("allocation").join(lines, on="allocation", how="left", maintain_order="left")
    own = found["file"].is_not_null()
    return owners.with_columns(pl.Series(found[name].zip_with(own, owners[name])).alias(name) for name in LINE)


def name_stacks(stacks: pl.DataFrame) -> pl.DataFrame:
    """Return `stack_id` and the line of every row of a table `STACKS` that has one: its innermost Python frame.

    Frames of the framework and of Python's own library count only where there are no others.
    """
    frames = stacks.select("stack_id", frame=pl.col("frames").str.split(";")).explode("frame")
    python = frames.select(
        "stack_id",
        function=pl.col("frame").str.extract(PYTHON, 3),
        file=pl.col("frame").str.extract(PYTHON, 1),
        line=pl.col("frame").str.extract(PYTHON, 2).cast(pl.UInt32, strict=False),
    ).drop_nulls()
    ordered = pl.concat([python.filter(~is_internal()), python])
    return ordered.unique("stack_id", keep="first", maintain_order=True)
