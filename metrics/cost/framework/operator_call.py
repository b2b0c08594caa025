"""One call of a framework's operator as a profiler records it: shapes, types, strides and values of its operands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct

from deepprof.collectors.models.graph import TYPE_BITS
from deepprof.metrics.cost.operation_cost import OperationCost

Shape = tuple[int, ...]
# PyTorch's names of types in C++, as its profiler writes them.
TYPE_NAMES: Mapping[str, str] = MappingProxyType(
    {
        **{"double": "float64", "float": "float32", "c10::Half": "float16", "c10::BFloat16": "bfloat16"},
        **{"c10::complex<float>": "complex64", "c10::complex<double>": "complex128", "bool": "bool"},
        **{"long int": "int64", "long": "int64", "long long": "int64", "int": "int32", "short int": "int16"},
        **{"short": "int16", "signed char": "int8", "char": "int8", "unsigned char": "uint8"},
        **{"unsigned short": "uint16", "short unsigned int": "uint16", "unsigned int": "uint32"},
        **{"unsigned long": "uint64", "long unsigned int": "uint64"},
        **{"c10::Float8_e4m3fn": "float8_e4m3fn", "c10::Float8_e4m3fnuz": "float8_e4m3fnuz"},
        **{"c10::Float8_e5m2": "float8_e5m2", "c10::Float8_e5m2fnuz": "float8_e5m2fnuz"},
        **{"c10::Float8_e8m0fnu": "float8_e8m0fnu", "c10::Float4_e2m1fn_x2": "float4_e2m1fn"},
    }
)
# The numbers of `c10::ScalarType`, as an argument `dtype` is recorded.
SCALAR_TYPES: Mapping[int, str] = MappingProxyType(
    {
        **{0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32", 7: "float64"},
        **{9: "complex64", 10: "complex128", 11: "bool", 15: "bfloat16", 23: "float8_e5m2", 24: "float8_e4m3fn"},
        **{25: "float8_e5m2fnuz", 26: "float8_e4m3fnuz"},
    }
)
VALUE_TYPES = frozenset({"", "Scalar", "ScalarList"})
LIST_TYPES = frozenset({"TensorList", "GenericList"})
PACKED = "c10::Float4_e2m1fn_x2"  # two elements, counted as one in a shape
MAX_OPERANDS = 4096
MAX_SIDE = 2**40
MAX_SIDES = 64  # of a shape, as in PyTorch
INTEGER = re.compile(r"-?\d{1,12}")


class UnfitOperandsError(ValueError):
    """The recorded operands are not those that a rule has."""


class Operand(Struct, frozen=True):
    """One operand of an operator.

    `shapes` has one shape for a tensor, one of each for a list of tensors, none for anything else. `dtype` is a key of
    `TYPE_BITS`; None: no tensor, or not recorded. `held` counts the elements in memory, of which a broadcast tensor has
    fewer than its shape. `value` is the text of what is no tensor.
    """

    shapes: tuple[Shape, ...] = ()
    dtype: str | None = None
    held: int = 0
    value: str = ""

    @property
    def elements(self) -> int:
        """How many elements its tensors have."""
        return sum(prod(shape) for shape in self.shapes)

    @property
    def nbytes(self) -> int:
        """How many bytes its tensors hold in memory; 0 where the type is unknown."""
        return size_of(self.held, self.dtype)


class OperatorCall(Struct, frozen=True):
    """One call of the operator `name`. Its methods raise `UnfitOperandsError` for operands that are something else."""

    name: str
    operands: tuple[Operand, ...]

    def __len__(self) -> int:
        return len(self.operands)

    def operand(self, place: int) -> Operand:
        """Return the operand at a place; one that holds nothing where fewer are recorded."""
        return self.operands[place] if place < len(self.operands) else Operand()

    def is_tensor(self, place: int) -> bool:
        """Return whether a tensor was given at a place."""
        return len(self.operand(place).shapes) == 1

    def tensor(self, place: int) -> Operand:
        """Return the tensor at a place."""
        if not self.is_tensor(place):
            raise UnfitOperandsError(f"{self.name}: operand {place} is no tensor")
        return self.operands[place]

    def shape(self, place: int, rank: int | None = None) -> Shape:
        """Return the shape of the tensor at a place, which must have `rank` sides if that is given."""
        shape = self.tensor(place).shapes[0]
        if rank is not None and len(shape) != rank:
            raise UnfitOperandsError(f"{self.name}: operand {place} has {len(shape)} sides instead of {rank}")
        return shape

    @property
    def tensors(self) -> tuple[Operand, ...]:
        """The operands that are tensors or lists of them."""
        return tuple(operand for operand in self.operands if operand.shapes)

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors together."""
        return sum(operand.nbytes for operand in self.tensors)

    @property
    def has_sizes(self) -> bool:
        """Whether the type of every tensor is known, without which bytes are not."""
        return all(operand.dtype for operand in self.tensors if operand.elements)

    def flag(self, place: int, default: bool | None = None) -> bool:
        """Return a boolean argument; without `default` it must have been recorded."""
        text = self.operand(place).value
        if text not in {"True", "False", "1", "0"}:
            if default is None:
                raise UnfitOperandsError(f"{self.name}: argument {place} is no recorded truth value")
            return default
        return text in {"True", "1"}

    def integers(self, place: int) -> Shape:
        """Return the integers of an argument that is one or a list of them."""
        text = self.operand(place).value
        if not re.fullmatch(r"\[?[-\d, ]+\]?", text):
            raise UnfitOperandsError(f"{self.name}: argument {place} is no recorded list of integers")
        return tuple(int(found) for found in INTEGER.findall(text))

    def flags(self, place: int) -> tuple[bool, ...]:
        """Return the truth values of an argument that is a list of them."""
        text = self.operand(place).value
        if not re.fullmatch(r"\[(?:True|False|[01, ])*\]", text):
            raise UnfitOperandsError(f"{self.name}: argument {place} is no recorded list of truth values")
        return tuple(found in {"True", "1"} for found in re.findall(r"True|False|[01]", text))

    def scalar_type(self, place: int) -> str | None:
        """Return the type that an argument `dtype` names, None where it names none."""
        text = self.operand(place).value
        return SCALAR_TYPES.get(int(text)) if text.isdigit() and len(text) < 4 else None


