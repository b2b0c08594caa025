"""Small constants of an ONNX model: new shapes and axes that nodes compute from the shapes of tensors.

Exporters write `x.reshape(n, -1)` as a chain of Shape, Gather, Concat and Reshape. With the shapes of the inputs known,
all but the last of them are constants, which onnx's own shape inference follows only in part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepprof.collectors.models.graph import AttributeValue

Values = NDArray[Any]
Attributes = Mapping[str, AttributeValue]
MAX_VALUES = 4096  # elements of a constant that is followed: more are no shape
LARGEST_FACTOR = 1 << 31  # products of larger numbers could exceed 64 bits
REQUIRED = {"Slice": 3, **dict.fromkeys(("Squeeze", "ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin"), 1)}  # inputs
NUMPY_TYPES = {1: "float32", 2: "uint8", 3: "int8", 6: "int32", 7: "int64", 9: "bool", 11: "float64", 12: "uint32"}


def compute_values(kind: str, inputs: Sequence[Values | None], attributes: Attributes) -> list[Values] | None:
    """Return the results of a node whose inputs are small constants (None: left out), None where it is not followed."""
    compute = FOLDED.get(kind)
    needed = REQUIRED.get(kind, len(inputs))
    if compute is None or not inputs or any(each is None for each in inputs[:needed]):
        return None
    try:
        with np.errstate(all="ignore"):
            found = compute(inputs, attributes)
    except (ValueError, IndexError, TypeError, KeyError, OverflowError, ZeroDivisionError, np.exceptions.AxisError):
        return None  # a model that contradicts itself: inference reports it
    if found is None:
        return None
    outputs = [np.asarray(each) for each in (found if isinstance(found, list) else [found])]
    return outputs if all(each.size <= MAX_VALUES and each.ndim <= 8 for each in outputs) else None


Computed = Values | list[Values] | None
Compute = Callable[[Sequence[Any], Attributes], Computed]


def _binary(operation: Callable[[Any, Any], Any]) -> Compute:
    """Return the rule of a function of two arrays, which may broadcast."""

    def compute(inputs: Sequence[Any], _: Attributes) -> Computed:
        left, right = inputs
        if prod(np.broadcast_shapes(left.shape, right.shape)) > MAX_VALUES:
            return None
        found: Values = operation(left, right)
        return found

    return compute


def _unary(operation: Callable[[Any], Any]) -> Compute:
    """Return the rule of a function of every element, which keeps the type."""

    def compute(inputs: Sequence[Any], _: Attributes) -> Computed:
        found: Values = operation(inputs[0]).astype(inputs[0].dtype)
        return found

    return compute


def _divide(left: Any, right: Any) -> Any:
    """Return the quotient; of integers it is rounded towards zero."""
    if left.dtype.kind not in "iu":
        return left / right
    if not np.all(right):
        raise ZeroDivisionError
    return (np.sign(left) * np.sign(right) * (np.abs(left) // np.abs(right))).astype(left.dtype)


def _multiply(left: Any, right: Any) -> Any:
    if left.dtype.kind in "iu" and max(np.abs(left).max(initial=0), np.abs(right).max(initial=0)) >= LARGEST_FACTOR:
        raise OverflowError
    return left * right


def _axes_of(inputs: Sequence[Any], attributes: Attributes) -> tuple[int, ...] | None:
    """Return the axes of a node: an attribute, or an input in later operator sets."""
    found: Any = attributes.get("axes")
    if found is None and len(inputs) > 1 and inputs[1] is not None:
        found = inputs[1].reshape(-1).tolist()
    return None if found is None else tuple(int(each) for each in found)


def _squeeze(inputs: Sequence[Any], attributes: Attributes) -> Computed:
    found: Values = np.squeeze(inputs[0], _axes_of(inputs, attributes))
    return found


def _unsqueeze(inputs: Sequence[Any], attributes: Attributes) -> Computed:
    axes = _axes_of(inputs, attributes)
    return None if axes is None or len(axes) > 8 else np.expand_dims(inputs[0], axes)


def _gather(inputs: Sequence[Any], attributes: Attributes) -> Computed:
    data, indices = inputs
    axis = int(attributes.get("axis", 0))  # type: ignore[arg-type]
    if data.size and data.size // data.shape[axis] * indices.size > MAX_VALUES:
        return None
    found: Values = np.take(data, indices, axis=axis)
    return found


def _slice(inputs: Sequence[Any], attributes: Attributes) -> Computed:
    """Return a part of the first input; its bounds are attributes in early operator sets."""
    data = inputs[0]
    if len(inputs) > 1:
        lists = [None if each is None else each.reshape(-1).tolist() for each in inputs[1:]]
    else:
        lists = [attributes.get(name) for name in ("starts", "ends", "axes")]
    starts, ends, axes, steps = [*lists, None, None][:4]
    if starts is None or ends is None:
        return None
    axes = range(len(starts)) if axes is None else axes
    places = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps or [1] * len(starts), strict=True):
        # A step back that ends before the first element has an end that is smaller than minus the size.
        places[axis] = slice(start, None if step < 0 and end < -data.shape[axis] else end, step)
    found: Values = data[tuple(places)]
    return found


def _reshape(inputs: Sequence[Any], attributes: Attributes) -> Computed:
    data, shape = inputs[0], [int(each) for each in inputs[1].reshape(-1)]
    if not attributes.get("allowzero"):
        shape = [data.shape[place] if each == 0 else each for place, each in enumerate(shape)]
    found: Values = data.reshape(shape)
    return found


def _expand(inputs: Sequence[Any], _: Attributes) -> Computed:
    shape = np.broadcast_shapes(inputs[0].shape, tuple(int(each) for each in inputs[1].reshape(-1)))
    return np.broadcast_to(inputs[0], shape) if prod(shape) <= MAX_VALUES else None


def _fill(inputs: Sequence[Any], attributes: Attributes) -> Computed:
    """Return ConstantOfShape: its value is a tensor, which attributes here do not have, so only sizes are followed."""
    shape = tuple(int(each) for each in inputs[0].reshape(-1))
    value, dtype = attributes.get("value"), attributes.get("value_type", 1)
    if prod(shape) > MAX_VALUES or min(shape, default=0) < 0 or not isinstance(dtype, int):
        return None
    first = value[0] if isinstance(value, tuple) and value else 0
    return np.full(shape, first, NUMPY_TYPES[dtype])


def _range(inputs: Sequence[Any], _: Attributes) -> Computed:
    start, limit, delta = (each.reshape(-1)[0].item() for each in inputs)
    if delta == 0 or ceil((limit - start) / delta) > MAX_VALUES:
        return None
    return np.arange(start, limit, delta, dtype=inputs[0].dtype)


def _cast(inputs: Sequence[Any], attributes: Attributes) -> Computed:
    found: Values = inputs[0].astype(NUMPY_TYPES[attributes["to"]])  # type: ignore[index]
    return found


def _concatenate(inputs: Sequence[Any], attributes: Attributes) -> Computed:
    return np.concatenate(inputs, axis=int(attributes["axis"]))  # type: ignore[arg-type]


def _transpose(inputs: Sequence[Any], attributes: Attributes) -> Computed:
    return np.transpose(inputs[0], attributes.get("perm"))  # type: ignore[arg-type]


def _reduction(operation: Callable[..., Any]) -> Compute:
    """Return the rule of a reduction over axes, all of them where none are given."""

    def compute(inputs: Sequence[Any], attributes: Attributes) -> Computed:
        axes = _axes_of(inputs, attributes)
        keep = bool(attributes.get("keepdims", 1))
        found: Values = operation(inputs[0], axis=axes, keepdims=keep)
        return found

    return compute


def _choose(inputs: Sequence[Any], _: Attributes) -> Computed:
    shape = np.broadcast_shapes(*(each.shape for each in inputs))
    return np.where(*inputs) if prod(shape) <= MAX_VALUES else None


FOLDED: Mapping[str, Compute] = {
    **{"Add": _binary(np.add), "Sub": _binary(np.subtract), "Mul": _binary(_multiply), "Div": _binary(_divide)},
    **{"Equal": _binary(np.equal), "Less": _binary(np.less), "Greater": _binary(np.greater), "Where": _choose},
    **{"LessOrEqual": _binary(np.less_equal), "GreaterOrEqual": _binary(np.greater_equal)},
    **{"And": _binary(np.logical_and), "Or": _binary(np.logical_or), "Not": _unary(np.logical_not)},
    **{"Min": _binary(np.minimum), "Max": _binary(np.maximum), "Mod": _binary(np.mod)},
    **{"Floor": _unary(np.floor), "Ceil": _unary(np.ceil), "Round": _unary(np.round), "Sqrt": _unary(np.sqrt)},
    **{"Neg": _unary(np.negative), "Abs": _unary(np.abs), "Cast": _cast, "Range": _range},
    **{"Squeeze": _squeeze, "Unsqueeze": _unsqueeze, "Gather": _gather, "Slice": _slice, "Reshape": _reshape},
    **{"Expand": _expand, "ConstantOfShape": _fill, "Concat": _concatenate, "Transpose": _transpose},
    **{"ReduceProd": _reduction(np.prod), "ReduceSum": _reduction(np.sum), "ReduceMax": _reduction(np.max)},
    "ReduceMin": _reduction(np.min),
}
