"""Rules of element-wise operators, their backward forms, copies and fills.

Every tensor is read once and the result, of their common shape, written once. Comparisons count as operations;
copying and logic do not, nor does anything that is done with integers only. The numbers are those of `onnx` where both
have the function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod

from deepprof.metrics.cost.framework.operator_call import (
    Operand,
    OperatorCall,
    Rule,
    UnfitOperandsError,
    broadcast,
    size_of,
)
from deepprof.metrics.cost.operation_cost import FUNCTION_FLOPS, OperationCost

# From the narrowest to the widest: the result of two types is of the wider one.
WIDTHS = (
    *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
INTEGERS = frozenset(name for name in WIDTHS if "int" in name or name == "bool")


def _each(operations: int, names: str) -> dict[str, int]:
    """Return the operations per element of the operators that `names` lists."""
    return dict.fromkeys(names.split(), operations)


# Operations per element of the result, by how many tensors are read at most.
UNARY: Mapping[str, int] = {
    **_each(1, "abs neg ceil floor round trunc sign reciprocal square relu frac sqrt rsqrt cumsum cumprod"),
    **_each(1, "isnan isinf isfinite clamp_min clamp_max threshold nan_to_num"),
    **_each(2, "clamp hardtanh leaky_relu softshrink"),
    **_each(FUNCTION_FLOPS, "exp exp2 expm1 log log2 log10 log1p sin cos tan tanh erf erfc asin acos atan sinh cosh"),
    **_each(FUNCTION_FLOPS, "asinh acosh atanh erfinv lgamma digamma angle"),
    **{
        "sigmoid": FUNCTION_FLOPS + 2,
        "silu": FUNCTION_FLOPS + 3,
        "glu": FUNCTION_FLOPS + 3,
        "gelu": FUNCTION_FLOPS + 4,
    },
    **{"elu": FUNCTION_FLOPS + 3, "celu": FUNCTION_FLOPS + 4, "selu": FUNCTION_FLOPS + 4, "hardsigmoid": 4},
    **{"softplus": 2 * FUNCTION_FLOPS + 1, "log_sigmoid_forward": 2 * FUNCTION_FLOPS + 2, "hardswish": 5},
    **{"mish": 3 * FUNCTION_FLOPS + 2, "logit": FUNCTION_FLOPS + 2},
    **_each(0, "logical_not bitwise_not tril triu roll flip _local_scalar_dense"),
}
BINARY: Mapping[str, int] = {
    **_each(1, "add sub rsub mul div true_divide floor_divide remainder fmod pow maximum minimum eq ne lt le gt ge"),
    **_each(1, "fmax fmin hypot __rpow__ float_power copysign heaviside"),
    **{"atan2": FUNCTION_FLOPS, "xlogy": FUNCTION_FLOPS + 1},
    **_each(0, "logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor __and__ __or__ masked_fill"),
    **_each(0, "__lshift__ __rshift__ bitwise_left_shift bitwise_right_shift"),
    **{"threshold_backward": 1, "hardtanh_backward": 2, "sigmoid_backward": 3, "tanh_backward": 3},
    **{"silu_backward": FUNCTION_FLOPS + 7, "gelu_backward": 2 * FUNCTION_FLOPS + 9, "leaky_relu_backward": 2},
    **{"elu_backward": FUNCTION_FLOPS + 2, "softplus_backward": FUNCTION_FLOPS + 3, "prelu": 2},
    **{"hardswish_backward": 4, "hardsigmoid_backward": 2, "glu_backward": FUNCTION_FLOPS + 7},
    **{"logit_backward": 3, "native_dropout_backward": 2},
    **{"mse_loss": 2, "l1_loss": 2, "smooth_l1_loss": 4, "huber_loss": 4},
}
TERNARY: Mapping[str, int] = {
    **{"where": 1, "addcmul": 3, "addcdiv": 3, "lerp": 3, "mse_loss_backward": 3, "smooth_l1_loss_backward": 4},
    **{"binary_cross_entropy": 2 * FUNCTION_FLOPS + 4, "binary_cross_entropy_backward": 5, "huber_loss_backward": 4},
    **{"binary_cross_entropy_with_logits": 2 * FUNCTION_FLOPS + 5, "log_sigmoid_backward": FUNCTION_FLOPS + 3},
}
COMPARED = frozenset(_each(0, "eq ne lt le gt ge isnan isinf isfinite logical_not logical_and logical_or logical_xor"))
REAL = frozenset(
    _each(0, "div true_divide exp log sqrt rsqrt sin cos tan tanh sigmoid erf reciprocal log2 log10 atan2")
)
RANDOM = ("normal_", "uniform_", "bernoulli_", "random_", "exponential_", "log_normal_", "geometric_", "cauchy_")


def _promote(operands: Sequence[Operand]) -> str | None:
    """Return the type of a result of `operands`.

    Those without sides count only among themselves, but one of them makes integers real numbers.
    """
    sized = [operand for operand in operands if operand.shapes and operand.shapes[0]] or operands
    known = [WIDTHS.index(operand.dtype) for operand in sized if operand.dtype in WIDTHS]
    dtype = WIDTHS[max(known)] if known else None
    is_real = any(operand.dtype in WIDTHS and operand.dtype not in INTEGERS for operand in operands)
    return "float32" if dtype in INTEGERS and is_real else dtype


def count_real(operations: int, operands: Sequence[Operand]) -> int:
    """Return `operations`, or 0 where all operands are integers."""
    return 0 if operands and all(operand.dtype in INTEGERS for operand in operands) else operations


def _pointwise(call: OperatorCall, each: int, arity: int) -> OperationCost:
    """Return the cost of `each` operations on every element of the common shape of the first `arity` tensors.

    A further tensor is the given result. The name of an operator that writes its first tensor ends in `_`.
    """
    name = call.name.rpartition("::")[2]
    read, given = call.tensors[:arity], call.tensors[arity:]
    if not read or any(len(operand.shapes) != 1 for operand in read):
        call.tensor(0)  # states what is wrong
    shape = broadcast(operand.shapes[0] for operand in read)
    nbytes = sum(operand.nbytes for operand in read)
    flops = count_real((each + _is_scaled(call, name)) * prod(shape), read)
    return OperationCost(flops, nbytes, _written(name, read, given, prod(shape)))


def _is_scaled(call: OperatorCall, name: str) -> int:
    """Return 1 where a sum multiplies its second operand by `alpha` first."""
    return int(name.rstrip("_") in {"add", "sub", "rsub"} and call.operand(2).value not in {"", "1", "1."})


def _written(name: str, read: Sequence[Operand], given: Sequence[Operand], elements: int) -> int:
    """Return the bytes of the result: of the tensor that is written in place, the one given, or a new one."""
    plain = name.rstrip("_")
    if name.endswith("_") and not name.endswith("__"):
        return read[0].nbytes
    if given:
        return given[0].nbytes
    if plain in COMPARED:
        return size_of(elements, "bool")
    dtype = _promote(read if plain != "where" else read[1:])
    return size_of(elements, "float32" if plain in REAL and dtype in INTEGERS else dtype)


def _copy(call: OperatorCall) -> OperationCost:
    """`copy_(self, src, non_blocking)`: converts types on the way."""
    return OperationCost(0, call.tensor(1).nbytes, call.tensor(0).nbytes)


def _fill(call: OperatorCall) -> OperationCost:
    """`fill_(self, value)`, `zero_(self)`."""
    return OperationCost(0, 0, call.tensor(0).nbytes)


def _randomise(call: OperatorCall) -> OperationCost:
    """`normal_(self, …)` and its kin: one operation per number."""
    return OperationCost(call.tensor(0).elements, 0, call.tensor(0).nbytes)


def _dropout(call: OperatorCall) -> OperationCost:
    """`native_dropout(input, p, train)`: compares and multiplies, and writes the result and a mask of truth values."""
    given = call.tensor(0)
    return OperationCost(2 * given.elements, given.nbytes, given.nbytes + given.elements)


def _concatenate(call: OperatorCall) -> OperationCost:
    """`cat(tensors, dim)`: copies them."""
    if not call.operand(0).elements:
        raise UnfitOperandsError(f"{call.name}: the shapes of its tensors are not recorded")
    return OperationCost(0, call.operand(0).nbytes, call.operand(0).nbytes)


def _list_rules() -> dict[str, Rule]:
    """Return the rules of the tables above, each with its form that works in place."""
    rules: dict[str, Rule] = {}
    for arity, table in ((1, UNARY), (2, BINARY), (3, TERNARY)):
        for name, each in table.items():
            rules |= dict.fromkeys((f"aten::{name}", f"aten::{name}_"), partial(_pointwise, each=each, arity=arity))
    return rules


def choose_larger(call: OperatorCall) -> OperationCost:
    """`max(self, other)`, `min(self, other)` of two tensors."""
    return _pointwise(call, 1, 2)


RULES: Mapping[str, Rule] = {
    **_list_rules(),
    "aten::copy_": _copy,
    **dict.fromkeys(("aten::fill_", "aten::zero_"), _fill),
    **{f"aten::{name}": _randomise for name in RANDOM},
    "aten::native_dropout": _dropout,
    "aten::cat": _concatenate,
}
