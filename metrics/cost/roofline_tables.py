"""What the roofline of a loop's iterations holds: its tables and their meaning, without how they are measured."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from deepprof.collectors.reprs import one_line
from deepprof.collectors.table_schema import TableSchema
from deepprof.metrics.cost.roofs import DevicePeaks

TEXT, F64 = pl.String(), pl.Float64()

CALL_GROUPS = TableSchema.of(
    "The calls of one operator with the same operands in the same layer, means per usual iteration.",
    {
        "operator": (TEXT, "the operator's name; null: kernels that belong to no recorded operator"),
        "dims": (TEXT, "the shapes of its operands, as JSON; null: not recorded"),
        "dtypes": (TEXT, "their types, as JSON; null: not recorded"),
        "layer": (TEXT, "the path of the model's layer; null: none is known"),
        "kernel": (TEXT, "the name of the kernel with most of its time"),
        "recomputed": (pl.Boolean(), "whether they run a part of the forward pass again in the backward pass"),
        "calls": (F64, "calls per iteration"),
        "kernels": (F64, "kernels per iteration"),
        "device_ns": (F64, "the lengths of these kernels, added up"),
        "flops": (F64, "floating-point operations; null: unknown"),
        "nbytes": (F64, "bytes that they must move; null: unknown"),
        "product_flops": (F64, "operations of matrix products, convolutions and attention among them; null: unknown"),
        "product_dtype": (TEXT, "the type in which these are done; null: none, or unknown"),
        "intensity": (F64, "operations per byte; null: unknown"),
        "achieved_flops_per_s": (F64, "operations per second while their kernels run; null: unknown"),
        "achieved_nbytes_per_s": (F64, "bytes per second while their kernels run; null: unknown"),
        "ideal_ns": (F64, "the shortest time that the device's peaks allow; null: unknown"),
        "bound": (TEXT, "what sets that time: compute, memory, or launch; null: unknown"),
        "roof_ratio": (F64, "`ideal_ns` over `device_ns`; null: unknown"),
        "above_roof": (TEXT, "why `roof_ratio` is above 1; null: it is not"),
        "headroom_ns": (F64, "`device_ns` beyond `ideal_ns`, and beyond an empty kernel a call; null: unknown"),
    },
)
PRODUCTS = TableSchema.of(
    "The matrix products, convolutions and attention of one type in one usual iteration.",
    {
        "index": (pl.Int64(), "the iteration's number in the loop"),
        "product_dtype": (TEXT, "the type in which they are done"),
        "product_flops": (F64, "their floating-point operations"),
        "recomputed_flops": (F64, "those of them that run again in the backward pass"),
    },
)
USED_IN_ITERATIONS = TableSchema.of(
    "How much of the device's peak one usual iteration uses.",
    {
        "index": (pl.Int64(), "the iteration's number in the loop"),
        "iteration_ns": (pl.Int64(), "its time, to the start of the next one"),
        "product_coverage_ratio": (F64, "the share of the time of products whose operations are known; null: none is"),
        "product_flops": (F64, "operations of the products known in it; null: none is"),
        "mfu_ratio": (F64, "model FLOP utilisation; null: unknown"),
        "hfu_ratio": (F64, "hardware FLOP utilisation; null: unknown"),
    },
)


class LoopRoofline(Struct, frozen=True, eq=False):
    """The work of a loop's usual iterations next to what its device allows.

    `groups` has the schema `CALL_GROUPS`, those with most time first, `products` has `PRODUCTS` and `iterations` has
    `USED_IN_ITERATIONS`. `device` is the name of the device, None where the trace has none; `peaks` are what it allows,
    None where they are unknown. `coverage_ratio` is the share of the kernels' time (without collectives) whose
    operations and bytes are available, `product_coverage_ratio` the same of the kernels that are products or may be
    some; None where there are none. `mfu_ratio` and `hfu_ratio` are over all usual iterations; `why_no_mfu` and
    `why_no_hfu` state why they are None. `mfu_fastest_ratio` is the MFU next to the peak of `fastest_dtype`, the type
    of those that models are trained in (`roofs.TRAINING_TYPES`) in which the device's matrix units are fastest; both
    are None where the MFU is, or where there are no matrix units for such types. `untold` states why it is unknown
    which operators run again in the backward pass, if so."""

    device: str | None
    peaks: DevicePeaks | None
    groups: pl.DataFrame
    products: pl.DataFrame
    iterations: pl.DataFrame
    coverage_ratio: float | None
    product_coverage_ratio: float | None
    untold: str | None = None
    mfu_ratio: float | None = None
    hfu_ratio: float | None = None
    mfu_fastest_ratio: float | None = None
    fastest_dtype: str | None = None
    why_no_mfu: str | None = None
    why_no_hfu: str | None = None

    @property
    def headroom_ns(self) -> float | None:
        """What kernels of known cost take beyond the shortest time that the peaks allow, per iteration."""
        known = self.groups["headroom_ns"].drop_nulls()
        return float(known.sum()) if len(known) else None

    def __repr__(self) -> str:
        covered = "" if self.coverage_ratio is None else f"{self.coverage_ratio:.0%} of the kernels' time known"
        used = "" if self.mfu_ratio is None else f"MFU {self.mfu_ratio:.1%}"
        return one_line(self, self.device or "unknown device", covered, used)
