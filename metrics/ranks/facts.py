"""The facts of one rank: all that a comparison of ranks needs from a trace, small enough to be sent.

A place is one device of a rank. Of its computing time only that inside its collectives is kept: elsewhere a rank cannot
wait for another one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b

import polars as pl
from msgspec import Struct, field

from deepprof.collectors.table_schema import TableSchema
from deepprof.collectors.trace import Trace, empty_table
from deepprof.metrics.kernels.classify import classify_names
from deepprof.metrics.loop import Loop
from deepprof.metrics.names import with_names
from deepprof.metrics.ranks.collectives import Passes, collective_names, read_passes
from deepprof.metrics.spans import NOTHING, Spans, covered, intersect, union
from deepprof.metrics.streams import is_collective

KERNEL_TIMES = pl.Schema({"name": pl.String(), "count": pl.UInt32(), "mean_ns": pl.Float64()})

MOST_KINDS = 100  # rows that a rank sends; what is beyond them uses hardly any time
KERNEL_CALLS = TableSchema.of(
    "The calls of one kernel in one launch shape, in the usual iterations; what takes most time first.",
    {
        "kernel": (pl.UInt64(), "a hash of the name, the same on every rank"),
        "grid": (pl.UInt64(), "blocks in all; null: not recorded"),
        "block": (pl.UInt32(), "threads per block; null: not recorded"),
        "count": (pl.UInt32(), "how many calls"),
        "median_ns": (pl.Float64(), "their median length"),
    },
)


class PlaceFacts(Struct, frozen=True, eq=False):
    """The longest loop of a rank's device: its collectives, when it computes during them, and its kernels' times.

    `kernels` has the schema `KERNEL_TIMES`. Without collectives no waiting can be compared, and these are empty.
    `calls` has the schema `KERNEL_CALLS`, with no rows on a device that other ranks use: they make its kernels slower.
    """

    passes: Passes
    computing: Spans
    kernels: pl.DataFrame
    calls: pl.DataFrame = field(default_factory=lambda: empty_table(KERNEL_CALLS))


class RankFacts(Struct, frozen=True):
    """One rank: the job's number of ranks by its trace, its first device (None without any), its places by device."""

    rank: int
    world_size: int | None
    device: int | None
    places: Mapping[int, PlaceFacts]


def gather_facts(loops: Iterable[Loop], trace: Trace, shared: Collection[int] = ()) -> RankFacts:
    """Return the facts of the rank of `trace`; `loops` may be those of the whole job.

    `shared` are the devices that other ranks use, too.
    """
    number = trace.rank or 0
    chosen = longest_loops(loop for loop in loops if loop.rank == number)
    device = trace.device_events["device"].min()
    return RankFacts(
        number,
        trace.world_size,
        None if device is None else int(str(device)),
        {place: _describe_place(loop, trace, shared=place in shared) for (_, place), loop in chosen.items()},
    )


def longest_loops(loops: Iterable[Loop]) -> dict[tuple[int, int], Loop]:
    """Return the loop of every rank and device in which it spends most time."""
    chosen: dict[tuple[int, int], Loop] = {}
    for loop in sorted(loops, key=lambda each: int(each.iterations["operation_ns"].sum()), reverse=True):
        chosen.setdefault((loop.rank, loop.device), loop)
    return dict(sorted(chosen.items()))


def _describe_place(loop: Loop, trace: Trace, *, shared: bool) -> PlaceFacts:
    """Return the facts of the place of `loop`."""
    passes = read_passes(loop, trace)
    calls = empty_table(KERNEL_CALLS) if shared else list_calls(loop, trace)
    if not passes.names:
        return PlaceFacts(passes, NOTHING, pl.DataFrame(schema=KERNEL_TIMES), calls)
    return PlaceFacts(passes, computing_spans(trace, loop.device, passes), mean_times(loop, trace), calls)


