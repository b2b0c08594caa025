"""Calls of operators as a profiler records them, for the tests of their costs."""

from __future__ import annotations

import json
from collections.abc import Sequence

from deepprof.metrics.cost.framework.operator_call import OperatorCall, read_call
from deepprof.metrics.cost.framework.operator_rules import cost_of_call
from deepprof.metrics.cost.operation_cost import OperationCost

Tensor = tuple[int, ...]
Operand = Tensor | list[Tensor] | bool | float | str | None | Sequence[int]
KINETO = {"float32": "float", "bfloat16": "c10::BFloat16", "int64": "long int", "float16": "c10::Half", "bool": "bool"}


class Scalars(tuple[int | bool, ...]):
    """An argument that is a list of numbers or truth values."""

    __slots__ = ()


def record(*operands: Operand, dtype: str = "float32") -> tuple[str, str, str]:
    """Return shapes, types and values as JSON; a shape is a tensor of `dtype`, a list of shapes a list of tensors.

    A pair of a shape and the name of a type is a tensor of that type.
    """
    dims, dtypes, values = [], [], []
    for operand in operands:
        value, kind, shape = "", "Scalar", operand
        if isinstance(operand, Scalars):
            value, kind, shape = f"[{', '.join(map(str, operand))}]", "ScalarList", []
        elif isinstance(operand, tuple) and len(operand) == 2 and isinstance(operand[1], str):
            shape, kind = operand[0], KINETO[operand[1]]
        elif isinstance(operand, tuple):
            kind = KINETO[dtype]
        elif isinstance(operand, list):
            kind = "TensorList"
        elif operand is None:
            kind, shape = "", []
        else:
            value, shape = str(operand), []
        dims.append(shape)
        dtypes.append(kind)
        values.append(value)
    return json.dumps(dims), json.dumps(dtypes), json.dumps(values)


def call(name: str, *operands: Operand, dtype: str = "float32") -> OperatorCall:
    """Return a call of `aten::name`, or of `name` if that has a namespace."""
    found = read_call(name if ":" in name else f"aten::{name}", (*record(*operands, dtype=dtype), None), dtype)
    assert found is not None
    return found


def cost(name: str, *operands: Operand, dtype: str = "float32") -> OperationCost | None:
    """Return the cost of such a call."""
    return cost_of_call(call(name, *operands, dtype=dtype))


def numbers(name: str, *operands: Operand, dtype: str = "float32") -> tuple[int, int, int, int] | None:
    """Return the operations of such a call, those of products, and the bytes read and written."""
    found = cost(name, *operands, dtype=dtype)
    return found and (found.flops, found.product_flops, found.read_nbytes, found.written_nbytes)
