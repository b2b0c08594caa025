"""The collectives of one loop as passes: the same sequence of them once per iteration, in the program's order.

Only collectives that hold every rank until the last one comes are kept. A collective belongs to the iteration in which
the host launched it: its start on the device depends on what else runs there. Without launch records the start is used.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from deepprof.collectors.trace import Trace
from deepprof.metrics.loop import Loop
from deepprof.metrics.names import with_names
from deepprof.metrics.operators import is_stand_in
from deepprof.metrics.streams import COLLECTIVE_OPERATOR, COLLECTIVE_RANGE, is_collective

Int64s = npt.NDArray[np.int64]

# One row per collective of every pass: its place is `position` of `iteration` (an index of the loop's table). `group`
# is the process group where the trace names it, else empty; `sequence` its number in the group, null where unknown.
PASSES = pl.Schema(
    {
        "iteration": pl.Int64(),
        "position": pl.Int64(),
        "group": pl.String(),
        "group_size": pl.UInt32(),
        "sequence": pl.UInt64(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
    }
)
# The operation in the names of NCCL and RCCL kernels. Sends, broadcasts and reductions to one rank let some of their
# ranks go early, and a generic kernel may be any of them: they count only if the trace names the collective, or the
# range in which they were launched does.
OPERATION = r"(AllReduce|AllGather|ReduceScatter|AllToAll)"
SYNCHRONISING = r"(?i)^_*(?:all|reduce_?scatter|barrier)"
SIZED = r"(?i)^_*(?:all_?reduce|all_?gather|reduce_?scatter)"  # the larger of input and output is equal on every rank
LINKED = 0.5  # of the collectives: if fewer have a launch record, they are not ordered by launches
MIN_PASSES = 2  # passes: a sequence that occurs once is no pattern, except in a step that a marker bounds
MAX_COLLECTIVES = 100_000  # collectives per iteration, more than any program has


class Passes(Struct, frozen=True, eq=False):
    """The collectives of one loop: `names` lists those of a pass, `rows` has the schema `PASSES`.

    Iterations with a different sequence (a logged value, a skipped update) are left out. `on_cpu`: threads ran the
    collectives, and a rank leaves one when its scheduler lets it.
    """

    names: tuple[str, ...]
    rows: pl.DataFrame
    on_cpu: bool = False


def read_passes(loop: Loop, trace: Trace) -> Passes:
    """Return the passes of a loop's complete iterations after warm-up; none where no sequence repeats."""
    found = _read_collectives(trace, loop.device)
    usable = loop.iterations.filter(pl.col("complete") & ~pl.col("warmup"))["index"]
    if found.is_empty() or usable.is_empty():
        return Passes((), pl.DataFrame(schema=PASSES))
    placed = _place(found, loop, trace).filter(pl.col("iteration").is_in(usable.implode()))
    usual = _keep_usual(placed, fewest=1 if loop.single else MIN_PASSES)
    return replace(usual, on_cpu=is_stand_in(trace))


def _read_collectives(trace: Trace, device: int) -> pl.DataFrame:
    """Return the synchronising collectives of a device with their `symbol`: the name, and the size if available."""
    named = pl.col("name_id").is_in(collective_names(trace).implode())
    kernels = trace.device_events.with_row_index("event").filter(
        (pl.col("device") == device) & (pl.col("activity") == "kernel") & named
    )
    detailed = with_names(kernels, trace.names).join(trace.collectives, on="event", how="left", maintain_order="left")
    detailed = detailed.join(_ranges_around(kernels, trace), on="event", how="left", maintain_order="left")
    detailed = _without_calls(detailed)
    name = pl.coalesce("collective", pl.col("name").str.extract(OPERATION), "range", _said_by_name())
    size = pl.max_horizontal("in_elements", "out_elements").cast(pl.String).fill_null("?")
    sized = pl.col("symbol").str.contains(SIZED) & pl.col("collective").is_not_null()
    return (
        detailed.with_columns(symbol=name, group=pl.col("group").fill_null(""))
        .filter(pl.col("symbol").str.contains(SYNCHRONISING) & (pl.col("group_size").fill_null(2) > 1))
        .with_columns(symbol=pl.when(sized).then(pl.concat_str("symbol", pl.lit(" "), size)).otherwise("symbol"))
    )


