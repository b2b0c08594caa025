"""A model as a graph of operators, read from an ONNX file: every tensor has a shape, for the inputs that are given."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deepprof.collectors.errors import TraceError
from deepprof.collectors.live.model_forward import NAME_CHARS
from deepprof.collectors.models.graph import ModelGraph, ModelNode, TensorSpec
from deepprof.collectors.models.onnx_file import EXPORT, find_modules, load_onnx
from deepprof.collectors.models.onnx_inputs import Shape, make_inputs, resolve_inputs
from deepprof.collectors.models.onnx_order import AGAIN, shorten_name, sort_nodes
from deepprof.collectors.models.onnx_shapes import (
    InferredTensors,
    ShapeSources,
    add_weights,
    infer_shapes,
    read_declared,
)
from deepprof.collectors.models.onnx_types import name_kind, read_attributes

FLOATS = frozenset({"float64", "float32", "float16", "bfloat16"})  # what `dtype` replaces
RUN = "give --run to take it from one run of the model by onnxruntime"
FIXED = "export the model with these shapes, or with dynamic_axes"


def read_model(
    path: Path,
    *,
    batch: int | None = None,
    shapes: Mapping[str, Shape] | None = None,
    dtype: str | None = None,
    may_run: bool = False,
) -> ModelGraph:
    """Return the model of an ONNX file, without its Constant and Identity nodes and what only constants go into.

    `batch` is the first dimension of the inputs, 1 where the file leaves it open, and `shapes` the shape of an input
    by its name. With `dtype`, such as `float16`, all floating-point tensors are taken to be of that type. Weights in
    other files may be absent. `may_run` allows to take shapes that cannot be inferred from one run of the model, by
    onnxruntime without optimisations: a warning says so.

    Raises `TraceError` for a file that is no model, contradicts itself, or has a tensor whose shape cannot be found,
    and `UsageError` for shapes that its inputs cannot have.
    """
    model = _inline_functions(path, load_onnx(path))
    graph = model.graph
    given = resolve_inputs(path, graph, batch, shapes or {})
    inputs = make_inputs(path, graph, given)
    nodes = sort_nodes(path, graph.node, {*inputs, *(each.name for each in graph.initializer)})
    opened = _OpenedModel(path, model, nodes, inputs)
    declared = {} if given.is_changed else read_declared(graph, given.symbols)
    known = _infer(opened, ShapeSources(declared, {}))
    if known.missing and may_run:
        known = _infer(opened, ShapeSources(declared, _measure(opened, known)))
    _refuse_missing(path, known, FIXED if given.is_changed else RUN)
    _refuse_unmade(path, graph, known)
    return _make_graph(opened, known, dtype)


@dataclass(frozen=True, slots=True)
class _OpenedModel:
    """A file's `ModelProto`, its nodes in the order of execution, and the specs of its inputs."""

    path: Path
    model: Any
    nodes: list[Any]
    inputs: Mapping[str, TensorSpec]


def _inline_functions(path: Path, model: Any) -> Any:
    """Return the model with the functions of its own replaced by their nodes."""
    if not model.functions:
        return model
    from onnx import inliner

    try:
        return inliner.inline_local_functions(model)
    except Exception as error:  # of onnx's C++ code
        raise TraceError(path, "has functions that cannot be inlined", EXPORT) from error


def _infer(opened: _OpenedModel, sources: ShapeSources) -> InferredTensors:
    """Return what is known of all tensors."""
    known = InferredTensors(specs=dict(opened.inputs))
    add_weights(opened.path, opened.model.graph.initializer, known)
    infer_shapes(opened.path, opened.nodes, opened.model, known, sources)
    return known


def _measure(opened: _OpenedModel, known: InferredTensors) -> dict[str, TensorSpec]:
    """Return the shapes that are missing as a run had them."""
    from deepprof.collectors.models.onnx_run import run_for_shapes

    reason = next(filter(None, known.missing.values()))
    warnings.warn(f"{opened.path}: {reason}; shapes are those of one run by onnxruntime", stacklevel=3)
    return run_for_shapes(opened.path, opened.model, opened.inputs, known.missing)


def _refuse_missing(path: Path, known: InferredTensors, advice: str) -> None:
    """Raise `TraceError` where a tensor has no shape: its cost would be left out."""
    if known.missing:
        reason = next(filter(None, known.missing.values()), "a shape is missing")
        raise TraceError(path, f"a shape cannot be inferred: {reason}", advice)


def _refuse_unmade(path: Path, graph: Any, known: InferredTensors) -> None:
    """Raise `TraceError` where the graph gives a tensor that it does not have."""
    for each in graph.output:
        if known.resolve(each.name) not in known.specs:
            raise TraceError(path, f"gives the tensor {shorten_name(each.name)}, which nothing makes", AGAIN)


def _make_graph(opened: _OpenedModel, known: InferredTensors, dtype: str | None) -> ModelGraph:
    """Return the graph of the nodes that depend on the inputs."""
    graph, nodes, inputs = opened.model.graph, opened.nodes, opened.inputs
    modules = find_modules(nodes, (each.name for each in graph.initializer))
    kept = [
        _make_node(node, number, layer, known)
        for number, (node, (layer, _)) in enumerate(zip(nodes, modules, strict=True))
        if name_kind(node) not in {"Constant", "Identity"} and not known.constants.issuperset(filter(None, node.output))
    ]
    outputs = tuple(known.resolve(each.name) for each in graph.output)
    named = {name for node in kept for name in (*node.inputs, *node.outputs)} | {*inputs, *outputs}
    tensors = {name: _cast(spec, dtype) for name, spec in known.specs.items() if name in named}
    values = {
        name: tuple(int(each) for each in values.reshape(-1))
        for name, values in known.values.items()
        if name in named and np.issubdtype(values.dtype, np.integer)
    }
    weights = frozenset(known.constants & named)
    return ModelGraph(graph.name, tuple(kept), tensors, weights, tuple(inputs), outputs, values)


def _make_node(node: Any, number: int, layer: str, known: InferredTensors) -> ModelNode:
    """Return a node; one without a name is called by its type and number."""
    kind = name_kind(node)
    return ModelNode(
        name=node.name or f"{kind}_{number}",
        kind=kind[:NAME_CHARS],
        inputs=tuple(known.resolve(name) for name in node.input),
        outputs=tuple(node.output),
        attributes=read_attributes(node),
        layer=layer,
    )


def _cast(spec: TensorSpec, dtype: str | None) -> TensorSpec:
    """Return the spec with another floating-point type, if it has one."""
    return TensorSpec(spec.shape, dtype) if dtype is not None and spec.dtype in FLOATS else spec