def computing_spans(trace: Trace, device: int, passes: Passes) -> Spans:
    """Return when kernels that are no collectives run on a device while it is in a collective of `passes`."""
    collective = (pl.col("activity") == "kernel") & pl.col("name_id").is_in(collective_names(trace).implode())
    working = (pl.col("device") == device) & pl.col("activity").is_in(["kernel", "graph"])
    computing, waiting = trace.device_events.filter(working & ~collective), passes.rows
    return intersect(*(union(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()) for rows in (computing, waiting)))


def mean_times(loop: Loop, trace: Trace) -> pl.DataFrame:
    """Return name, count and `mean_ns` of the kernels within a loop's usual iterations; collectives are left out."""
    rows = loop.usual
    since, until = rows["start_ns"].min(), rows["end_ns"].max()
    events = trace.device_events.filter((pl.col("device") == loop.device) & pl.col("start_ns").is_between(since, until))
    named = with_names(events, trace.names).filter((pl.col("activity") == "kernel") & ~is_collective())
    times = named.group_by("name").agg(count=pl.len(), mean_ns=(pl.col("end_ns") - pl.col("start_ns")).mean())
    return times.sort("name").cast(dict(KERNEL_TIMES))  # type: ignore[arg-type]


def places_of(ranks: Sequence[RankFacts]) -> dict[tuple[int, int], PlaceFacts]:
    """Return the places of all ranks."""
    return {(facts.rank, device): place for facts in ranks for device, place in facts.places.items()}


def list_calls(loop: Loop, trace: Trace) -> pl.DataFrame:
    """Return the kernels of a loop with most time as a table `KERNEL_CALLS`; none without launch shapes."""
    if trace.launch_shapes.is_empty() or loop.usual.is_empty():
        return empty_table(KERNEL_CALLS)
    shapes = trace.launch_shapes.select("event", "grid", "block")
    shaped = _list_kernels(loop, trace).join(shapes, on="event", how="left", maintain_order="left")
    length = (pl.col("end_ns") - pl.col("start_ns")).alias("ns")
    kinds = shaped.select("name_id", "grid", "block", length).group_by("name_id", "grid", "block")
    sums = kinds.agg(count=pl.len(), median_ns=pl.col("ns").median(), whole_ns=pl.col("ns").sum())
    order = ["whole_ns", "name_id", "grid", "block"]
    largest = sums.sort(order, descending=[True, False, False, False]).head(MOST_KINDS)
    return _hash_names(largest, trace.names).select(KERNEL_CALLS.names()).cast(dict(KERNEL_CALLS))  # type: ignore[arg-type]


def _list_kernels(loop: Loop, trace: Trace) -> pl.DataFrame:
    """Return the kernels within a loop's usual iterations that run while no collective of the device does."""
    rows = loop.usual
    since, until = rows["start_ns"].min(), rows["end_ns"].max()
    on_device = (pl.col("device") == loop.device) & (pl.col("activity") == "kernel")
    kernels = trace.device_events.with_row_index("event").filter(
        on_device & pl.col("start_ns").is_between(since, until)
    )
    collective = pl.col("name_id").is_in(collective_names(trace).implode())
    waiting, own = kernels.filter(collective), kernels.filter(~collective)
    busy = union(waiting["start_ns"].to_numpy(), waiting["end_ns"].to_numpy())
    return own.filter(covered(busy, own["start_ns"].to_numpy(), own["end_ns"].to_numpy()) == 0)


def _hash_names(rows: pl.DataFrame, names: pl.Series) -> pl.DataFrame:
    """Return the rows with `kernel`, without kernels that communicate in their own way."""
    named = rows.with_columns(name=names.gather(rows["name_id"]).fill_null(""))
    known = classify_names(named["name"])["category"].cast(pl.String())
    computing = named.filter((known != "communication").fill_null(value=True))
    hashes = [int.from_bytes(blake2b(name.encode(), digest_size=8).digest()) for name in computing["name"]]
    return computing.with_columns(kernel=pl.Series(hashes, dtype=pl.UInt64()))
