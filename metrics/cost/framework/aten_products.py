"""Rules of matrix products: `mm` and its kin, linear layers, products of scaled and small types."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from deepprof.metrics.cost.framework.operator_call import (
    OperatorCall,
    Rule,
    Shape,
    UnfitOperandsError,
    broadcast,
    size_of,
)
from deepprof.metrics.cost.operation_cost import OperationCost, count_product


def _product(call: OperatorCall, left: int, flops: int, result: Shape, added: int = 0) -> OperationCost:
    """Return the cost of a product of `flops`, which reads every tensor of the call and writes one of shape `result`.

    The result has the type of the operand at `left`; `added` are other operations, such as those of a bias.
    """
    dtype = call.tensor(left).dtype
    return OperationCost(flops + added, call.nbytes, size_of(prod(result), dtype), flops, dtype)


def _check_inner(call: OperatorCall, left: int, right: int) -> int:
    """Return the length over which two matrices are multiplied; raise if theirs differ."""
    if left != right:
        raise UnfitOperandsError(f"{call.name}: {left} columns meet {right} rows")
    return left


def _mm(call: OperatorCall) -> OperationCost:
    """`mm(self, mat2)`."""
    (rows, inner), (other, columns) = call.shape(0, 2), call.shape(1, 2)
    return _product(call, 0, count_product(rows, _check_inner(call, inner, other), columns), (rows, columns))


def _addmm(call: OperatorCall) -> OperationCost:
    """`addmm(self, mat1, mat2, beta, alpha)`: adds `self`, broadcast."""
    (rows, inner), (other, columns) = call.shape(1, 2), call.shape(2, 2)
    flops = count_product(rows, _check_inner(call, inner, other), columns)
    return _product(call, 1, flops, (rows, columns), added=rows * columns)


def _bmm(call: OperatorCall) -> OperationCost:
    """`bmm(self, mat2)`."""
    (batch, rows, inner), (_, other, columns) = call.shape(0, 3), call.shape(1, 3)
    flops = count_product(rows, _check_inner(call, inner, other), columns, batch)
    return _product(call, 0, flops, (batch, rows, columns))


def _baddbmm(call: OperatorCall) -> OperationCost:
    """`baddbmm(self, batch1, batch2, …)`; `addbmm` adds up the batch too."""
    (batch, rows, inner), (_, other, columns) = call.shape(1, 3), call.shape(2, 3)
    flops = count_product(rows, _check_inner(call, inner, other), columns, batch)
    result = (rows, columns) if "addbmm" in call.name.replace("baddbmm", "") else (batch, rows, columns)
    return _product(call, 1, flops, result, added=batch * rows * columns)


def _mv(call: OperatorCall) -> OperationCost:
    """`mv(self, vec)`."""
    (rows, inner), (other,) = call.shape(0, 2), call.shape(1, 1)
    return _product(call, 0, count_product(rows, _check_inner(call, inner, other), 1), (rows,))


def _addmv(call: OperatorCall) -> OperationCost:
    """`addmv(self, mat, vec, …)`."""
    (rows, inner), (other,) = call.shape(1, 2), call.shape(2, 1)
    return _product(call, 1, count_product(rows, _check_inner(call, inner, other), 1), (rows,), added=rows)


def _dot(call: OperatorCall) -> OperationCost:
    """`dot(self, tensor)`."""
    (inner,), (other,) = call.shape(0, 1), call.shape(1, 1)
    return _product(call, 0, count_product(1, _check_inner(call, inner, other), 1), ())


def _outer(call: OperatorCall) -> OperationCost:
    """`ger(self, vec2)`: a multiplication for every element of the result."""
    (rows,), (columns,) = call.shape(0, 1), call.shape(1, 1)
    return OperationCost(rows * columns, call.nbytes, size_of(rows * columns, call.tensor(0).dtype))


def _matmul(call: OperatorCall) -> OperationCost:
    """`matmul(self, other)`: vectors count as a matrix of one row or column, further sides are broadcast."""
    left, right = call.shape(0), call.shape(1)
    if not left or not right:
        raise UnfitOperandsError(f"{call.name}: multiplies a scalar")
    (rows, inner) = left[-2:] if len(left) > 1 else (1, left[0])
    (other, columns) = right[-2:] if len(right) > 1 else (right[0], 1)
    batch = broadcast([left[:-2], right[:-2]])
    flops = count_product(rows, _check_inner(call, inner, other), columns, prod(batch))
    return _product(call, 0, flops, (*batch, rows, columns))


def _linear(call: OperatorCall) -> OperationCost:
    """`linear(input, weight, bias)`, also where `weight` is a vector; `_linear_pointwise` is that of compiled code."""
    given, weight = call.shape(0), call.shape(1)
    outputs, inner = weight if len(weight) == 2 else (1, *weight)
    rows = prod(given[:-1])
    flops = count_product(rows, _check_inner(call, given[-1], inner), outputs)
    return _product(call, 0, flops, (rows, outputs), added=rows * outputs * call.is_tensor(2))


def _linear_backward(call: OperatorCall) -> OperationCost:
    """`linear_backward(self, grad_output, weight, output_mask)`: a product for every gradient that is requested."""
    given, weight = call.tensor(0), call.tensor(2)
    outputs, inner = call.shape(2, 2)
    rows = prod(given.shapes[0][:-1])
    one, mask = count_product(rows, inner, outputs), (*call.flags(3), False, False, False)
    written = [given.nbytes * mask[0], weight.nbytes * mask[1], size_of(outputs, weight.dtype) * mask[2]]
    products = one * (mask[0] + mask[1])
    return OperationCost(products + rows * outputs * mask[2], call.nbytes, sum(written), products, given.dtype)


def _scaled_mm(call: OperatorCall) -> OperationCost:
    """`_scaled_mm(self, mat2, scale_a, scale_b, bias, scale_result, out_dtype, …)`, of small types."""
    (rows, inner), (other, columns) = call.shape(0, 2), call.shape(1, 2)
    flops = count_product(rows, _check_inner(call, inner, other), columns)
    added, dtype = rows * columns * call.is_tensor(4), call.tensor(0).dtype
    written = size_of(rows * columns, call.scalar_type(6) or dtype)
    return OperationCost(flops + added, call.nbytes, written, flops, dtype)


def _int_mm(call: OperatorCall) -> OperationCost:
    """`_int_mm(self, mat2)`: of int8, the result is int32."""
    (rows, inner), (other, columns) = call.shape(0, 2), call.shape(1, 2)
    flops = count_product(rows, _check_inner(call, inner, other), columns)
    return OperationCost(flops, call.nbytes, size_of(rows * columns, "int32"), flops, call.tensor(0).dtype)


RULES: Mapping[str, Rule] = {
    "aten::mm": _mm,
    **dict.fromkeys(("aten::addmm", "aten::addmm_", "aten::_addmm_activation"), _addmm),
    "aten::bmm": _bmm,
    **dict.fromkeys(("aten::baddbmm", "aten::baddbmm_", "aten::addbmm", "aten::addbmm_"), _baddbmm),
    "aten::mv": _mv,
    **dict.fromkeys(("aten::addmv", "aten::addmv_"), _addmv),
    **dict.fromkeys(("aten::dot", "aten::vdot"), _dot),
    **dict.fromkeys(("aten::ger", "aten::outer"), _outer),
    "aten::matmul": _matmul,
    **dict.fromkeys(("aten::linear", "aten::mkldnn_linear", "mkldnn::_linear_pointwise"), _linear),
    **dict.fromkeys(("aten::linear_backward", "aten::mkldnn_linear_backward"), _linear_backward),
    "aten::_scaled_mm": _scaled_mm,
    "aten::_int_mm": _int_mm,
}
