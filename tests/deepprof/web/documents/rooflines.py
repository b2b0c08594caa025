"""Loops with made-up rooflines."""

from __future__ import annotations

import polars as pl
from msgspec.structs import replace

from deepprof.analysis import Analysis
from deepprof.metrics.cost.roofline_tables import CALL_GROUPS, PRODUCTS, USED_IN_ITERATIONS, LoopRoofline
from deepprof.metrics.cost.roofs import DevicePeaks
from tests.tables import Row, table

PEAKS = DevicePeaks(
    "made up",
    "of the test",
    vector_flops_per_s={"float32": 1e12},
    matrix_flops_per_s={"float16": 10e12},
    memory_nbytes_per_s={"memory": 100e9},
)
PRODUCT: Row = {
    **{
        "operator": "aten::mm",
        "dims": "[[8,8],[8,8]]",
        "kernel": "gemm",
        "product_dtype": "float16",
        "bound": "compute",
    },
    **{"calls": 2.0, "kernels": 2.0, "device_ns": 300.0, "flops": 4e5, "nbytes": 1e3, "intensity": 400.0},
    **{"achieved_flops_per_s": 5e12, "achieved_nbytes_per_s": 1e10, "roof_ratio": 0.5, "headroom_ns": 150.0},
}
UNKNOWN: Row = {"kernel": "custom", "calls": 1.0, "kernels": 1.0, "device_ns": 100.0}


def with_groups(analysis: Analysis, *rows: Row, peaks: DevicePeaks | None = PEAKS) -> Analysis:
    """Return the analysis with these groups of calls in every loop."""
    found = LoopRoofline(
        device="Made Up \u202e",
        peaks=peaks,
        groups=pl.DataFrame(list(rows), schema=dict(CALL_GROUPS)),
        products=table([], PRODUCTS),
        iterations=table([], USED_IN_ITERATIONS),
        coverage_ratio=0.75,
        product_coverage_ratio=1.0,
    )
    return replace(analysis, loops=tuple(replace(loop, roofline=found) for loop in analysis.loops))
