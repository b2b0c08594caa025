"""What contradicts itself in a node of an ONNX graph, though onnx infers shapes of its results.

What would make onnx itself fail, or never end, is found before it is asked (`find_fault`); sizes that do not fit each
other afterwards (`find_contradiction`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from deepprof.collectors.models.graph import AttributeValue, TensorSpec
from deepprof.collectors.models.onnx_order import list_inner

Shape = tuple[int, ...]
Attributes = Mapping[str, AttributeValue]
POSITIVE = ("strides", "dilations", "kernel_shape", "blocksize", "group", "num_outputs", "num_heads")
TERM = r"[A-Za-z ]*(?:\.\.\.[A-Za-z ]*)?"
EQUATION = re.compile(rf"{TERM}(?:,{TERM})*(?:->{TERM})?")
CONVOLUTIONS = {"Conv": 1, "ConvInteger": 1, "QLinearConv": 3, "ConvTranspose": 1}  # the places of their weights
SLIDING = frozenset({*CONVOLUTIONS, "MaxPool", "AveragePool", "LpPool"})
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def find_fault(node: Any) -> str | None:
    """Return what is wrong with attributes of a node or of its subgraphs: onnx would divide by 0, or never end.

    It reads their fields whatever type they state. None if nothing is wrong.
    """
    for each in (attribute for inner in (node, *list_inner(node)) for attribute in inner.attribute):
        sizes = [*each.ints, *([each.i] if each.HasField("i") or each.type == each.INT else [])]
        if each.name in POSITIVE and min(sizes, default=1) < 1:
            return f"its {each.name} is not positive"
        if each.name == "equation" and not EQUATION.fullmatch(each.s.decode("utf-8", "replace")):
            return "its equation is none of letters"
    return None


def find_contradiction(
    kind: str, attributes: Attributes, inputs: Sequence[Shape], results: Sequence[TensorSpec | None]
) -> str | None:
    """Return what is wrong with shapes that onnx accepts, None if nothing is."""
    first = results[0]
    inputs = [*inputs, *([()] * 4)]  # those that are left out
    if kind == "Reshape" and first is not None and first.elements != prod(inputs[0]):
        return "its new shape is fixed, and has not as many elements as its input"
    if kind in CONVOLUTIONS and (problem := _check_convolution(kind, attributes, inputs)) is not None:
        return problem
    if kind in SLIDING and first is not None and not first.elements and 0 not in inputs[0]:
        return "its window is larger than its input"
    if kind in GATES:
        return _check_recurrence(kind, inputs)
    return _check_equation(str(attributes.get("equation", "")), inputs) if kind == "Einsum" else None


def _check_convolution(kind: str, attributes: Attributes, inputs: Sequence[Shape]) -> str | None:
    """Return what is wrong with a convolution of N × C × spatial, None if nothing is."""
    data, weight = inputs[0], inputs[CONVOLUTIONS[kind]]
    if len(data) != len(weight) or len(data) < 3:
        return f"its input has {len(data)} dimensions, but its weight {len(weight)}"
    if attributes.get("kernel_shape", weight[2:]) != weight[2:]:
        return "its kernel_shape is not that of its weight"
    groups = attributes.get("group", 1)
    channels = weight[0] if kind == "ConvTranspose" else weight[1] * (groups if isinstance(groups, int) else 1)
    return None if data[1] == channels else f"its input has {data[1]} channels, but its weight {channels}"


def _check_recurrence(kind: str, inputs: Sequence[Shape]) -> str | None:
    """Return what is wrong with the weights of a recurrent layer: directions × (gates · hidden) × inputs."""
    data, weight, again = inputs[:3]
    if (len(data), len(weight), len(again)) != (3, 3, 3):
        return "its input and weights have not three dimensions each"
    gates = GATES[kind] * again[2]
    if weight[1:] != (gates, data[2]) or again[1] != gates or weight[0] != again[0]:
        return "its weights do not fit its input, or each other"
    return None


def _check_equation(equation: str, inputs: Sequence[Shape]) -> str | None:
    """Return which letter of an Einsum has two sizes, None if none has; 1 is broadcast."""
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, inputs, strict=False):
        before, _, after = term.partition("...")
        found = [*zip(before, shape, strict=False), *zip(reversed(after), reversed(shape), strict=False)]
        for letter, size in found:
            if 1 not in (size, other := sizes.setdefault(letter, size)) and size != other:
                return f"{letter} of its equation is {other} and {size}"
            sizes[letter] = max(other, size)
    return None
