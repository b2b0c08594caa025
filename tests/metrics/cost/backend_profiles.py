"""Models and profiles of backends that are small enough to be mapped by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deepprof.collectors.models.backend_profile import BackendLayer, BackendProfile, BackendTensor, LayerRole
from deepprof.collectors.models.graph import ModelGraph, ModelNode, TensorSpec

__all__ = ["make_graph", "make_layer", "make_profile"]

Rows = Sequence[tuple[str, str, str, str]]


def make_graph(
    rows: Rows, shapes: Mapping[str, tuple[int, ...]], weights: Sequence[str] = (), outputs: Sequence[str] = ()
) -> ModelGraph:
    """Return a graph of float32; a row is name, kind, inputs, outputs, the last two separated by blanks.

    A tensor without a shape is 1 × 8 × 4 × 4. The last result is the output unless `outputs` are given.
    """
    nodes = tuple(ModelNode(name, kind, tuple(a.split()), tuple(b.split())) for name, kind, a, b in rows)
    names = {name for node in nodes for name in (*node.inputs, *node.outputs)}
    made = {name for node in nodes for name in node.outputs}
    tensors = {name: TensorSpec(shapes.get(name, (1, 8, 4, 4)), "float32") for name in names}
    inputs = tuple(sorted(names - made - set(weights)))
    return ModelGraph("model", nodes, tensors, frozenset(weights), inputs, tuple(outputs) or nodes[-1].outputs[-1:])


def make_layer(name: str, inputs: str, outputs: Mapping[str, tuple[int, ...]], **fields: object) -> BackendLayer:
    """Return a layer of 1 µs that reads tensors by their names, separated by blanks."""
    read = tuple(BackendTensor(each) for each in inputs.split())
    made = tuple(BackendTensor(each, shape, "float32") for each, shape in outputs.items())
    known = {"kind": "Other", "role": LayerRole.OTHER, "time_ns": 1_000} | fields
    return BackendLayer(name=name, inputs=read, outputs=made, **known)  # type: ignore[arg-type]


def make_profile(*layers: BackendLayer) -> BackendProfile:
    return BackendProfile("test", "1", "a device", 1, 1, 10_000, "median", layers)
