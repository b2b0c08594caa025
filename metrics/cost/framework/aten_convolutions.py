"""Rules of convolutions: forward, transposed, and both backward passes, whatever library computes them."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from msgspec import Struct

from deepprof.metrics.cost.framework.operator_call import OperatorCall, Rule, Shape, UnfitOperandsError, size_of
from deepprof.metrics.cost.operation_cost import OperationCost, count_convolution


class _ConvolutionForm(Struct, frozen=True):
    """Where an operator has its arguments, after the input and the weight.

    `transposed` is whether it always is, or the place of the argument that reports it. A place that is None has the
    argument's usual value.
    """

    stride: int
    padding: int
    dilation: int | None
    bias: int | None = 2
    transposed: bool | int = False
    output_padding: int | None = None


def _convolve(call: OperatorCall, form: _ConvolutionForm) -> OperationCost:
    given, weight = call.shape(0), call.shape(1)
    sides = len(weight) - 2
    if sides < 1 or len(given) not in {sides + 1, sides + 2}:
        raise UnfitOperandsError(f"{call.name}: an input of {len(given)} sides meets a weight of {len(weight)}")
    transposed = _is_transposed(call, form)
    output = (*given[: len(given) - sides - 1], *_output_sides(call, form, transposed))
    flops = count_convolution(given if transposed else output, weight)
    added = prod(output) if form.bias is not None and call.is_tensor(form.bias) else 0
    dtype = call.tensor(0).dtype
    return OperationCost(flops + added, call.nbytes, size_of(prod(output), dtype), flops, dtype)


def _is_transposed(call: OperatorCall, form: _ConvolutionForm) -> bool:
    return form.transposed if isinstance(form.transposed, bool) else call.flag(form.transposed)


def _output_sides(call: OperatorCall, form: _ConvolutionForm, transposed: bool) -> Shape:
    given, weight = call.shape(0), call.shape(1)
    sides = len(weight) - 2
    stride, dilation = _spread(call, form.stride, sides, 1), _spread(call, form.dilation, sides, 1)
    kernel = [step * (side - 1) + 1 for step, side in zip(dilation, weight[2:], strict=True)]
    padding = [2 * pad for pad in _spread(call, form.padding, sides, 0)]
    rows = list(zip(given[-sides:], kernel, stride, padding, strict=True))
    if not transposed:
        return (weight[0], *((side + pad - reach) // step + 1 for side, reach, step, pad in rows))
    more = _spread(call, form.output_padding, sides, 0)
    groups = _count_groups(given[-sides - 1], weight[0], call)
    found = (
        (side - 1) * step - pad + reach + extra for (side, reach, step, pad), extra in zip(rows, more, strict=True)
    )
    return (weight[1] * groups, *found)


def _count_groups(channels: int, inputs: int, call: OperatorCall) -> int:
    """Return the groups of a transposed convolution, which its weight does not show."""
    if channels != inputs:
        raise UnfitOperandsError(f"{call.name}: {channels} channels meet a weight of {inputs}")
    place = GROUPS.get(call.name)
    return 1 if place is None else call.integers(place)[0]


def _spread(call: OperatorCall, place: int | None, sides: int, usual: int) -> Shape:
    """Return an argument of one integer or one per side as one per side."""
    if place is None:
        return (usual,) * sides
    found = call.integers(place)
    if len(found) not in {1, sides} or any(value < 0 for value in found):
        raise UnfitOperandsError(f"{call.name}: argument {place} is {found}")
    return found if len(found) == sides else found * sides


def _backward(call: OperatorCall) -> OperationCost:
    """`convolution_backward(grad_output, input, weight, …, transposed, …, output_mask)`, `_slow_conv2d_backward`.

    The gradients of input and weight take a convolution's operations each, that of the bias a sum.
    """
    gradient, given, weight = call.tensor(0), call.tensor(1), call.tensor(2)
    transposed = call.name in GENERAL_BACKWARD and call.flag(7)
    one = count_convolution(call.shape(1 if transposed else 0), call.shape(2))
    mask = (*call.flags(10 if call.name in GENERAL_BACKWARD else 6), False, False, False)
    channels = call.shape(0)[-(len(call.shape(2)) - 1)]
    flops, added = one * (mask[0] + mask[1]), gradient.elements * mask[2]
    read = gradient.nbytes + weight.nbytes * mask[0] + given.nbytes * mask[1]
    written = given.nbytes * mask[0] + weight.nbytes * mask[1] + size_of(channels, weight.dtype) * mask[2]
    return OperationCost(flops + added, read, written, flops, given.dtype)


def _rule(form: _ConvolutionForm) -> Rule:
    return lambda call: _convolve(call, form)


GENERAL_BACKWARD = ("aten::convolution_backward", "aten::convolution_backward_overrideable")
GENERAL = _ConvolutionForm(3, 4, 5, transposed=6, output_padding=7)
PLAIN = _ConvolutionForm(3, 4, 5)
LIBRARY = _ConvolutionForm(4, 3, 5)  # MIOpen, oneDNN: the padding is first
SLOW = _ConvolutionForm(4, 5, None, bias=3)  # kernel_size is before the bias
DILATED = _ConvolutionForm(4, 5, 6, bias=3)
TRANSPOSED = _ConvolutionForm(3, 4, 7, transposed=True, output_padding=5)
FORMS: Mapping[str, _ConvolutionForm] = {
    **dict.fromkeys(("aten::convolution", "aten::_convolution", "aten::convolution_overrideable"), GENERAL),
    **dict.fromkeys(("aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::_convolution_mode"), PLAIN),
    **dict.fromkeys(("aten::cudnn_convolution_relu", "aten::miopen_convolution_relu"), PLAIN),
    **dict.fromkeys(("aten::miopen_convolution", "aten::mkldnn_convolution"), LIBRARY),
    **dict.fromkeys(("aten::miopen_depthwise_convolution", "mkldnn::_convolution_pointwise"), LIBRARY),
    "aten::cudnn_convolution": _ConvolutionForm(3, 2, 4, bias=None),
    "aten::cudnn_convolution_transpose": _ConvolutionForm(4, 2, 5, bias=None, transposed=True, output_padding=3),
    "aten::miopen_convolution_transpose": _ConvolutionForm(5, 3, 6, transposed=True, output_padding=4),
    **dict.fromkeys(("aten::_slow_conv2d_forward", "aten::thnn_conv2d", "aten::slow_conv3d_forward"), SLOW),
    **dict.fromkeys(("aten::slow_conv_dilated2d", "aten::slow_conv_dilated3d"), DILATED),
    **dict.fromkeys(("aten::_conv_depthwise2d", "aten::conv_depthwise3d"), DILATED),
    **dict.fromkeys(("aten::conv_transpose1d", "aten::conv_transpose2d", "aten::conv_transpose3d"), TRANSPOSED),
    "aten::slow_conv_transpose2d": _ConvolutionForm(4, 5, 7, bias=3, transposed=True, output_padding=6),
    "aten::slow_conv_transpose3d": _ConvolutionForm(4, 5, 7, bias=3, transposed=True, output_padding=6),
}
# The place of `groups` where an operator may be transposed; the slow ones have none.
GROUPS: Mapping[str, int] = {
    **dict.fromkeys(("aten::convolution", "aten::_convolution", "aten::convolution_overrideable"), 8),
    **dict.fromkeys(("aten::conv_transpose1d", "aten::conv_transpose2d", "aten::conv_transpose3d"), 6),
    "aten::cudnn_convolution_transpose": 6,
    "aten::miopen_convolution_transpose": 7,
}
RULES: Mapping[str, Rule] = {
    **{name: _rule(form) for name, form in FORMS.items()},
    **dict.fromkeys((*GENERAL_BACKWARD, "aten::_slow_conv2d_backward"), _backward),
}
