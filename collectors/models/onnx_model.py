"""A model as a graph of operators, read from an ONNX file: every tensor has a shape, for the inputs that are given."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field

from deepprof.collectors.errors import TraceError, UsageError, escaped
from deepprof.collectors.live.model_forward import NAME_CHARS
from deepprof.collectors.models.graph import ModelGraph, ModelNode, TensorSpec
from deepprof.collectors.models.onnx_file import EXPORT, find_modules, load_onnx
from deepprof.collectors.models.onnx_order import AGAIN, shorten_name, sort_nodes
from deepprof.collectors.models.onnx_shapes import (
    InferredTensors,
    ShapeSources,
    add_weights,
    infer_shapes,
    read_declared,
)
from deepprof.collectors.models.onnx_types import DTYPES, make_spec, name_kind, read_attributes

FLOATS = frozenset({"float64", "float32", "float16", "bfloat16"})  # what `dtype` replaces
RUN = "give --run to take it from one run of the model by onnxruntime"
FIXED = "export the model with these shapes, or with dynamic_axes"

Shape = tuple[int, ...]
NAMED_INPUTS = 5  # in a message


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
    onnxruntime without optimisations: a warning reports it.

    Raises `TraceError` for a file that is no model, contradicts itself, or has a tensor whose shape cannot be found,
    and `UsageError` for shapes that its inputs cannot have.
    """
    model = _inline_functions(path, load_onnx(path))
    graph = model.graph
    given = _resolve_inputs(path, graph, batch, shapes or {})
    inputs = _make_inputs(path, graph, given)
    nodes = sort_nodes(path, graph.node, {*inputs, *(each.name for each in graph.initializer)})
    opened = _OpenedModel(path, model, nodes, inputs)
    declared = {} if given.is_changed else read_declared(graph, given.symbols)
    known = _infer(opened, ShapeSources(declared, {}))
    if known.missing and may_run:
        known = _infer(opened, ShapeSources(declared, _measure(opened, known)))
    _refuse_missing(path, known, FIXED if given.is_changed else RUN)
    _refuse_unmade(path, graph, known)
    return _make_graph(opened, known, dtype)


class _OpenedModel(Struct, frozen=True):
    """A file's `ModelProto`, its nodes in the order of execution, and the specs of its inputs."""

    path: Path
    model: Any
    nodes: list[Any]
    inputs: Mapping[str, TensorSpec]


def _inline_functions(path: Path, model: Any) -> Any:
    if not model.functions:
        return model
    from onnx import inliner

    try:
        return inliner.inline_local_functions(model)
    except Exception as error:  # of onnx's C++ code
        raise TraceError(path, "has functions that cannot be inlined", EXPORT) from error


def _infer(opened: _OpenedModel, sources: ShapeSources) -> InferredTensors:
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


class _OnnxInputs(Struct):
    """The shapes of a model's inputs.

    `dims` has each input's dimensions: a size, or the name of a symbol, which may be empty; None where the file does
    not state how many there are. `symbols` are the sizes of named symbols. `is_changed` states that a fixed dimension
    was replaced, so that other shapes that the file states do not hold any more."""

    dims: dict[str, list[int | str] | None]
    symbols: dict[str, int] = field(default_factory=dict)
    is_changed: bool = False

    def set_shape(self, name: str, shape: Shape) -> None:
        """Replace the shape of an input. Raises `UsageError` where it has another rank or contradicts a symbol."""
        dims = self.dims[name]
        if dims is not None and len(dims) != len(shape):
            raise UsageError(
                f"--shape {shorten_name(name)}: has {len(shape)} dimensions, but the input has {len(dims)}"
            )
        for old, new in zip(dims or (), shape, strict=False):
            self._set(f"--shape {shorten_name(name)}", old, new)
        self.dims[name] = [*shape]

    def set_batch(self, batch: int | None, given: Mapping[str, Shape]) -> None:
        """Set the first dimension of the inputs whose shape is not `given`.

        Only those that the file leaves open are set, to 1 unless a `batch` is given; if it leaves none open, all are.
        """
        firsts = {name: dims for name, dims in self.dims.items() if dims and name not in given}
        opened = {name: dims for name, dims in firsts.items() if isinstance(dims[0], str)}
        for dims in (opened or firsts).values() if batch is not None or opened else ():
            old = dims[0]
            size = self.symbols.get(old, 1) if batch is None and isinstance(old, str) else batch
            if size is not None:
                self._set("--batch", old, size)
                dims[0] = size

    def _set(self, option: str, old: int | str, new: int) -> None:
        if isinstance(old, int):
            self.is_changed |= old != new
        elif old and self.symbols.setdefault(old, new) != new:
            name, other = shorten_name(old), self.symbols[old]
            raise UsageError(escaped(f"{option}: the dimension {name} would be {new} here and {other} elsewhere"))


def _resolve_inputs(path: Path, graph: Any, batch: int | None, shapes: Mapping[str, Shape]) -> _OnnxInputs:
    """Return the inputs of a graph, with the shapes that are given; what is still open has the size of its symbol."""
    weights = {each.name for each in graph.initializer}
    found = {each.name: each.type for each in graph.input if each.name not in weights}
    for name in shapes.keys() - found.keys():
        known = ", ".join(shorten_name(each) for each in [*found][:NAMED_INPUTS]) or "none"
        raise UsageError(escaped(f"--shape {shorten_name(name)}: {path} has no such input; its inputs are {known}"))
    inputs = _OnnxInputs({name: _read_dims(path, name, kind) for name, kind in found.items()})
    for name, shape in shapes.items():
        inputs.set_shape(name, shape)
    inputs.set_batch(batch, shapes)
    return inputs


def _make_inputs(path: Path, graph: Any, inputs: _OnnxInputs) -> dict[str, TensorSpec]:
    """Return the specs of the inputs. Raises `UsageError` for a dimension that is still open."""
    types = {each.name: each.type.tensor_type.elem_type for each in graph.input}
    specs = {}
    for name, dims in inputs.dims.items():
        sizes = [inputs.symbols.get(each, each) if isinstance(each, str) else each for each in dims or ()]
        if dims is None or not all(isinstance(each, int) for each in sizes):
            shown = "x".join(str(each) or "?" for each in sizes) if dims is not None else "no stated rank"
            advice = f"give it with --shape {shorten_name(name)}=1x3x224x224 or as it is"
            raise UsageError(escaped(f"{path}: the shape of input {shorten_name(name)} is open ({shown}); {advice}"))
        try:
            specs[name] = make_spec((int(each) for each in sizes), types[name])
        except ValueError as error:
            raise TraceError(path, f"input {shorten_name(name)} has {error}", "check --shape and --batch") from error
    return specs


def _read_dims(path: Path, name: str, kind: Any) -> list[int | str] | None:
    """Return the dimensions that a file states for an input."""
    tensor = kind.tensor_type
    if not kind.HasField("tensor_type") or tensor.elem_type not in DTYPES:
        advice = "export the model with tensors of numbers as its inputs"
        raise TraceError(path, f"input {shorten_name(name)} is no tensor of numbers", advice)
    if not tensor.HasField("shape"):
        return None
    return [each.dim_value if each.HasField("dim_value") else each.dim_param for each in tensor.shape.dim]
