"""The roofline of a loop by operator, by layer of the model or by kernel: the rows that people are shown."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import polars as pl

from deepprof.collectors.table_schema import TableSchema

By = Literal["operator", "layer", "kernel"]
TEXT, F64 = pl.String(), pl.Float64()

ROOFLINE_ROWS = TableSchema.of(
    "What one operator with its operands, one layer or one kernel takes of a usual iteration, beside the peaks.",
    {
        "name": (TEXT, "the operator, layer or kernel; null: none is known"),
        "dims": (TEXT, "by operator: the shapes of its operands, as JSON"),
        "dtypes": (TEXT, "by operator: their types, as JSON"),
        "calls": (F64, "calls per iteration"),
        "kernels": (F64, "kernels per iteration"),
        "device_ns": (F64, "the lengths of these kernels, added up"),
        "share_ratio": (F64, "that time over the time of all kernels, collectives left out; null: they take none"),
        "known_ratio": (F64, "the share of its time whose operations and bytes are known: what follows is of that"),
        "flops": (F64, "floating-point operations; null: unknown, as in what follows"),
        "nbytes": (F64, "bytes that must be moved"),
        "product_dtype": (TEXT, "the type in which most of its products are done; null: none"),
        "intensity": (F64, "operations per byte"),
        "achieved_flops_per_s": (F64, "operations per second while its kernels run"),
        "achieved_nbytes_per_s": (F64, "bytes per second while its kernels run"),
        "bound": (TEXT, "what limits most of it: compute, memory, or launch"),
        "ideal_ns": (F64, "the shortest time that the peaks allow"),
        "roof_ratio": (
            F64,
            "the shortest time over the time that is known; work above its roof counts only where there is no other",
        ),
        "above_roof": (TEXT, "why `roof_ratio` is above 1; null: it is not"),
        "headroom_ns": (F64, "what it takes beyond that, and beyond what kernels take that do nothing"),
    },
)
KEYS: Mapping[By, tuple[str, ...]] = MappingProxyType(
    {"operator": ("operator", "dims", "dtypes"), "layer": ("layer",), "kernel": ("kernel",)}
)


def list_rows(groups: pl.DataFrame, by: By) -> pl.DataFrame:
    """Return groups of calls (`CALL_GROUPS`) added up, with the schema `ROOFLINE_ROWS`: most headroom first.

    Kernels that belong to no operator are one row where operators are listed. A call belongs to its longest kernel.
    """
    known = pl.col("flops").is_not_null() & pl.col("nbytes").is_not_null()
    longest = pl.col("device_ns").filter(known).arg_max()
    products = pl.col("product_dtype").is_not_null()
    above = pl.col("above_roof").is_not_null()
    counted = known & (~above | above.filter(known).all())
    rows = groups.group_by(KEYS[by], maintain_order=True).agg(
        pl.col("calls", "kernels", "device_ns").sum(),
        pl.col("device_ns").filter(known).sum().alias("known_ns"),
        *(_add_known(name, known) for name in ("flops", "nbytes", "ideal_ns", "headroom_ns")),
        pl.col("product_dtype").filter(products).get(pl.col("device_ns").filter(products).arg_max(), null_on_oob=True),
        pl.col("bound").filter(known).get(longest, null_on_oob=True),
        pl.col("ideal_ns").filter(counted).sum().alias("counted_ideal_ns"),
        pl.col("device_ns").filter(counted).sum().alias("counted_ns"),
        pl.col("above_roof").filter(known).get(longest, null_on_oob=True),
    )
    return _divide_rows(rows.rename({KEYS[by][0]: "name"}), float(groups["device_ns"].sum()))


def _add_known(name: str, known: pl.Expr) -> pl.Expr:
    """Return the sum of a column over the calls of known cost, null where there is none."""
    values = pl.col(name).filter(known)
    return pl.when(values.is_not_null().any()).then(values.sum()).alias(name)


def _divide_rows(rows: pl.DataFrame, whole_ns: float) -> pl.DataFrame:
    """Return sums with their ratios and rates, as `ROOFLINE_ROWS`."""
    known = pl.col("known_ns")
    per_s = 1e9 / known
    counted = (pl.col("counted_ns") > 0) & pl.col("ideal_ns").is_not_null()
    ratio = pl.when(counted).then(pl.col("counted_ideal_ns") / pl.col("counted_ns"))
    table = rows.with_columns(
        share_ratio=pl.when(whole_ns > 0).then(pl.col("device_ns") / whole_ns),
        known_ratio=pl.when(pl.col("device_ns") > 0).then(known / pl.col("device_ns")),
        intensity=pl.when(pl.col("nbytes") > 0).then(pl.col("flops") / pl.col("nbytes")),
        achieved_flops_per_s=pl.when(known > 0).then(pl.col("flops") * per_s),
        achieved_nbytes_per_s=pl.when(known > 0).then(pl.col("nbytes") * per_s),
        roof_ratio=ratio,
        above_roof=pl.when(ratio > 1).then("above_roof"),
        **{name: pl.lit(None, TEXT) for name in ("dims", "dtypes") if name not in rows.columns},
    )
    order = table.sort("headroom_ns", "device_ns", descending=True, nulls_last=True, maintain_order=True)
    return order.select(list(ROOFLINE_ROWS)).cast(dict(ROOFLINE_ROWS))  # type: ignore[arg-type]
