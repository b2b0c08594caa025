"""Costs of whole models beside published ones: Tables 3 to 5 of PRoof, for exports with random weights."""

from __future__ import annotations

import pytest

from deepprof.collectors.models.graph import ModelGraph
from deepprof.collectors.models.onnx_model import read_model
from deepprof.metrics.cost.onnx.node_costs import cost_of_node
from tests.onnx_models import QUICK, exported
from tests.widening import slow_unless

GFLOP = {  # Table 3
    **{"resnet34": 7.338, "resnet50": 8.207, "shufflenet_x0_5": 0.084, "shufflenet_x1_0": 0.294},
    **{"mobilenet_v2": 0.621, "mobilenet_v2_x0_5": 0.205, "efficientnet_b0": 0.851, "efficientnet_b4": 3.209},
    **{"efficientnetv2_t": 3.939, "efficientnetv2_s": 6.030, "mixer_b16": 25.403},
    **{"vit_tiny": 2.558, "vit_small": 9.298, "vit_base": 35.329},
    **{"swin_tiny": 9.133, "swin_small": 17.723, "swin_base": 31.183},
}


def count_flops(graph: ModelGraph) -> int:
    costs = [cost_of_node(node, graph) for node in graph.nodes]
    assert None not in costs
    return sum(cost.flops for cost in costs if cost is not None)


@pytest.mark.parametrize("name", slow_unless(lambda name: name in QUICK, GFLOP))
def test_operations_are_those_that_were_published(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    graph = read_model(exported(tmp_path_factory, name))
    assert count_flops(graph) / 1e9 == pytest.approx(GFLOP[name], rel=0.01)
