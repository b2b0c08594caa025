"""Which operators hold the memory that is in use at its peak, and in pieces of which size.

Where no operator was recorded, as in a snapshot, it is the call stacks that hold it, with the pieces of every together.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from deepprof.collectors.table_schema import TableSchema
from deepprof.collectors.trace import Trace
from deepprof.metrics.contexts.frames import FRAMES, read_frames
from deepprof.metrics.contexts.kernel_totals import walk_up
from deepprof.metrics.contexts.paths import find_nearest, measure_depths
from deepprof.metrics.contexts.slices import find_open
from deepprof.metrics.contexts.stacks import kinds_of
from deepprof.metrics.contexts.tree import ContextTree
from deepprof.metrics.memory.block_lifetimes import find_alive, pair_blocks
from deepprof.metrics.memory.owners import name_stacks
from deepprof.metrics.memory.use import read_use

I64 = pl.Int64()

HELD = TableSchema.of(
    "The allocations of one operator and one size, or of one call stack, that are in use when most memory is.",
    {
        "operator": (pl.String(), "the innermost operator that was open; null: none was recorded"),
        "line": (
            pl.String(),
            "without an operator the line of the call stack, `file(line): function`; null: not known",
        ),
        "piece_nbytes": (I64, "the size of each; null: they differ"),
        "calls": (I64, "how many there are"),
        "nbytes": (I64, "their sizes, added up"),
        "event": (pl.UInt32(), "the row of `memory_events` of the first of them"),
    },
)


class _PeakMemory(Struct, frozen=True, eq=False):
    """The peak of the memory in use on one device: `held` has the schema `HELD`, those with most memory first.

    `in_use_nbytes` is in use at the peak; None where the recorder wrote no totals. `known_nbytes` of it were allocated
    in the recording.
    """

    device: int
    time_ns: int
    in_use_nbytes: int | None
    known_nbytes: int
    held: pl.DataFrame


def find_peak(trace: Trace, tree: ContextTree) -> _PeakMemory | None:
    """Return what is in use at the peak of the device with the highest one; None where nothing was recorded."""
    events = trace.memory_events
    numbers = events["device"].drop_nulls().unique().sort().to_list()
    uses = [(device, use) for device in numbers if (use := read_use(events, device)) is not None]
    if not uses:
        return None
    device, use = max(uses, key=lambda each: int(each[1].allocated_nbytes.max()))
    time_ns, in_use = int(use.time_ns[use.peak]), int(use.allocated_nbytes[use.peak])
    alive = pair_blocks(events, device).table.filter(find_alive(int(use.rows[use.peak]), time_ns))
    live = events.with_row_index("event")[alive["allocation"].drop_nulls()]
    held = _group(live, trace, tree)
    return _PeakMemory(device, time_ns, in_use if use.absolute else None, int(live["nbytes"].sum()), held)


def _group(live: pl.DataFrame, trace: Trace, tree: ContextTree) -> pl.DataFrame:
    """Return live allocations by operator and size, else by call stack or size, with the schema `HELD`."""
    operator = (tree.slices.rows["kind"] == "operator").to_numpy()
    around = np.maximum(tree.slices.parent, 0)
    nearest = find_nearest(operator, around, measure_depths(tree.slices.parent))
    row = np.append(nearest, -1)[find_open(tree.slices, live)] if live.height else np.empty(0, np.int64)
    name_ids = tree.slices.rows["name_id"].gather(pl.Series(row, dtype=I64).replace(-1, None))
    named = live.with_columns(operator=trace.names.gather(name_ids), piece_nbytes="nbytes")
    return _add_up(named.join(trace.allocations, on="event", how="left", maintain_order="left"), trace.stacks)


def _add_up(named: pl.DataFrame, stacks: pl.DataFrame) -> pl.DataFrame:
    """Return the sums of allocations with `operator`, `piece_nbytes` and `stack_id`; the schema is `HELD`."""
    by_stack = pl.col("operator").is_null() & pl.col("stack_id").is_not_null()
    stack, size = pl.when(by_stack).then("stack_id"), pl.when(~by_stack).then("piece_nbytes")
    held = named.group_by("operator", stack, size=size, maintain_order=True).agg(
        pl.col("nbytes").sum(),
        pl.col("event").first(),
        pl.when(pl.col("piece_nbytes").n_unique() == 1).then(pl.col("piece_nbytes").first()),
        calls=pl.len(),
    )
    lines = name_stacks(stacks).select("stack_id", line=pl.format("{}({}): {}", "file", "line", "function"))
    ordered = held.join(lines, on="stack_id", how="left").sort("nbytes", "event", descending=[True, False])
    return ordered.select(list(HELD)).cast(dict(HELD))  # type: ignore[arg-type]


def find_allocation(trace: Trace, tree: ContextTree, event: int) -> pl.DataFrame:
    """Return the frames of one memory event, the outermost first: the host's, else the stack that the allocator has."""
    row = int(find_open(tree.slices, trace.memory_events[event])[0])
    stack = trace.allocations.filter(event=event).join(trace.stacks, on="stack_id")["frames"]
    if row >= 0 or stack.is_empty():
        return walk_up(tree.contexts, int(tree.of_slices[row]) if row >= 0 else 0)
    texts = stack.head(1).str.split(";").explode().reverse()
    rows = pl.DataFrame({"kind": kinds_of(texts), "name": texts}).filter(pl.col("name") != "")
    return read_frames(rows).select(list(FRAMES))
