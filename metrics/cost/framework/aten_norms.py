"""Rules of normalisations: batch, layer, group and root mean square, forward and backward.

Operations per element: a mean uses 1, a variance 3 (difference, square, sum), the quotient 1, a weight and a bias 1
each. With known statistics a batch norm is a scale and a shift. Backward they are 9: normalising again, two sums, and
the gradient of the input; the weights' gradients are those sums.
"""

from __future__ import annotations

from collections.abc import Mapping

from deepprof.metrics.cost.framework.operator_call import Operand, OperatorCall, Rule
from deepprof.metrics.cost.operation_cost import OperationCost

MEAN, VARIANCE, MEAN_SQUARE, QUOTIENT, SCALE = 1, 3, 2, 1, 1
SCALE_AND_SHIFT = 2
BACKWARD = 9
BACKWARD_RMS = 7  # no mean is subtracted, and one sum is less


def _batch_norm(call: OperatorCall, *, training: int | None = 5) -> OperationCost:
    """`native_batch_norm(input, weight, bias, running_mean, running_var, training, …)`.

    `training` is the place of that argument, None: it always is. In training the running statistics are written too.
    """
    given = call.tensor(0)
    is_training = training is None or call.flag(training)
    scaled = SCALE * (call.is_tensor(1) + call.is_tensor(2))
    each = MEAN + VARIANCE + QUOTIENT + scaled if is_training else SCALE_AND_SHIFT
    running = call.operand(3).nbytes + call.operand(4).nbytes if is_training else 0
    return OperationCost(each * given.elements, call.nbytes, given.nbytes + running)


def _layer_norm(call: OperatorCall) -> OperationCost:
    """`native_layer_norm(input, normalized_shape, weight, bias, eps)`."""
    given = call.tensor(0)
    each = MEAN + VARIANCE + QUOTIENT + SCALE * (call.is_tensor(2) + call.is_tensor(3))
    return OperationCost(each * given.elements, call.nbytes, given.nbytes)


def _group_norm(call: OperatorCall) -> OperationCost:
    """`native_group_norm(input, weight, bias, …)`."""
    given = call.tensor(0)
    each = MEAN + VARIANCE + QUOTIENT + SCALE * (call.is_tensor(1) + call.is_tensor(2))
    return OperationCost(each * given.elements, call.nbytes, given.nbytes)


def _rms_norm(call: OperatorCall) -> OperationCost:
    """`_fused_rms_norm(input, normalized_shape, weight, eps)`: the mean of the squares, a product, the weight."""
    given = call.tensor(0)
    each = MEAN_SQUARE + QUOTIENT + SCALE * call.is_tensor(2)
    return OperationCost(each * given.elements, call.nbytes, given.nbytes)


def _rms_norm_into(call: OperatorCall) -> OperationCost:
    """`_C::rms_norm(result, input, weight, epsilon)` of vLLM and AITER: the result is an operand."""
    result, given = call.tensor(0), call.tensor(1)
    return OperationCost((MEAN_SQUARE + QUOTIENT + SCALE) * given.elements, call.nbytes - result.nbytes, result.nbytes)


def _added_rms_norm(call: OperatorCall) -> OperationCost:
    """`_C::fused_add_rms_norm(input, residual, weight, epsilon)`: adds in place, then normalises in place."""
    given, residual = call.tensor(0), call.tensor(1)
    each = 1 + MEAN_SQUARE + QUOTIENT + SCALE
    return OperationCost(each * given.elements, call.nbytes, given.nbytes + residual.nbytes)


def _added_rms_norm_into(call: OperatorCall) -> OperationCost:
    """`aiter::add_rmsnorm(result, input, residual_in, residual_out, weight, epsilon)`."""
    result, given, _, residual = (call.tensor(place) for place in range(4))
    written = result.nbytes + residual.nbytes
    return OperationCost((1 + MEAN_SQUARE + QUOTIENT + SCALE) * given.elements, call.nbytes - written, written)


def _backward(call: OperatorCall, *, given: int = 1, weight: int = 2, each: int = BACKWARD) -> OperationCost:
    """Return the cost of a backward pass, which writes the gradients of the input and of weight and bias.

    `given` and `weight` are their places. A mask at the end, where there is one, states which gradients are requested.
    """
    mask = call.flags(len(call) - 1) if call.operand(len(call) - 1).value.startswith("[") else (True, True, True)
    scale: Operand = call.operand(weight)
    written = call.tensor(given).nbytes * mask[0] + scale.nbytes * sum(mask[1:])
    return OperationCost(each * call.tensor(given).elements, call.nbytes, written)


def _batch_norm_backward(call: OperatorCall) -> OperationCost:
    """`native_batch_norm_backward(grad_out, input, weight, …)`."""
    return _backward(call)


def _library_batch_norm_backward(call: OperatorCall) -> OperationCost:
    """`cudnn_batch_norm_backward(input, grad_output, weight, …)`, `miopen_batch_norm_backward`."""
    return _backward(call, given=0)


def _layer_norm_backward(call: OperatorCall) -> OperationCost:
    """`native_layer_norm_backward(grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask)`."""
    return _backward(call, weight=5)


def _group_norm_backward(call: OperatorCall) -> OperationCost:
    """`native_group_norm_backward(grad_out, input, mean, rstd, weight, …, output_mask)`."""
    return _backward(call, weight=4)


def _rms_norm_backward(call: OperatorCall) -> OperationCost:
    """`_fused_rms_norm_backward(grad_out, input, normalized_shape, rstd, weight, output_mask)`."""
    return _backward(call, weight=4, each=BACKWARD_RMS)


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("aten::native_batch_norm", "aten::_native_batch_norm_legit"), _batch_norm),
    **dict.fromkeys(("aten::cudnn_batch_norm", "aten::miopen_batch_norm"), _batch_norm),
    "aten::batch_norm": _batch_norm,
    "aten::_batch_norm_with_update": lambda call: _batch_norm(call, training=None),
    **dict.fromkeys(("aten::native_batch_norm_backward", "aten::batch_norm_backward"), _batch_norm_backward),
    **dict.fromkeys(
        ("aten::cudnn_batch_norm_backward", "aten::miopen_batch_norm_backward"), _library_batch_norm_backward
    ),
    **dict.fromkeys(("aten::native_layer_norm", "aten::layer_norm"), _layer_norm),
    "aten::native_layer_norm_backward": _layer_norm_backward,
    "aten::native_group_norm": _group_norm,
    "aten::native_group_norm_backward": _group_norm_backward,
    **dict.fromkeys(("aten::_fused_rms_norm", "aten::rms_norm"), _rms_norm),
    "aten::_fused_rms_norm_backward": _rms_norm_backward,
    **dict.fromkeys(("_C::rms_norm", "aiter::rmsnorm", "sgl_kernel::rmsnorm"), _rms_norm_into),
    **dict.fromkeys(("_C::fused_add_rms_norm", "sgl_kernel::fused_add_rmsnorm"), _added_rms_norm),
    "aiter::add_rmsnorm": _added_rms_norm_into,
}