Rule = Callable[[OperatorCall], OperationCost]


def size_of(elements: int, dtype: str | None) -> int:
    """Return the bytes of this many elements, 0 where the type is unknown."""
    return (elements * TYPE_BITS.get(dtype or "", 0) + 7) // 8


def broadcast(shapes: Iterable[Shape]) -> Shape:
    """Return the shape that all `shapes` are broadcast to; raise `UnfitOperandsError` where that is impossible."""
    result: list[int] = []
    for shape in shapes:
        result = [1] * (len(shape) - len(result)) + result
        padded = [1] * (len(result) - len(shape)) + list(shape)
        pairs = list(zip(result, padded, strict=True))
        if any(left != right and 1 not in {left, right} for left, right in pairs):
            raise UnfitOperandsError(f"{shape} and {tuple(result)} have no common shape")
        result = [right if left == 1 else left for left, right in pairs]
    return tuple(result)


def read_call(name: str, columns: Sequence[str | None], listed: str | None = None) -> OperatorCall | None:
    """Return the call whose operands are recorded in JSON; None for nonsense.

    `columns` are the texts of `OPERANDS`: shapes, types, values, strides. `listed` is the type of the elements of lists
    of tensors, which profilers do not write.
    """
    dims, *others = columns
    shapes = _decode(dims)
    if not isinstance(shapes, list) or len(shapes) > MAX_OPERANDS:
        return None
    rows = zip(shapes, *(_decode_column(text, len(shapes)) for text in others), strict=True)
    operands = tuple(_read_operand(shape, dtype, value, steps, listed) for shape, dtype, value, steps in rows)
    return None if None in operands else OperatorCall(name, operands)  # type: ignore[arg-type]


def _decode(text: str | None) -> Any:
    """Return what JSON states, None where it states nothing or is none."""
    try:
        return None if text is None else msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None


def _decode_column(text: str | None, length: int) -> list[Any]:
    """Return a list of that length: the one in JSON, or None for each where there is none."""
    found = _decode(text)
    return found if isinstance(found, list) and len(found) == length else [None] * length


def _read_operand(shape: Any, kind: Any, value: Any, steps: Any, listed: str | None) -> Operand | None:
    """Return one operand; None if its shape is no shape, or if it is sparse: what it contains is not recorded."""
    text, dtype = value if isinstance(value, str) else "", kind if isinstance(kind, str) else None
    if not isinstance(shape, list):
        return None
    if dtype in VALUE_TYPES or (dtype is None and not shape):
        return Operand(value=text)
    if dtype in LIST_TYPES or (shape and isinstance(shape[0], list)):
        shapes = tuple(map(tuple, shape)) if all(map(_is_shape, shape)) else None
        return None if shapes is None else Operand(shapes, listed, _count_held(shapes, steps), text)
    if not _is_shape(shape) or (shape and steps == []):  # a sparse tensor has no strides
        return None
    if dtype == PACKED and shape:
        shape = [*shape[:-1], 2 * shape[-1]]
    named = TYPE_NAMES.get(dtype or "")
    return Operand((tuple(shape),), named, _count_held((shape,), [steps]), text)


def _is_shape(shape: Any) -> bool:
    is_short = isinstance(shape, list) and len(shape) <= MAX_SIDES
    return is_short and all(type(side) is int and 0 <= side <= MAX_SIDE for side in shape)


def _count_held(shapes: Sequence[Sequence[int]], steps: Any) -> int:
    """Return how many elements are in memory: sides along which the stride is 0 count once."""
    steps = steps if isinstance(steps, list) and len(steps) == len(shapes) else [None] * len(shapes)
    held = 0
    for shape, step in zip(shapes, steps, strict=True):
        known = step if isinstance(step, list) and len(step) == len(shape) else [1] * len(shape)
        empty = 0 in shape
        held += 0 if empty else prod(side for side, stride in zip(shape, known, strict=True) if stride != 0)
    return held
