"""The kernels of one rank that can be compared with other ranks': equal ones, that wait for no rank.

Kernels are equal if name, grid and block are. Those that run while a collective does are left out: a collective that
waits occupies multiprocessors, so that kernels beside it are slower on ranks that come early.
"""

from __future__ import annotations

from hashlib import blake2b

import polars as pl

from deepprof.collectors.table_schema import TableSchema
from deepprof.collectors.trace import Trace, empty_table
from deepprof.metrics.kernels.classify import classify_names
from deepprof.metrics.loop import Loop
from deepprof.metrics.ranks.collectives import collective_names
from deepprof.metrics.spans import covered, union

MOST_KINDS = 200  # rows that a rank sends; what is beyond them takes hardly any time
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
    """Return the rows with `kernel`, without kernels that communicate in a way of their own."""
    named = rows.with_columns(name=names.gather(rows["name_id"]).fill_null(""))
    known = classify_names(named["name"])["category"].cast(pl.String())
    computing = named.filter((known != "communication").fill_null(value=True))
    hashes = [int.from_bytes(blake2b(name.encode(), digest_size=8).digest()) for name in computing["name"]]
    return computing.with_columns(kernel=pl.Series(hashes, dtype=pl.UInt64()))
