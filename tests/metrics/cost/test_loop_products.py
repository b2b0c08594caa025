"""The products of a loop, their sides, and the tiles that kernels name."""

from __future__ import annotations

import pytest

from deepprof.metrics.cost.loop_products import (
    ProductSides,
    find_tile,
    list_products,
    read_shapes,
    read_sides,
    waste_of_tiles,
    write_shapes,
)
from tests.metrics.cost.worked_loops import OperatorCall, measure, product


@pytest.mark.parametrize(
    ("operator", "dims", "sides"),
    [
        ("aten::mm", "[[4, 5], [5, 6]]", ProductSides(4, 5, 6)),
        ("aten::addmm", "[[6], [4, 5], [5, 6], [], []]", ProductSides(4, 5, 6)),
        ("aten::bmm", "[[2, 4, 5], [2, 5, 6]]", ProductSides(4, 5, 6, 2)),
        ("aten::convolution", "[[8, 3, 9, 9], [16, 3, 2, 2], [16]]", ProductSides(0, 3, 16)),
        ("aten::convolution_backward", "[[8, 16, 8, 8], [8, 3, 9, 9], [16, 3, 2, 2]]", ProductSides(0, 3, 16)),
        ("aten::miopen_convolution", "[[8, 3, 9, 9], [16, 3, 2, 2], []]", ProductSides(0, 3, 16)),
        ("aten::mm", "[[4, 5], [7, 6]]", None),
        ("aten::mm", "[[4, 5]]", None),
        ("aten::mm", None, None),
        ("aten::mm", "{", None),
        ("aten::mm", '[["a", 5], [5, -6]]', None),
        ("aten::convolution", "[[8]]", None),
        ("aten::_flash_attention_forward", "[[1, 2, 3, 4], [1, 2, 3, 4]]", None),
    ],
)
def test_sides_are_read_from_shapes(operator: str, dims: str | None, sides: ProductSides | None) -> None:
    assert read_sides(operator, dims) == sides


def test_shapes_of_any_depth_and_length_are_no_error() -> None:
    assert read_shapes("[" * 2_000 + "]" * 2_000) == []
    assert read_shapes("[[1]]" + " " * 5_000) == []
    assert read_shapes("7") == []
    assert write_shapes("[[64, 3], [], [[1], [2]], [5], [6], [7]]") == "64x3, 5, 6, …"
    assert write_shapes(None) == ""


@pytest.mark.parametrize(
    ("kernel", "tile"),
    [
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x256x64_warpgroupsize1x1x1", (128, 256)),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT16x32x256_MI16", (16, 32)),
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn", (128, 64)),
        ("void at::native::vectorized_elementwise_kernel<4>", None),
    ],
)
def test_tiles_are_read_from_names(kernel: str, tile: tuple[int, int] | None) -> None:
    assert find_tile(kernel) == tile


def test_the_waste_of_tiles_is_the_least_of_both_ways_round() -> None:
    assert waste_of_tiles(ProductSides(128, 9, 256), (128, 256)) == 0
    assert waste_of_tiles(ProductSides(256, 9, 128), (128, 256)) == 0
    assert waste_of_tiles(ProductSides(65, 9, 64), (64, 64)) == pytest.approx(1 - 65 / 128)
    assert waste_of_tiles(ProductSides(0, 9, 64), (64, 64)) == 0


def test_products_of_all_layers_are_one_row() -> None:
    calls = [
        product(2_000, 10_000_000),
        product(1_000, 1_000, dims="[[2, 2], [2, 2]]"),
        OperatorCall("aten::add", [9], 9, 9, 0),
    ]
    found = measure([*calls, product(3_000, 10_000_000), OperatorCall("aten::sdpa", [50], 100, 100, 40, "bfloat16")])
    assert found is not None
    rows = list_products(found.groups)
    assert rows["device_ns"].to_list() == [5_000, 1_000]
    assert rows["roof_ratio"].to_list() == pytest.approx([2_000 / 5_000, 1 / 1_000])
    assert list_products(measure(calls, peaks=None).groups).is_empty()  # type: ignore[union-attr]
