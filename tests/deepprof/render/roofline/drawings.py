"""Tables with roofs, small enough to compute by hand."""

from __future__ import annotations

import polars as pl

from deepprof.metrics.cost.roofs import DevicePeaks, add_roofs

# The ridges: 10 FLOP per byte for float32, 100 for float16 products.
PEAKS = DevicePeaks(
    "made up",
    "of the test",
    vector_flops_per_s={"float32": 1e12},
    matrix_flops_per_s={"float16": 10e12},
    memory_nbytes_per_s={"memory": 100e9},
)
SCHEMA = {
    "name": pl.String,
    "flops": pl.Int64,
    "nbytes": pl.Int64,
    "product_flops": pl.Int64,
    "product_dtype": pl.String,
    "device_ns": pl.Int64,
}
PRODUCT = ("mm", 400_000_000, 1_000_000, 400_000_000, "float16", 80_000)  # 400 FLOP per byte, half of its roof
SUM = ("add", 1_000_000, 8_000_000, 0, None, 120_000)  # an eighth, two thirds of the memory's rate
SMALL = ("relu", 1_000, 1_000, 0, None, 1_000)
UNKNOWN = ("custom", None, None, None, None, 200_000)


def roofed(*rows: tuple[object, ...], peaks: DevicePeaks = PEAKS) -> pl.DataFrame:
    return add_roofs(pl.DataFrame(list(rows), SCHEMA, orient="row"), peaks)
