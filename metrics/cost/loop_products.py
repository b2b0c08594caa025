"""The matrix products, convolutions and attention of a loop, by operator and operands: what rules examine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import polars as pl
from msgspec import Struct

MOSTLY = 0.5  # of an operator's operations are of products
MAX_DIMS_CHARS = 4096
SHAPES_SHOWN = 3
MATRICES = {"aten::mm": 0, "aten::addmm": 1, "aten::bmm": 0, "aten::baddbmm": 1, "aten::_scaled_mm": 0}
CONVOLUTIONS = re.compile(r"^aten::(?:\w+_)?conv(?:olution|\d)")
# The tile of the result in names of kernels: `tilesize128x256x64`, `MT256x128x64`, `_128x64_`.
TILE = re.compile(r"tilesize(\d+)x(\d+)x|_MT(\d+)x(\d+)x|gemm\w*?_(\d{2,3})x(\d{2,3})_")
KEY = ("operator", "dims", "dtypes", "product_dtype")
AMOUNTS = ("calls", "device_ns", "flops", "nbytes", "product_flops", "ideal_ns", "headroom_ns")


class ProductSides(Struct, frozen=True):
    """The sides of a product of matrices, `rows` × `inner` times `inner` × `columns`, or the channels of a convolution.

    Of a convolution `inner` are the channels that go in and `columns` those that come out, by group; `rows` is 0.
    `batch` such products are done at once.
    """

    rows: int
    inner: int
    columns: int
    batch: int = 1


def list_products(groups: pl.DataFrame) -> pl.DataFrame:
    """Return the products among groups of calls (`CALL_GROUPS`), those of all layers together, most time first.

    A row has `KEY`, the sums of `AMOUNTS`, the `kernel` and the `bound` of the longest group, and `roof_ratio`.
    Products of unknown cost, or next to unknown peaks, are left out.
    """
    mostly = pl.col("product_flops") >= MOSTLY * pl.col("flops")
    known = groups.filter((pl.col("product_flops") > 0) & mostly & pl.col("ideal_ns").is_not_null())
    longest = pl.col("device_ns").arg_max()
    rows = known.group_by(KEY, maintain_order=True).agg(
        pl.col(AMOUNTS).sum(), pl.col("kernel", "bound").get(longest), kernels=pl.col("kernels").sum()
    )
    rated = rows.with_columns(roof_ratio=pl.col("ideal_ns") / pl.col("device_ns"))
    return rated.filter(pl.col("device_ns") > 0).sort("device_ns", descending=True, maintain_order=True)


def read_sides(operator: str, dims: str | None) -> ProductSides | None:
    """Return the sides of a product from the recorded shapes, as JSON; None where these are something else."""
    shapes = read_shapes(dims)
    if CONVOLUTIONS.match(operator):
        weight = shapes[2 if "backward" in operator else 1] if len(shapes) > 2 else []
        return ProductSides(0, weight[1], weight[0]) if len(weight) > 2 else None
    if operator not in MATRICES:
        return None
    left, right = (shapes + [[], []] * 2)[MATRICES[operator] :][:2]
    if not len(left) == len(right) in {2, 3} or left[-1] != right[-2]:
        return None
    return ProductSides(left[-2], left[-1], right[-1], left[0] if len(left) > 2 else 1)


def read_shapes(dims: str | None) -> list[list[int]]:
    """Return recorded shapes; empty ones for what is no tensor, none where they cannot be read."""
    if dims is None or len(dims) > MAX_DIMS_CHARS:
        return []
    try:
        listed: Any = msgspec.json.decode(dims)
    except (msgspec.DecodeError, RecursionError):
        return []
    return [_read_shape(each) for each in listed] if isinstance(listed, list) else []


def _read_shape(shape: object) -> list[int]:
    """Return one shape, empty where it is none."""
    is_shape = isinstance(shape, list) and all(isinstance(side, int) and side >= 0 for side in shape)
    return list(shape) if is_shape else []  # type: ignore[call-overload]


def write_shapes(dims: str | None) -> str:
    """Return shapes as in `64x3x224x224, 64x3x7x7`; operands without one are left out."""
    shapes = ["x".join(map(str, shape)) for shape in read_shapes(dims) if shape]
    return ", ".join(shapes[:SHAPES_SHOWN]) + (", …" if len(shapes) > SHAPES_SHOWN else "")


def find_tile(kernel: str) -> tuple[int, int] | None:
    """Return the tile of the result that a kernel's name states, None where it states none."""
    found = TILE.search(kernel)
    sides: Sequence[int] = [] if found is None else [int(side) for side in found.groups() if side is not None]
    return (sides[0], sides[1]) if len(sides) == 2 and all(sides) else None


def waste_of_tiles(sides: ProductSides, tile: tuple[int, int]) -> float:
    """Return the share of the tiles' elements beyond the result, the tile lying so that it is the least."""
    whole = sides.rows * sides.columns
    if not whole:
        return 0.0
    return min(
        1 - whole / (_round_up(sides.rows, first) * _round_up(sides.columns, second))
        for first, second in (tile, tile[::-1])
    )


def _round_up(side: int, multiple: int) -> int:
    return -(-side // multiple) * multiple
