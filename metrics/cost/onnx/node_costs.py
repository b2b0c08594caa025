"""The cost of a node: the rule of its type, applied to its tensors."""

from __future__ import annotations

from collections.abc import Mapping

from deepprof.collectors.models.graph import ModelGraph, ModelNode
from deepprof.metrics.cost.onnx.node_attention import ATTENTION_RULES
from deepprof.metrics.cost.onnx.node_moves import MOVE_RULES
from deepprof.metrics.cost.onnx.node_pointwise import POINTWISE_RULES
from deepprof.metrics.cost.onnx.node_products import PRODUCT_RULES
from deepprof.metrics.cost.onnx.node_tensors import NodeCost, NodeTensors, Rule
from deepprof.metrics.cost.onnx.node_windows import WINDOW_RULES
from deepprof.metrics.cost.operation_cost import OperationCost

NODE_RULES: Mapping[str, Rule] = {
    **PRODUCT_RULES,
    **ATTENTION_RULES,
    **POINTWISE_RULES,
    **WINDOW_RULES,
    **MOVE_RULES,
}


def cost_of_node(node: ModelNode, graph: ModelGraph) -> OperationCost | None:
    """Return the cost of a node, None where its type has no rule: subgraphs, operators of other domains, rare forms."""
    found = cost_by_tensor(node, graph)
    return None if found is None else found.add_up()


def cost_by_tensor(node: ModelNode, graph: ModelGraph) -> NodeCost | None:
    """Return the cost of a node with the bytes of each of its tensors, None where its type has no rule."""
    rule = NODE_RULES.get(node.kind)
    return None if rule is None else rule(NodeTensors.of(node, graph))
