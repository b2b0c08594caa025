"""How the kernels of every calling context were launched: means, for registers and blocks are no sums."""

from __future__ import annotations

import polars as pl

from deepprof.collectors.table_schema import TableSchema
from deepprof.collectors.trace import Trace
from deepprof.metrics.contexts.tree import ContextTree

F64 = pl.Float64()
CONTEXT_SHAPES = TableSchema.of(
    "How the kernels of one context were launched: means over those whose launch shape is recorded; null: of none.",
    {
        "context": (pl.UInt32(), "the context, a kernel"),
        "kernels": (pl.Int64(), "how many of its kernels have a recorded launch shape"),
        "registers": (F64, "registers per thread; on AMD vector registers, accumulators included"),
        "shared_nbytes": (F64, "shared memory (LDS) per block, static and dynamic"),
        "grid": (F64, "blocks in all"),
        "block": (F64, "threads per block"),
        "common_block": (pl.UInt32(), "the threads per block that most of them have, the smallest of several"),
    },
)
MEANS = ("registers", "shared_nbytes", "grid", "block")


def measure_shapes(trace: Trace, tree: ContextTree) -> pl.DataFrame:
    """Return how the kernels of every context were launched, with the schema `CONTEXT_SHAPES`, sorted by context.

    A context without a recorded launch shape has no row: a trace has shapes only where it was read with `details`.
    """
    contexts = pl.DataFrame({"context": pl.Series(tree.of_events, dtype=pl.UInt32)})
    placed = contexts.with_row_index("event").cast({"event": pl.UInt32})
    shapes = trace.launch_shapes.join(placed, on="event", how="inner")
    means = [pl.col(name).cast(F64).mean() for name in MEANS]  # whole numbers could overflow their sum
    found = shapes.group_by("context").agg(pl.len().cast(pl.Int64).alias("kernels"), *means)
    common = _find_common(shapes, "block")
    return found.join(common, on="context", how="left").sort("context").select(list(CONTEXT_SHAPES))


def _find_common(shapes: pl.DataFrame, column: str) -> pl.DataFrame:
    """Return for every context the most frequent value of a column, as `common_…`; the smallest of several."""
    counts = shapes.drop_nulls(column).group_by("context", column).len()
    ordered = counts.sort("context", "len", column, descending=[False, True, False])
    return ordered.unique("context", keep="first").select("context", pl.col(column).alias(f"common_{column}"))