def _without_calls(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows without operators that only call collectives, if the collectives' own ranges exist."""
    ranges = rows["name"].str.contains(COLLECTIVE_RANGE)
    return rows.filter(~rows["name"].str.contains(COLLECTIVE_OPERATOR)) if ranges.any() else rows


def _said_by_name() -> pl.Expr:
    """Return the collective in the name of a range or operator that counts as a kernel on a CPU; null for others."""
    prefix = f"{COLLECTIVE_RANGE}|{COLLECTIVE_OPERATOR}"
    return pl.when(pl.col("name").str.contains(prefix)).then(pl.col("name").str.replace(prefix, ""))


def _ranges_around(kernels: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """Return `event` and `range`, the collective that the framework's range around the kernel's launch names.

    A kernel of sends and receives may be any collective, and all-to-all is made of sends and receives.
    """
    ids = trace.names.to_frame("name").with_row_index("name_id").filter(pl.col("name").str.contains(COLLECTIVE_RANGE))
    said = ids.select(pl.col("name_id").cast(pl.UInt32), range=pl.col("name").str.replace(COLLECTIVE_RANGE, ""))
    thread = ["process", "thread"]
    ranges = trace.annotations.filter(side="host").join(said, on="name_id").sort("start_ns")
    calls = trace.host_events.filter(
        (pl.col("category") == "runtime") & pl.col("correlation").is_in(kernels["correlation"].drop_nulls().implode())
    ).unique("correlation", keep="first")
    launched = kernels.select("event", "correlation").join(calls, on="correlation").sort("start_ns")
    around = launched.join_asof(
        ranges.select(*thread, "start_ns", "range", until_ns="end_ns"), on="start_ns", by=thread, check_sortedness=False
    )
    return around.filter(pl.col("until_ns") >= pl.col("start_ns")).select("event", "range")


def collective_names(trace: Trace) -> pl.Series:
    """Return the name ids of collectives, so that each name is matched once and not once per event."""
    kernels = trace.names.to_frame("name").with_columns(activity=pl.lit("kernel"))
    return kernels.with_row_index("name_id").filter(is_collective())["name_id"]


def _place(found: pl.DataFrame, loop: Loop, trace: Trace) -> pl.DataFrame:
    """Return the collectives in the program's order with the `iteration` that each belongs to; -1 is none."""
    first = _first_kernels(loop, trace)
    launches = _launch_times(trace, pl.concat([found["correlation"], first["correlation"]]))
    found, first = (each.join(launches, on="correlation", how="left", maintain_order="left") for each in (found, first))
    if found["launch_ns"].count() < LINKED * found.height or first["launch_ns"].count() < LINKED * first.height:
        # A CPU's backend gives each collective to its next free thread: they begin in order.
        order = ["start_ns"] if is_stand_in(trace) else ["stream", "start_ns"]
        ordered, times, bounds = found.sort(order, maintain_order=True), "start_ns", first["start_ns"]
    else:
        ordered, times = found.drop_nulls("launch_ns").sort("launch_ns", "stream", "start_ns"), "launch_ns"
        bounds = first["launch_ns"].cum_max().forward_fill().fill_null(-1)  # the first were launched before the capture
    at = np.searchsorted(bounds.to_numpy(), ordered[times].to_numpy(), side="right") - 1
    index = np.append(first["index"].to_numpy(), -1)  # the last one means "before all iterations"
    return ordered.with_columns(iteration=pl.Series(index[at], dtype=pl.Int64))


def _first_kernels(loop: Loop, trace: Trace) -> pl.DataFrame:
    """Return index, start_ns and correlation of every iteration's first kernel, in order of time.

    The time after an iteration that no other follows begins with a row of index -1.
    """
    main = trace.device_events.filter(
        (pl.col("device") == loop.device)
        & (pl.col("stream") == loop.stream)
        & pl.col("activity").is_in(["kernel", "graph"])
    ).select("start_ns", "correlation")
    table = loop.iterations
    first = np.searchsorted(main["start_ns"].to_numpy(), table["start_ns"].to_numpy())
    after = (first + table["kernels"].to_numpy())[table["interval_ns"].is_null().to_numpy()]
    index = np.append(table["index"].to_numpy(), np.full(len(after), -1))
    at = np.append(first, after)
    order = np.argsort(at, kind="stable")
    order = order[at[order] < main.height]
    return main[at[order]].with_columns(index=pl.Series(index[order], dtype=pl.Int64))


def _launch_times(trace: Trace, correlations: pl.Series) -> pl.DataFrame:
    """Return `correlation` and `launch_ns` of each of `correlations` that the trace has a runtime call for."""
    wanted = correlations.drop_nulls().unique()
    calls = trace.host_events.filter(
        (pl.col("category") == "runtime") & pl.col("correlation").is_in(wanted.implode())
    ).unique("correlation", keep="first")
    return calls.select("correlation", launch_ns="start_ns")


def _keep_usual(placed: pl.DataFrame, fewest: int) -> Passes:
    """Return the passes whose sequence of symbols is the most frequent one."""
    numbered = placed.with_columns(symbol_id=pl.col("symbol").rank("dense"))
    passes = numbered.group_by("iteration", maintain_order=True).agg("symbol_id", length=pl.len())
    passes = passes.filter(pl.col("length") <= MAX_COLLECTIVES)
    counts = Counter(map(tuple, passes["symbol_id"].to_list()))
    usual, times = counts.most_common(1)[0] if counts else ((), 0)
    if times < fewest:
        return Passes((), pl.DataFrame(schema=PASSES))
    kept = passes.filter(pl.col("symbol_id") == pl.lit(list(usual), dtype=pl.List(pl.UInt32)))
    rows = placed.join(kept.select("iteration"), on="iteration", how="semi", maintain_order="left").with_columns(
        position=pl.int_range(pl.len(), dtype=pl.Int64).over("iteration")
    )
    names = tuple(rows.head(len(usual))["symbol"].to_list())
    return Passes(names, rows.select(PASSES.names()).cast(dict(PASSES)))  # type: ignore[arg-type]
