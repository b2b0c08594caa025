"""Types, shapes and attributes of ONNX's messages as plain values, checked against limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from types import MappingProxyType
from typing import Any

from deepprof.collectors.models.graph import AttributeValue, TensorSpec

DTYPES: Mapping[int, str] = MappingProxyType(  # by the numbers of TensorProto.DataType
    {
        **{1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool"},
        **{10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 14: "complex64", 15: "complex128"},
        **{16: "bfloat16", 17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz"},
        **{21: "uint4", 22: "int4", 23: "float4_e2m1fn", 24: "float8_e8m0fnu"},
    }
)
NUMBERS = {dtype: number for number, dtype in DTYPES.items()}
MAX_RANK, MAX_ELEMENTS = 32, 1 << 48  # of a tensor: what sums of a model's sizes have room for
Symbols = Mapping[str, int]


def read_type(message: Any, symbols: Symbols | None = None) -> TensorSpec | None:
    """Return the shape and type that a TypeProto gives with symbolic dimensions replaced; None where a part is open.

    Raises `ValueError` for a shape that no tensor has.
    """
    tensor = message.tensor_type
    if not message.HasField("tensor_type") or not tensor.HasField("shape") or tensor.elem_type not in DTYPES:
        return None
    shape = _read_dims(tensor.shape, symbols or {})
    return None if None in shape else make_spec([each for each in shape if each is not None], tensor.elem_type)


def _read_dims(shape: Any, symbols: Symbols) -> list[int | None]:
    """Return the dimensions of a TensorShapeProto, None for those that are open."""
    return [each.dim_value if each.HasField("dim_value") else symbols.get(each.dim_param) for each in shape.dim]


def make_spec(shape: Iterable[int], number: int) -> TensorSpec:
    """Return the spec of a shape and a number of TensorProto.DataType; raises `ValueError` for what no tensor has."""
    dims = tuple(int(each) for each in shape)
    if number not in DTYPES:
        raise ValueError("elements of a type that has no size, such as text")
    if min(dims, default=0) < 0:
        raise ValueError(f"the negative dimension {min(dims)}")
    if len(dims) > MAX_RANK:
        raise ValueError(f"more than {MAX_RANK} dimensions")
    if max(dims, default=0) > MAX_ELEMENTS or prod(dims) > MAX_ELEMENTS:
        raise ValueError("more elements than any device holds")
    return TensorSpec(dims, DTYPES[number])


def read_attributes(node: Any) -> dict[str, AttributeValue]:
    """Return the attributes of a node that are numbers, texts or lists of them; tensors and graphs are left out."""
    found: dict[str, AttributeValue] = {}
    for each in node.attribute:
        kind = each.type
        if kind == each.INT:
            found[each.name] = int(each.i)
        elif kind == each.FLOAT:
            found[each.name] = float(each.f)
        elif kind == each.STRING:
            found[each.name] = each.s.decode("utf-8", "replace")
        elif kind == each.INTS:
            found[each.name] = tuple(each.ints)
        elif kind == each.FLOATS:
            found[each.name] = tuple(each.floats)
        elif kind == each.STRINGS:
            found[each.name] = tuple(text.decode("utf-8", "replace") for text in each.strings)
    return found


def name_kind(node: Any) -> str:
    """Return the type of a node, behind its domain where that is not ONNX's own."""
    return node.op_type if node.domain in {"", "ai.onnx"} else f"{node.domain}.{node.op_type}"
