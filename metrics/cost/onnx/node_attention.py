"""Costs of attention in one node, and of recurrent layers."""

from __future__ import annotations

from collections.abc import Mapping

from deepprof.metrics.cost.formulas import SOFTMAX_FLOPS, count_attention, count_product
from deepprof.metrics.cost.onnx.node_tensors import NodeCost, NodeTensors, Rule

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
# Of an element of the state in one step: for each gate two sums and a function, then those that join the gates.
CELL_FLOPS = {"LSTM": 4 * 3 + 5, "GRU": 3 * 3 + 4, "RNN": 3}


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
