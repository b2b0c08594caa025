"""The cost of a node: the rule of its type, applied to its tensors; of all types but products."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from deepprof.collectors.models.graph import ModelGraph, ModelNode
from deepprof.metrics.cost.onnx.node_products import PRODUCT_RULES
from deepprof.metrics.cost.onnx.node_tensors import NodeCost, NodeTensors, Rule
from deepprof.metrics.cost.operation_cost import (
    FUNCTION_FLOPS,
    SOFTMAX_FLOPS,
    OperationCost,
    count_attention,
    count_product,
)

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

# These change how elements are counted, not where they are; dropout is for training.
FREE = ("Shape", "Size", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Constant", "Dropout")
WHOLE = (  # all inputs are read, all results written
    *("Transpose", "Concat", "Pad", "Tile", "Expand", "Cast", "CastLike", "DepthToSpace", "SpaceToDepth", "OneHot"),
    *("ConstantOfShape", "Range", "EyeLike", "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike"),
    *("ScatterND", "ScatterElements", "Scatter", "NonZero", "Compress", "ReverseSequence", "Col2Im", "Bernoulli"),
    "com.microsoft.QLinearConcat",
)
PARTS = ("Slice", "Split", "Trilu", "CenterCropPad")  # only what becomes a result is read
GATHERING = ("Gather", "GatherElements", "GatherND")
TAPS = {"nearest": 1, "linear": 2, "bilinear": 2, "cubic": 4}  # elements along each dimension that make one

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
# Of an element of the state in one step: for every gate two sums and a function, then those that join the gates.
CELL_FLOPS = {"LSTM": 4 * 3 + 5, "GRU": 3 * 3 + 4, "RNN": 3}

# Operations for every element of the input.
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


def cost_of_node(node: ModelNode, graph: ModelGraph) -> OperationCost | None:
    """Return the cost of a node, None where its type has no rule: subgraphs, operators of other domains, rare forms."""
    found = cost_by_tensor(node, graph)
    return None if found is None else found.add_up()


def cost_by_tensor(node: ModelNode, graph: ModelGraph) -> NodeCost | None:
    """Return the cost of a node with the bytes of each of its tensors, None where its type has no rule."""
    rule = NODE_RULES.get(node.kind)
    return None if rule is None else rule(NodeTensors.of(node, graph))


def _reduce(tensors: NodeTensors) -> NodeCost:
    return tensors.cost(INPUT_FLOPS[tensors.node.kind] * tensors.input(0).elements)


def _average(tensors: NodeTensors) -> NodeCost:
    """Return the cost of a mean over all or some dimensions: a sum, and a quotient for every result."""
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


def _attend(tensors: NodeTensors) -> NodeCost | None:
    """Return the cost of ONNX's Attention: N × heads × length × size, or N × length × (heads · size)."""
    query, value = tensors.input(0).shape, tensors.input(2).shape
    heads = query[1] if len(query) == 4 else tensors.number("q_num_heads", 0)
    shared = value[1] if len(value) == 4 else tensors.number("kv_num_heads", 0)
    if not heads or not shared or len(query) < 3:
        return None
    size = query[-1] if len(query) == 4 else query[-1] // heads
    value_size = value[-1] if len(value) == 4 else value[-1] // shared
    past = tensors.input(4).shape
    keys = value[-2] + (past[2] if len(past) == 4 else 0)
    return _cost_attention(
        tensors, query[0] * heads, (query[-2], keys), (size, value_size), tensors.number("is_causal", 0)
    )


