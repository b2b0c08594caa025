"""What kernels do, in words for a reader: the operations of generic kernels are in their template arguments."""

from __future__ import annotations

import polars as pl

from deepprof.collectors.names.short import shorten

SHOWN = 3
# How ATen, Eigen and FBGEMM name the function that a generic kernel applies; the first that a name has counts.
OPERATIONS = (
    r"CUDAFunctor(?:OnSelf)?_(\w+)<",
    r"internal::scalar_(\w+?)_op",
    r"::(Mul|Div|Add|Sub)Functor<",
    r"::(?:gpu_kernel_impl|gpu_kernel_impl_nocast)<.*?::(\w+?)_kernel_(?:cuda|impl)",
    r"::(\w+?)_kernel_(?:cuda|impl)",
    r"launch_(clamp)_scalar",
    r"::(where|threshold|masked_fill|pow_tensor_\w+?)_kernel",
    r"ReduceOp<.*?(mean|max|min|sum|norm|welford|argmax)",
    r"::(Sqrt|Lerp|Compare\w*|Fill)Functor",
    r"::(\w+?)_kernel\(",
)


def name_operations(kernels: pl.DataFrame) -> str:
    """Return the names of those that use most time, of rows with `name` and `time_ns`: "mul, add and others"."""
    operation = pl.coalesce(*(pl.col("name").str.extract(f"(?i){pattern}") for pattern in OPERATIONS))
    named = kernels.select(
        "time_ns", word=operation.str.to_lowercase().str.strip_suffix("functor"), whole=pl.col("name")
    )
    rows = named.with_columns(word=pl.col("word").fill_null(pl.col("whole").map_elements(shorten, pl.String)))
    words = rows.group_by("word").agg(pl.col("time_ns").sum()).sort("time_ns", "word", descending=[True, False])["word"]
    return ", ".join(words[:SHOWN]) + (" and others" if len(words) > SHOWN else "")
