"""Costs of whole models next to published ones: Tables 3 to 5 of PRoof, for exports with random weights."""

from __future__ import annotations

import pytest

from deepprof.collectors.models.onnx_model import read_model
from deepprof.metrics.cost.fusion import measure_fused
from deepprof.metrics.cost.model_costs import measure_model, sum_costs, total_costs
from tests.onnx_models import QUICK, exported
from tests.widening import slow_unless

GFLOP = {  # Table 3, without Stable Diffusion, whose network no library here has
    **{"resnet34": 7.338, "resnet50": 8.207, "shufflenet_x0_5": 0.084, "shufflenet_x1_0": 0.294},
    **{"shufflenet_open": 0.294, "shufflenet_changed": 0.434, "distilbert": 48.718},
    **{"mobilenet_v2": 0.621, "mobilenet_v2_x0_5": 0.205, "efficientnet_b0": 0.851, "efficientnet_b4": 3.209},
    **{"efficientnetv2_t": 3.939, "efficientnetv2_s": 6.030, "mixer_b16": 25.403},
    **{"vit_tiny": 2.558, "vit_small": 9.298, "vit_base": 35.329},
    **{"swin_tiny": 9.133, "swin_small": 17.723, "swin_base": 31.183},
}
BATCHES = {1: 0.294, 128: 37.630, 2048: 602.079}  # Table 5, ShuffleNetV2 1.0
CHANGED = {1: 0.434, 128: 55.578, 2048: 889.255}  # the same, modified
FUSED = {"resnet50": (1050.435, 7052.9), "mobilenet_v2": (79.452, 3521.0)}  # Table 4: GFLOP and MB
BOTH_EXPORTERS = ("resnet50", "shufflenet_x1_0", "vit_tiny", "swin_tiny", "efficientnet_b0")
COUNTED = ("resnet50", "shufflenet_open", "vit_tiny", "swin_tiny", "distilbert")


@pytest.mark.parametrize("name", slow_unless(lambda name: name in QUICK, GFLOP))
def test_operations_are_those_that_were_published(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    graph = read_model(exported(tmp_path_factory, name))
    totals = total_costs(graph, measure_model(graph))
    assert totals.unknown_kinds == {}
    assert totals.flops is not None
    assert totals.flops / 1e9 == pytest.approx(GFLOP[name], rel=0.01)


@pytest.mark.parametrize("batch", BATCHES)
def test_operations_at_a_batch_are_exactly_those_that_were_published(
    tmp_path_factory: pytest.TempPathFactory, batch: int
) -> None:
    graph = read_model(exported(tmp_path_factory, "shufflenet_open"), batch=batch)
    assert round(measure_model(graph)["flops"].sum() / 1e9, 3) == BATCHES[batch]


@pytest.mark.slow
@pytest.mark.parametrize("batch", CHANGED)
def test_operations_of_the_modified_network_are_near_those_that_were_published(
    tmp_path_factory: pytest.TempPathFactory, batch: int
) -> None:
    graph = read_model(exported(tmp_path_factory, "shufflenet_changed"), batch=batch)
    assert measure_model(graph)["flops"].sum() / 1e9 == pytest.approx(CHANGED[batch], rel=0.005)


@pytest.mark.parametrize("name", slow_unless(lambda name: name in QUICK, FUSED))
def test_fused_operators_move_what_was_published(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    groups = measure_fused(read_model(exported(tmp_path_factory, name), batch=128, dtype="float16"))
    assert groups["flops"].null_count() == 0
    moved = (groups["read_nbytes"] + groups["written_nbytes"]).sum()
    assert (groups["flops"].sum() / 1e9, moved / 1e6) == pytest.approx(FUSED[name], rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", BOTH_EXPORTERS)
def test_both_exporters_of_pytorch_agree(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    """Products are equal; other operators differ, as the newer one has GELU and normalisations as single nodes."""
    old, new = (
        sum_costs(measure_model(read_model(exported(tmp_path_factory, name, dynamo=dynamo))), "kind")
        for dynamo in (False, True)
    )
    assert new["product_flops"].sum() == pytest.approx(old["product_flops"].sum(), rel=1e-3)
    assert new["flops"].sum() == pytest.approx(old["flops"].sum(), rel=0.01)


@pytest.mark.parametrize("name", slow_unless(lambda name: name in QUICK, COUNTED))
def test_products_are_those_that_pytorch_counts(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    """PyTorch's own counter has rules for products only, and counts them where the model is run."""
    path = exported(tmp_path_factory, name)
    counted = int(path.with_suffix(".flops").read_text())
    assert measure_model(read_model(path))["product_flops"].sum() == pytest.approx(counted, rel=1e-6)