def _attend_heads(tensors: NodeTensors) -> NodeCost | None:
    """Return the cost of onnxruntime's MultiHeadAttention: N × length × (heads · size)."""
    query, value = tensors.input(0).shape, tensors.input(2).shape
    heads = tensors.number("num_heads", 0)
    if not heads or len(query) != 3 or len(value) not in {3, 4}:
        return None  # packed operands
    value_size = value[-1] if len(value) == 4 else value[-1] // heads
    causal = tensors.number("unidirectional", 0)
    return _cost_attention(tensors, query[0] * heads, (query[1], value[-2]), (query[-1] // heads, value_size), causal)


def _attend_groups(tensors: NodeTensors) -> NodeCost | None:
    """Return the cost of onnxruntime's GroupQueryAttention, which is causal, over the keys that it returns."""
    heads = tensors.number("num_heads", 0)
    present = tensors.outputs[1].shape if len(tensors.outputs) > 1 else ()
    query = tensors.output.shape
    if not heads or len(query) != 3 or len(present) != 4:
        return None
    size = query[-1] // heads
    return _cost_attention(tensors, query[0] * heads, (query[1], present[2]), (size, size), 1)


def _attend_projected(tensors: NodeTensors) -> NodeCost | None:
    """Return the cost of onnxruntime's Attention, which projects its input to queries, keys and values first."""
    data, weight = tensors.input(0).shape, tensors.input(1).shape
    heads = tensors.number("num_heads", 0)
    if not heads or len(data) != 3 or len(weight) != 2 or tensors.input(4).elements:
        return None  # with keys of the past
    projected = count_product(data[0] * data[1], weight[0], weight[1])
    hidden = tensors.output.shape[-1]
    query = (weight[1] - hidden) // 2  # the values' size is the result's
    sizes = (query // heads, hidden // heads)
    inner = _cost_attention(tensors, data[0] * heads, (data[1], data[1]), sizes, tensors.number("unidirectional", 0))
    bias = data[0] * data[1] * weight[1] if tensors.input(2).elements else 0
    return tensors.cost(inner.flops + projected + bias, inner.product_flops + projected)


def _cost_attention(
    tensors: NodeTensors, heads: int, lengths: tuple[int, int], sizes: tuple[int, int], is_causal: int
) -> NodeCost:
    """Return the cost of two products with a softmax between them.

    `heads` are those of all batches, `lengths` how many queries and keys there are, `sizes` those of a key and a value.
    """
    products = count_attention(*lengths, *sizes, heads, is_causal=bool(is_causal))
    pairs = count_attention(*lengths, 1, 0, heads, is_causal=bool(is_causal)) // 2
    return tensors.cost(products + SOFTMAX_FLOPS * pairs, products)


def _recur(tensors: NodeTensors) -> NodeCost:
    """Return the cost of a recurrent layer: X is length × batch × inputs, W directions × (gates · hidden) × inputs."""
    data, weight = tensors.input(0).shape, tensors.input(1).shape
    kind = tensors.node.kind
    directions, hidden = weight[0], weight[1] // GATES[kind]
    steps = data[0] * data[1] * directions  # of one direction of one sequence
    products = count_product(steps, weight[2] + hidden, weight[1])
    return tensors.cost(products + CELL_FLOPS[kind] * steps * hidden, products)


ATTENTION_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(GATES, _recur),
    **{"Attention": _attend, "com.microsoft.MultiHeadAttention": _attend_heads},
    **{"com.microsoft.GroupQueryAttention": _attend_groups, "com.microsoft.Attention": _attend_projected},
}


def _do_nothing(_: NodeTensors) -> NodeCost:
    return NodeCost(0, {}, {})


def _move(tensors: NodeTensors) -> NodeCost:
    return tensors.cost(0)


def _take_part(tensors: NodeTensors) -> NodeCost:
    """Return the cost of copying a part: what is written is what was read, next to bounds and sizes."""
    written = sum(spec.nbytes for spec in tensors.outputs)
    return tensors.cost(0, first_nbytes=min(written, tensors.input(0).nbytes))


def _gather(tensors: NodeTensors) -> NodeCost:
    """Return the cost of a look-up: the indices, and of the table what they name."""
    return tensors.cost(0, first_nbytes=tensors.output.nbytes)


def _resize(tensors: NodeTensors) -> NodeCost:
    """Return the cost of Resize or Upsample: a weighted sum of near elements along each dimension that changes."""
    data, output = tensors.input(0), tensors.output
    changed = sum(before != after for before, after in zip(data.shape, output.shape, strict=False))
    taps = TAPS.get(tensors.text("mode", "nearest"), 2) ** changed
    seen = min(data.nbytes, output.nbytes * taps)
    return tensors.cost((2 * taps - 1 if taps > 1 else 0) * output.elements, first_nbytes=seen)


def _sample(tensors: NodeTensors) -> NodeCost:
    """Return the cost of GridSample: a weighted sum of the nearest elements at places that a grid gives."""
    dims = len(tensors.output.shape) - 2
    taps = TAPS.get(tensors.text("mode", "linear"), 2) ** dims
    seen = min(tensors.input(0).nbytes, tensors.output.nbytes * taps)
    return tensors.cost((2 * taps - 1 if taps > 1 else 0) * tensors.output.elements, first_nbytes=seen)


MOVE_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(FREE, _do_nothing),
    **dict.fromkeys(WHOLE, _move),
    **dict.fromkeys(PARTS, _take_part),
    **dict.fromkeys(GATHERING, _gather),
    **{"Resize": _resize, "Upsample": _resize, "GridSample": _sample},
}


def _apply(tensors: NodeTensors) -> NodeCost:
    return tensors.cost(ELEMENT_FLOPS[tensors.node.kind] * tensors.output.elements)


def _combine(tensors: NodeTensors) -> NodeCost:
    """Return the cost of a function of several tensors: an operation for every after the first, and a quotient."""
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
NODE_RULES: Mapping[str, Rule] = {
    **PRODUCT_RULES,
    **ATTENTION_RULES,
    **POINTWISE_RULES,
    **WINDOW_RULES,
    **MOVE_RULES,
}
