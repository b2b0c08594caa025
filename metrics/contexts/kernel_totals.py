"""What each kernel and copy of a trace took, by name, and from where it was launched most (PASTA's knobs)."""

from __future__ import annotations

from typing import Literal

import numpy as np
import polars as pl
from msgspec import Struct

from deepprof.collectors.table_schema import TableSchema
from deepprof.collectors.trace import WORK_ACTIVITIES, Trace
from deepprof.metrics.contexts.frames import FRAMES
from deepprof.metrics.contexts.tree import ContextTree
from deepprof.metrics.cost.trace_costs import find_costs

I64, F64 = pl.Int64(), pl.Float64()

Amount = Literal["calls", "device_ns", "nbytes"]
KERNEL_TOTALS = TableSchema.of(
    "What all calls of one kernel, copy or memset took.",
    {
        "name_id": (pl.UInt32(), "its name"),
        "activity": (pl.String(), "what it is: kernel, graph, memcpy or memset"),
        "calls": (I64, "how often it ran"),
        "device_ns": (I64, "the lengths of its calls, added up"),
        "mean_ns": (F64, "their mean"),
        "min_ns": (I64, "the shortest"),
        "max_ns": (I64, "the longest"),
        "nbytes": (
            F64,
            "bytes that were copied or set, or that its operators must move by their shapes; null: of none known",
        ),
        "grid": (F64, "blocks in all, the mean of its calls; null: not recorded, as in what follows"),
        "block": (F64, "threads per block, the mean"),
        "registers": (F64, "registers per thread, the mean"),
        "shared_nbytes": (F64, "shared memory per block, the mean"),
    },
)
NUMBERS = tuple(name for name in KERNEL_TOTALS if name not in {"name_id", "activity"})
SHAPES = ("grid", "block", "registers", "shared_nbytes")


class _LaunchPlace(Struct, frozen=True, eq=False):
    """The context from which a kernel was launched most: its frames, from the outermost on, with the schema `FRAMES`.

    `calls` and `device_ns` are of those launched there; `places` is the number of contexts that launched it.
    """

    frames: pl.DataFrame
    calls: int
    device_ns: int
    places: int


def list_calls(trace: Trace, tree: ContextTree) -> pl.DataFrame:
    """Return a row per kernel, copy and memset with `name_id`, `activity`, `context`, `ns`, `nbytes` and its shape.

    The bytes that a call of an operator must move are those of its longest kernel, where the trace was read with
    `details` and the shapes are recorded.
    """
    costs = find_costs(trace)
    of_calls = costs.calls["nbytes"].cast(F64)
    rows = trace.device_events.with_row_index("event").with_columns(
        context=pl.Series(tree.of_events, dtype=I64),
        call=pl.Series(np.where(costs.of_events < 0, -1, costs.of_events), dtype=I64),
        ns=pl.col("end_ns") - pl.col("start_ns"),
    )
    longest = rows.filter(pl.col("call") >= 0).sort("ns", "event", descending=[True, False])
    longest = longest.unique("call", keep="first", maintain_order=True)
    moved = longest.select("event", moved=of_calls.gather(longest["call"]))
    shapes = trace.launch_shapes.unique("event", keep="first").select("event", *SHAPES)
    placed = rows.filter(pl.col("activity").is_in(WORK_ACTIVITIES))
    for table in (moved, shapes):
        placed = placed.join(table, on="event", how="left", maintain_order="left")
    activity, nbytes = pl.col("activity").cast(pl.String), pl.coalesce(pl.col("nbytes").cast(F64), "moved")
    return placed.select("name_id", "context", "ns", *SHAPES, activity=activity, nbytes=nbytes)


def total_calls(calls: pl.DataFrame) -> pl.DataFrame:
    """Return what `list_calls` returns by name, with the schema `KERNEL_TOTALS`: most time first."""
    ns, known = pl.col("ns"), pl.col("nbytes").is_not_null().any()
    found = calls.group_by("name_id", "activity", maintain_order=True).agg(
        calls=pl.len(),
        device_ns=ns.sum(),
        mean_ns=ns.mean(),
        min_ns=ns.min(),
        max_ns=ns.max(),
        nbytes=pl.when(known).then(pl.col("nbytes").sum()),
        **{name: pl.col(name).cast(F64).mean() for name in SHAPES},
    )
    ordered = found.sort("device_ns", "name_id", descending=[True, False])
    return ordered.select(list(KERNEL_TOTALS)).cast(dict(KERNEL_TOTALS))  # type: ignore[arg-type]


def find_place_of(calls: pl.DataFrame, tree: ContextTree, kernel: tuple[int, str], by: Amount) -> _LaunchPlace:
    """Return from where the kernel of a name and an activity was launched most, by number, time or bytes.

    A place that is unknown counts only where no other is.
    """
    own = calls.filter(name_id=kernel[0], activity=kernel[1])
    places = own.group_by("context").agg(calls=pl.len(), device_ns=pl.col("ns").sum(), nbytes=pl.col("nbytes").sum())
    around = tree.contexts["parent"].gather(places["context"]).fill_null(0)
    known = places.filter(tree.contexts["kind"].gather(around) != "unattributed")
    best = (places if known.is_empty() else known).sort(by, "calls", "context", descending=[True, True, False])
    context, number, device_ns = best.select("context", "calls", "device_ns").row(0)
    return _LaunchPlace(walk_up(tree.contexts, context), number, device_ns, best.height)


def walk_up(contexts: pl.DataFrame, context: int) -> pl.DataFrame:
    """Return the frames of a context and of those around it, the outermost first; that of all is left out."""
    rows, parents = [], contexts["parent"]
    while context:
        rows.append(context)
        context = int(parents[context])
    return contexts.select(list(FRAMES))[rows[::-1]]
