"""A model as a graph of operators: what readers of model files give, and what `metrics.cost` reckons with."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from types import MappingProxyType

from msgspec import Struct, field

# Bits of one element, by the names that numpy and PyTorch give types.
TYPE_BITS: Mapping[str, int] = MappingProxyType(
    {
        **{"float64": 64, "float32": 32, "float16": 16, "bfloat16": 16, "complex64": 64, "complex128": 128},
        **{"float8_e4m3fn": 8, "float8_e4m3fnuz": 8, "float8_e5m2": 8, "float8_e5m2fnuz": 8, "float8_e8m0fnu": 8},
        **{"int64": 64, "int32": 32, "int16": 16, "int8": 8, "int4": 4, "float4_e2m1fn": 4},
        **{"uint64": 64, "uint32": 32, "uint16": 16, "uint8": 8, "uint4": 4, "bool": 8},
    }
)


class TensorSpec(Struct, frozen=True):
    """The shape of a tensor, `()` for a scalar, and the type of its elements: a key of `TYPE_BITS`."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """How many bytes its elements take; types of less than a byte are packed."""
        return (self.elements * TYPE_BITS[self.dtype] + 7) // 8


AttributeValue = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]


class ModelNode(Struct, frozen=True):
    """One operator of a model.

    `inputs` and `outputs` name tensors; an optional input that is left out is an empty name. `layer` is the path of the
    module that it belongs to (`layer1.0.conv1`), empty where the file names none.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    layer: str = ""


class ModelGraph(Struct, frozen=True):
    """A model whose every tensor has a shape.

    `nodes` are in the order of execution. `tensors` has the shape of every value that a node names; `weights` are the
    names of those that the file contains (parameters and constants); `values` has the elements of small integer
    constants, such as the axes of a reduction or a new shape."""

    name: str
    nodes: tuple[ModelNode, ...]
    tensors: Mapping[str, TensorSpec]
    weights: frozenset[str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    values: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
