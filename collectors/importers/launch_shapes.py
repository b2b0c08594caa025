"""How kernels were launched, as columns of device rows on the way to LAUNCH_SHAPES; the same for every format."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import polars as pl

from deepprof.collectors.trace import LAUNCH_SHAPES, empty_table

if TYPE_CHECKING:
    from collections.abc import Sequence

SHAPES = pl.Schema({name: dtype for name, dtype in LAUNCH_SHAPES.items() if name != "event"})
DIMENSIONS = 3
IN_THREADS = r"^hip(?:Ext|Hcc)ModuleLaunchKernel"  # calls that take the grid in threads, not in blocks
SIDE_LIMIT = 2**32  # of a grid or a block, on any device
PRODUCT_LIMIT = 2**63


def launch_shapes(rows: pl.DataFrame) -> pl.DataFrame:
    """Return LAUNCH_SHAPES of device rows that have the columns of SHAPES; empty where they do not.

    `rows` are all device rows as they are in the trace, or some of them with their number in `event`.
    """
    if not SHAPES.keys() <= set(rows.columns):
        return empty_table(LAUNCH_SHAPES)
    known = pl.any_horizontal(pl.col(list(SHAPES)).is_not_null()) & (pl.col("activity") == "kernel")
    numbered = rows if "event" in rows.columns else rows.with_row_index("event")
    return numbered.filter(known).select(list(LAUNCH_SHAPES)).cast(dict(LAUNCH_SHAPES))  # type: ignore[arg-type]


def shape_columns(*, registers: pl.Expr, shared_nbytes: pl.Expr, grid: pl.Expr, block: pl.Expr) -> dict[str, pl.Expr]:
    """Return the columns of SHAPES from integers; null for values that cannot be, which no grid or block of 0 can."""
    found = {"registers": registers, "shared_nbytes": shared_nbytes, "grid": grid, "block": block}
    least = {"grid": 1, "block": 1}
    return {
        name: pl.when(value >= least.get(name, 0)).then(value).cast(SHAPES[name], strict=False).alias(name)
        for name, value in found.items()
    }


def product_of(sides: Sequence[pl.Expr]) -> pl.Expr:
    """Return the product of the sides of a grid or a block as Int64; null where a side is absent or impossible."""
    whole, rough = pl.lit(1, pl.Int64), pl.lit(1.0)
    for side in sides:
        known = pl.when(side.is_between(1, SIDE_LIMIT)).then(side.cast(pl.Int64))
        whole, rough = whole * known, rough * known.cast(pl.Float64)
    return pl.when(rough < PRODUCT_LIMIT).then(whole)


def volume_of(text: bytes) -> int | None:
    """Return the product of the sides in the JSON list `text`; None for anything else, and for impossible sides."""
    try:
        sides = msgspec.json.decode(text, type=list[int])
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    sound = 1 <= len(sides) <= DIMENSIONS and all(1 <= side <= SIDE_LIMIT for side in sides)
    volume = math.prod(sides) if sound else PRODUCT_LIMIT
    return volume if volume < PRODUCT_LIMIT else None


def blocks_of(work_items: pl.Expr, block: pl.Expr) -> pl.Expr:
    """Return how many blocks of `block` threads `work_items` threads are: HSA states a grid in threads."""
    return (work_items + block - 1) // block
