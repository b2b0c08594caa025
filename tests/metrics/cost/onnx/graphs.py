"""Graphs of one node or a few, as tests of costs make them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deepprof.collectors.models.graph import AttributeValue, ModelGraph, ModelNode, TensorSpec

Shape = tuple[int, ...]


def spec(shape: Shape | tuple[Shape, str]) -> TensorSpec:
    """Return a tensor; its type is float32 where it is not given next to the shape."""
    if len(shape) == 2 and isinstance(shape[1], str):
        return TensorSpec(shape[0], shape[1])  # type: ignore[arg-type]
    return TensorSpec(shape, "float32")  # type: ignore[arg-type]


def graph_of(
    nodes: Sequence[ModelNode], tensors: Mapping[str, Shape], weights: str = "", outputs: str = "y"
) -> ModelGraph:
    """Return a graph with the input `x`."""
    specs = {name: spec(shape) for name, shape in tensors.items()}
    return ModelGraph("net", tuple(nodes), specs, frozenset(weights.split()), ("x",), tuple(outputs.split()))


def node_of(kind: str, inputs: str, outputs: str, layer: str = "", **attributes: AttributeValue) -> ModelNode:
    """Return a node that is called as its first result; `-` is an input that is left out."""
    names = tuple("" if each == "-" else each for each in inputs.split())
    return ModelNode(outputs.split(maxsplit=1)[0], kind, names, tuple(outputs.split()), attributes, layer)
