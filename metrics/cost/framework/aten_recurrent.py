"""Rules of recurrent layers that a library computes as a whole: their matrix products; gates are left out, as small."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from deepprof.metrics.cost.framework.operator_call import Operand, OperatorCall, Rule, UnfitOperandsError, size_of
from deepprof.metrics.cost.operation_cost import OperationCost


def _count_products(call: OperatorCall, weights: Operand) -> int:
    """Return the operations of a forward pass: every row of the input, and of the state, meets every weight."""
    matrices = [shape for shape in weights.shapes if len(shape) == 2]
    if not matrices or len(call.shape(0)) != 3:
        raise UnfitOperandsError(f"{call.name}: its weights or its sequences are not recorded")
    return 2 * prod(call.shape(0)[:2]) * sum(map(prod, matrices))


def _onednn_weights(call: OperatorCall) -> Operand:
    pair = (call.tensor(1), call.tensor(2))
    return Operand((call.shape(1), call.shape(2)), pair[0].dtype, sum(weight.held for weight in pair))


def _onednn_forward(call: OperatorCall) -> OperationCost:
    """`mkldnn_rnn_layer(input, weight, weight, bias, bias, hx, cx, …)` of one layer in one direction."""
    weights, given = _onednn_weights(call), call.tensor(0)
    flops = _count_products(call, weights)
    written = size_of(prod(call.shape(0)[:2]) * call.shape(5)[-1], given.dtype)
    return OperationCost(flops, call.nbytes, written, flops, given.dtype)


def _onednn_backward(call: OperatorCall) -> OperationCost:
    """`mkldnn_rnn_layer_backward(input, weight, weight, bias, bias, hx, cx, …)`: both gradients of every product."""
    weights, given = _onednn_weights(call), call.tensor(0)
    flops = 2 * _count_products(call, weights)
    return OperationCost(flops, call.nbytes, given.nbytes + weights.nbytes, flops, given.dtype)


def _library_forward(call: OperatorCall) -> OperationCost:
    """`_cudnn_rnn(input, weight, …)`, `miopen_rnn`: all layers and directions, their weights in a list."""
    given, weights = call.tensor(0), call.operand(1)
    flops = _count_products(call, weights)
    widest = max(shape[-1] for shape in weights.shapes if len(shape) == 2)
    written = size_of(prod(call.shape(0)[:2]) * widest, given.dtype)
    return OperationCost(flops, given.nbytes + size_of(weights.held, given.dtype), written, flops, given.dtype)


def _library_backward(call: OperatorCall) -> OperationCost:
    """`_cudnn_rnn_backward(input, weight, …)`, `miopen_rnn_backward`."""
    given, weights = call.tensor(0), call.operand(1)
    flops, size = 2 * _count_products(call, weights), size_of(weights.held, given.dtype)
    return OperationCost(flops, 2 * given.nbytes + size, given.nbytes + size, flops, given.dtype)


RULES: Mapping[str, Rule] = {
    "aten::mkldnn_rnn_layer": _onednn_forward,
    "aten::mkldnn_rnn_layer_backward": _onednn_backward,
    **dict.fromkeys(("aten::_cudnn_rnn", "aten::miopen_rnn"), _library_forward),
    **dict.fromkeys(("aten::_cudnn_rnn_backward", "aten::miopen_rnn_backward"), _library_backward),
}
