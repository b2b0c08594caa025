"""Costs of what joins several elements: pooling, reductions, softmax and normalisations."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from deepprof.metrics.cost.formulas import FUNCTION_FLOPS, SOFTMAX_FLOPS
from deepprof.metrics.cost.onnx.node_tensors import NodeCost, NodeTensors, Rule

# Operations for each element of the input.
INPUT_FLOPS: Mapping[str, int] = {
    **dict.fromkeys(("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ArgMax", "ArgMin"), 1),
    **{"ReduceL1": 2, "ReduceL2": 2, "ReduceSumSquare": 2, "ReduceLogSum": 1, "ReduceLogSumExp": FUNCTION_FLOPS + 3},
    **dict.fromkeys(("GlobalMaxPool", "CumSum", "CumProd", "TopK", "Hardmax"), 1),
    **{"GlobalLpPool": 2, "LpNormalization": 3, "com.microsoft.BiasSoftmax": SOFTMAX_FLOPS + 1},
    **dict.fromkeys(("Softmax", "LogSoftmax"), SOFTMAX_FLOPS),
    # Mean, difference, square, variance, quotient; then scale and shift where the operator has them.
    **dict.fromkeys(
        ("LayerNormalization", "InstanceNormalization", "GroupNormalization", "com.microsoft.GroupNorm"), 7
    ),
    **{"MeanVarianceNormalization": 5, "com.microsoft.SkipLayerNormalization": 8},
    **{"BatchNormalization": 2, "com.microsoft.SkipSimplifiedLayerNormalization": 5},
    # Square, mean, quotient, scale.
    **{"RMSNormalization": 4, "SimplifiedLayerNormalization": 4, "com.microsoft.SimplifiedLayerNormalization": 4},
}
WINDOWS = ("MaxPool", "AveragePool", "com.microsoft.QLinearAveragePool", "com.microsoft.NhwcMaxPool")


def _reduce(tensors: NodeTensors) -> NodeCost:
    return tensors.cost(INPUT_FLOPS[tensors.node.kind] * tensors.input(0).elements)


def _average(tensors: NodeTensors) -> NodeCost:
    """Return the cost of a mean over all or some dimensions: a sum, and a quotient for each result."""
    return tensors.cost(tensors.input(0).elements + tensors.output.elements)


def _pool(tensors: NodeTensors) -> NodeCost:
    """Return the cost of pooling: each result joins the elements of a window."""
    return tensors.cost(tensors.output.elements * prod(tensors.numbers("kernel_shape")))


def _pool_powers(tensors: NodeTensors) -> NodeCost:
    return tensors.cost(2 * tensors.output.elements * prod(tensors.numbers("kernel_shape")))


def _normalize_locally(tensors: NodeTensors) -> NodeCost:
    """Return the cost of LRN: squares of neighbouring channels are added, then a power, a product and a quotient."""
    return tensors.cost((tensors.number("size", 1) + 5) * tensors.input(0).elements)


WINDOW_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(INPUT_FLOPS, _reduce),
    **dict.fromkeys(WINDOWS, _pool),
    **dict.fromkeys(("ReduceMean", "GlobalAveragePool", "com.microsoft.QLinearGlobalAveragePool"), _average),
    **{"LpPool": _pool_powers, "LRN": _normalize_locally},
}
