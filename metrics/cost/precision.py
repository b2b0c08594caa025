"""In which type the units of a device multiply: what a kernel's name tells beyond the type of its operands."""

from __future__ import annotations

import polars as pl

from deepprof.metrics.kernels.kinds import RATE_TYPES, Precision
from deepprof.metrics.kernels.name_kinds import classify_names

# What libraries round float32 operands to. Products of several smaller ones that are as exact as float32 count as it.
ROUNDED: tuple[Precision, ...] = ("tf32", "bf16", "fp16")


def find_product_dtypes(dtypes: pl.Series, kernels: pl.Series) -> pl.Series:
    """Return the types whose rates count for products of operands of `dtypes` in kernels of these names.

    Float32 products count as `tf32` (or as a type of 16 bits) only where the name of the kernel tells that it rounds:
    whether a program allows it is not recorded. Every other type is returned as it is.
    """
    rates = {each: RATE_TYPES[each] for each in ROUNDED}
    rounded = pl.col("precision").cast(pl.String).replace_strict(rates, default=None)
    used = pl.when(pl.col("dtype") == "float32").then(pl.coalesce(rounded, "dtype")).otherwise("dtype")
    found = classify_names(kernels).select("precision").with_columns(dtypes.alias("dtype"))
    return found.select(used.alias("dtype")).to_series()
