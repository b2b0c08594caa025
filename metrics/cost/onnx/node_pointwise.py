"""Costs of functions of each element: how many operations each type does for one element of its result."""

from __future__ import annotations

from collections.abc import Mapping

from deepprof.metrics.cost.formulas import FUNCTION_FLOPS
from deepprof.metrics.cost.onnx.node_tensors import NodeCost, NodeTensors, Rule

# A comparison counts as one operation; a power, too: nearly all are squares.
ELEMENT_FLOPS: Mapping[str, int] = {
    **dict.fromkeys(("Abs", "Neg", "Sign", "Floor", "Ceil", "Round", "Reciprocal", "Sqrt", "IsNaN", "IsInf"), 1),
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Pow", "Mod", "BitShift", "Relu", "ThresholdedRelu", "Where"), 1),
    **dict.fromkeys(("And", "Or", "Xor", "Not", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"), 1),
    **dict.fromkeys(("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"), 1),
    **dict.fromkeys(("Exp", "Log", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh"), FUNCTION_FLOPS),
    **dict.fromkeys(("Asinh", "Acosh", "Atanh", "Tanh", "Erf"), FUNCTION_FLOPS),
    **{"Clip": 2, "LeakyRelu": 2, "PRelu": 2, "Shrink": 2, "Softsign": 3, "HardSigmoid": 4, "HardSwish": 5},
    **{"Elu": FUNCTION_FLOPS + 3, "Celu": FUNCTION_FLOPS + 4, "Selu": FUNCTION_FLOPS + 4},
    **{"Sigmoid": FUNCTION_FLOPS + 2, "Swish": FUNCTION_FLOPS + 3, "com.microsoft.QuickGelu": FUNCTION_FLOPS + 4},
    **{"Softplus": 2 * FUNCTION_FLOPS + 1, "Mish": 3 * FUNCTION_FLOPS + 2},
    **{"Gelu": FUNCTION_FLOPS + 4, "com.microsoft.Gelu": FUNCTION_FLOPS + 4},
    **{"com.microsoft.BiasGelu": FUNCTION_FLOPS + 5, "com.microsoft.FastGelu": FUNCTION_FLOPS + 8},
    **{"QuantizeLinear": 3, "DequantizeLinear": 2, "com.microsoft.RotaryEmbedding": 3, "RotaryEmbedding": 3},
    **{"com.microsoft.QLinearAdd": 8, "com.microsoft.QLinearMul": 8, "com.microsoft.QLinearLeakyRelu": 7},
    "com.microsoft.QLinearSigmoid": FUNCTION_FLOPS + 7,
}
VARIADIC = ("Sum", "Mean", "Max", "Min")


def _apply(tensors: NodeTensors) -> NodeCost:
    return tensors.cost(ELEMENT_FLOPS[tensors.node.kind] * tensors.output.elements)


def _combine(tensors: NodeTensors) -> NodeCost:
    """Return the cost of a function of several tensors: an operation for each after the first, and a quotient."""
    count = len(tensors.inputs) - 1 + (tensors.node.kind == "Mean")
    return tensors.cost(count * tensors.output.elements)


def _quantize_dynamically(tensors: NodeTensors) -> NodeCost:
    """Return the cost of DynamicQuantizeLinear: the range of all elements, then each is quantised."""
    return tensors.cost((2 + ELEMENT_FLOPS["QuantizeLinear"]) * tensors.input(0).elements)


POINTWISE_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(ELEMENT_FLOPS, _apply),
    **dict.fromkeys(VARIADIC, _combine),
    "DynamicQuantizeLinear": _quantize_dynamically,
}
