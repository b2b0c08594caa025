"""Layers cost the FLOP of their operators and the bytes of the tensors around them."""

from __future__ import annotations

import polars as pl
import pytest
from msgspec.structs import replace

from deepprof.collectors.models.backend_profile import BackendTensor, LayerRole
from deepprof.collectors.models.graph import ModelGraph
from deepprof.metrics.cost.fusion import GroupCosts
from deepprof.metrics.cost.mapping import map_layers
from deepprof.metrics.cost.model_roofline import COUNTED, cost_layers, measure_model_run, sum_layers
from deepprof.metrics.cost.roofs import DevicePeaks
from tests.metrics.cost.backend_profiles import make_graph, make_layer, make_profile

IMAGE = (1, 8, 4, 4)
NBYTES = 4 * 8 * 16  # of such an image
ROWS = [
    ("/conv/Conv", "Conv", "x w", "c"),
    ("/Sigmoid", "Sigmoid", "c", "s"),
    ("/Mul", "Mul", "c s", "m"),
    ("/Flatten", "Flatten", "m", "f"),
    ("/head/MatMul", "MatMul", "f v", "y"),
]
SHAPES = {"w": (8, 8, 1, 1), "f": (1, 128), "v": (128, 10), "y": (1, 10)}


def graph() -> ModelGraph:
    return make_graph(ROWS, SHAPES, weights=("w", "v"))


def test_only_the_outer_tensors_of_a_set_move_and_its_flop_are_summed() -> None:
    costs = GroupCosts(graph())
    whole = costs.cost_of_group(range(3))
    assert whole is not None
    assert whole.product_flops == 2 * 128 * 8
    assert whole.flops == sum(costs.costs[node].flops for node in range(3))
    assert (whole.read_nbytes, whole.written_nbytes) == (NBYTES + 4 * 64, NBYTES)
    half = costs.cost_of_group(range(3), "bfloat16")
    assert half is not None
    assert (half.nbytes, half.product_dtype) == (whole.nbytes // 2, "bfloat16")


def test_a_new_shape_moves_nothing_alone_and_passes_tensors_on_within_a_set() -> None:
    costs = GroupCosts(graph())
    alone, together = costs.cost_of_group([3]), costs.cost_of_group([3, 4])
    assert alone is not None
    assert together is not None
    assert alone.nbytes == 0
    assert (together.read_nbytes, together.written_nbytes) == (NBYTES + 4 * 1280, 40)


def test_an_operator_without_a_rule_makes_the_whole_unknown() -> None:
    unknown = make_graph([*ROWS[:2], ("/Odd", "Odd", "s", "y")], SHAPES, weights=("w",))
    assert GroupCosts(unknown).cost_of_group([0, 1, 2]) is None
    profile = make_profile(make_layer("/conv/Conv", "x", {"s": IMAGE}), make_layer("/Odd", "s", {"y": IMAGE}))
    rows = cost_layers(map_layers(unknown, profile))
    assert rows["flops"].is_null().to_list() == [False, True]
    assert sum_layers(rows, 5)["flops"].item() is None


def test_rows_tell_what_a_layer_is_and_a_conversion_moves_what_the_backend_says() -> None:
    small = tuple(BackendTensor(name, IMAGE, dtype) for name, dtype in (("x", "float32"), ("x'", "bfloat16")))
    reorder = make_layer("r", "", {}, role=LayerRole.CONVERSION)
    reorder = type(reorder)(reorder.name, "Reorder", LayerRole.CONVERSION, 500, small[:1], small[1:])
    block = make_layer("/conv/Conv", "x'", {"m": IMAGE}, role=LayerRole.PRODUCT, dtype="bfloat16")
    head = make_layer("/head/MatMul", "m", {"y": (1, 10)}, role=LayerRole.PRODUCT)
    rows = cost_layers(map_layers(graph(), make_profile(reorder, block, head)))
    assert rows["converts"].to_list() == ["x", None, None]
    assert rows["nbytes"].to_list() == [NBYTES + NBYTES // 2, NBYTES + 2 * 64, NBYTES + 4 * 1280 + 40]
    assert rows["product_dtype"].to_list() == [None, "bfloat16", "float32"]
    assert rows["operators"].to_list() == [[], ["/conv/Conv", "/Sigmoid", "/Mul"], ["/Flatten", "/head/MatMul"]]
    assert rows["basis"].unique().to_list() == ["predicted"]
    assert sum_layers(rows, 7_000).select("flops", "device_ns", "product_dtype").row(0) == (
        rows["flops"].sum(),
        7_000,
        "float32",
    )


def test_a_run_has_roofs_shares_and_what_was_counted_instead_of_predicted() -> None:
    peaks = DevicePeaks("made up", "by hand", vector_flops_per_s={"float32": 1e12}, memory_nbytes_per_s={"memory": 1e9})
    block = make_layer("/conv/Conv", "x", {"m": IMAGE}, role=LayerRole.PRODUCT, time_ns=3_000_000)
    head = make_layer("/head/MatMul", "m", {"y": (1, 10)}, role=LayerRole.PRODUCT, time_ns=1_000_000)
    profile = make_profile(block, head)
    run = measure_model_run(graph(), profile, peaks)
    assert run.layers["share_ratio"].to_list() == [0.75, 0.25]
    assert run.layers["memory_ns"][1] == pytest.approx(NBYTES + 4 * 1280 + 40)  # at 1 byte a nanosecond
    assert run.whole["device_ns"].item() == 10_000
    counted = replace(profile, counted_nbytes=123_456)
    whole = measure_model_run(graph(), counted, None).whole
    assert whole.select("nbytes", "basis").row(0) == (123_456, COUNTED)
    assert whole.select(pl.col("bound", "roof_ratio").is_null()).row(0) == (True, True)


def test_layers_without_time_have_no_share_and_nothing_without_peaks() -> None:
    idle = make_layer("/conv/Conv", "x", {"m": IMAGE}, role=LayerRole.PRODUCT, time_ns=0)
    row = measure_model_run(graph(), make_profile(idle), None).layers
    assert row.select("share_ratio", "bound", "ideal_ns").row(0) == (None, None, None)
