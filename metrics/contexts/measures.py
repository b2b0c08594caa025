"""What each context took: its own, and with all that it called; exact sums of integers, from the leaves to the root."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.table_schema import TableSchema
from deepprof.collectors.trace import WORK_ACTIVITIES, Trace
from deepprof.metrics.breakdown.gaps import end_gaps
from deepprof.metrics.breakdown.parts import IDLE_PARTS, PART_NAMES
from deepprof.metrics.breakdown.timeline import Timeline
from deepprof.metrics.contexts.paths import add_up
from deepprof.metrics.contexts.slices import find_open
from deepprof.metrics.contexts.tree import ContextTree
from deepprof.metrics.host import WAITS
from deepprof.metrics.names import are_named

Int64s = npt.NDArray[np.int64]

COPIES = ("memcpy", "memset")
LARGEST_NBYTES = 1 << 50  # of one copy or allocation: sums of larger ones, which no machine has, would overflow
MEANINGS = {
    "device_ns": "time of the kernels, copies, memsets and graphs that it launched, added up",
    "device_wait_ns": "time of the waits that it put on streams",
    "kernels": "kernels and graphs that it launched",
    "copies": "copies and memsets that it launched",
    "copied_nbytes": "their sizes, where recorded",
    "launches": "calls that launched something",
    "host_ns": "time on threads of the host",
    "waiting_ns": "of that, waits for the device",
    "allocated_nbytes": "memory that it allocated, where recorded",
}
IDLE_MEANING = "idle time of devices that ended with its launches: this part (`metrics.breakdown.parts`)"
MEASURES = TableSchema.of(
    "What one context took with all that it called; `own_…` is what it took itself.",
    {
        f"{prefix}{name}": (pl.Int64(), f"{meaning}{whose}")
        for prefix, whose in (("", ", with all within"), ("own_", ", itself"))
        for name, meaning in (MEANINGS | dict.fromkeys(IDLE_PARTS, IDLE_MEANING)).items()
    },
)
COLUMNS = (*MEANINGS, *IDLE_PARTS)


def measure_contexts(trace: Trace, tree: ContextTree, timelines: Iterable[Timeline] = ()) -> pl.DataFrame:
    """Return what each context needed, with the schema `MEASURES` and a row per context.

    `timelines` are those of the trace's devices; without them no idle time is attributed.
    """
    own = np.zeros((tree.contexts.height, len(COLUMNS)), np.int64)
    for taken in list_amounts(trace, tree, timelines):
        np.add.at(own[:, COLUMNS.index(taken.column)], taken.context, taken.amount)
    whole = add_up(own, tree.parent, tree.depth)
    return pl.DataFrame(np.hstack([whole, own]), schema=list(MEASURES)).cast(dict(MEASURES))  # type: ignore[arg-type]


class Amounts(Struct, frozen=True, eq=False):
    """What contexts needed, by one of `COLUMNS`: the context, how much, and when it began, a row each time."""

    column: str
    context: Int64s
    amount: Int64s
    time_ns: Int64s


def list_amounts(
    trace: Trace, tree: ContextTree, timelines: Iterable[Timeline], device: int | None = None
) -> Iterator[Amounts]:
    """Yield all that contexts took themselves; with `device`, on devices only what that one did."""
    yield from _of_events(trace, tree, device)
    yield from _of_slices(trace, tree)
    yield _of_allocations(trace, tree)
    for timeline in timelines:
        if device in (None, timeline.device):
            yield from _of_gaps(trace, tree, timeline)


def _of_events(trace: Trace, tree: ContextTree, device: int | None) -> Iterator[Amounts]:
    events = trace.device_events.with_columns(context=pl.Series(tree.of_events, dtype=pl.Int64))
    events = events if device is None else events.filter(pl.col("device") == device)
    length, one, nbytes = pl.col("end_ns") - pl.col("start_ns"), pl.lit(1, pl.Int64), _at_most("nbytes")
    for column, activities, amount in (
        ("device_ns", WORK_ACTIVITIES, length),
        ("device_wait_ns", ("sync",), length),
        ("kernels", ("kernel", "graph"), one),
        ("copies", COPIES, one),
        ("copied_nbytes", COPIES, nbytes),
    ):
        rows = events.filter(pl.col("activity").is_in(activities)).select("context", "start_ns", amount=amount)
        yield Amounts(column, *(rows[name].to_numpy() for name in ("context", "amount", "start_ns")))


def _at_most(column: str) -> pl.Expr:
    """Return sizes that can be added up; what is not recorded counts nothing."""
    return pl.col(column).fill_null(0).clip(upper_bound=LARGEST_NBYTES).cast(pl.Int64)


def _of_slices(trace: Trace, tree: ContextTree) -> Iterator[Amounts]:
    """Yield what the host did: its time without that of what is within, and its calls."""
    slices = tree.slices
    length, inner = slices.end - slices.start, slices.parent >= 0
    own = length.copy()
    np.subtract.at(own, slices.parent[inner], length[inner])
    call = (slices.rows["kind"] == "runtime").to_numpy()
    waits = call & are_named(trace.names, slices.rows["name_id"], WAITS)
    launching = np.zeros(len(own), np.bool_)
    launching[tree.sites.row[tree.sites.row >= 0]] = True
    for column, rows, amount in (
        ("host_ns", own > 0, own),
        ("waiting_ns", waits, own),
        ("launches", launching & call, np.ones(len(own), np.int64)),
    ):
        yield Amounts(column, tree.of_slices[rows], amount[rows], slices.start[rows])


def _of_allocations(trace: Trace, tree: ContextTree) -> Amounts:
    """Return what was allocated; what no slice was open for is the root's."""
    taken = trace.memory_events.filter(pl.col("nbytes") > 0).with_columns(size=_at_most("nbytes"))
    moments = taken.select("process", "thread", "time_ns")
    row = find_open(tree.slices, moments) if taken.height else np.empty(0, np.int64)
    context = np.append(tree.of_slices, 0)[row]  # -1 is the last
    return Amounts("allocated_nbytes", context, taken["size"].to_numpy(), taken["time_ns"].to_numpy())


def _of_gaps(trace: Trace, tree: ContextTree, timeline: Timeline) -> Iterator[Amounts]:
    """Yield the idle time of a device, for the event that ended it."""
    mine = (pl.col("device") == timeline.device) & pl.col("activity").is_in(WORK_ACTIVITIES)
    work = trace.device_events.with_row_index("event").filter(mine)
    start = work["start_ns"].to_numpy()
    _, ends = end_gaps(start, work["end_ns"].to_numpy())
    begun, length = timeline.bounds[:-1], np.diff(timeline.bounds)
    after = np.searchsorted(start[ends], begun, side="right")
    events = np.append(work["event"].to_numpy()[ends], 0)[after]
    for part in IDLE_PARTS:
        rows = (timeline.parts == PART_NAMES.index(part)) & (after < len(ends))
        yield Amounts(part, tree.of_events[events[rows]], length[rows], begun[rows])
