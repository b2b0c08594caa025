"""Layers from an ONNX file: exporters of PyTorch write into each node which module it belongs to.

`torch.onnx.export` names a node `/layer1/layer1.0/conv1/Conv`, or keeps the paths and classes of its modules in the
node's metadata. Types of nodes are mapped to PyTorch's operators by tables; those that only change shapes, and parts of
an operator that ONNX writes as several, are left out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deepprof.collectors.errors import TraceError
from deepprof.collectors.live.model_forward import MODULES, NAME_CHARS, OPERATORS, SCHEMA

LIMIT_NBYTES = 2 * 1024**3  # as protobuf has it; weights may lie in files beside it, which are not read
PLAIN = {  # by type: nodes that are one operator
    **{
        kind: kind.lower()
        for kind in ("Abs", "Add", "Div", "Erf", "Exp", "Log", "Mul", "Neg", "Pow", "Relu", "Sigmoid")
    },
    **{kind: kind.lower() for kind in ("Sqrt", "Sub", "Tanh", "Sin", "Cos", "Gelu", "Elu", "Selu", "Softmax", "Where")},
    **{"LSTM": "lstm", "GRU": "gru", "RNN": "rnn_tanh", "Einsum": "einsum", "Concat": "cat", "Pad": "pad"},
    **{"Gemm": "linear", "LogSoftmax": "log_softmax", "LeakyRelu": "leaky_relu", "HardSwish": "hardswish"},
    **{"HardSigmoid": "hardsigmoid", "Softplus": "softplus", "Mish": "mish", "PRelu": "prelu", "Clip": "clamp"},
    **{"BatchNormalization": "batch_norm", "LayerNormalization": "layer_norm", "GroupNormalization": "group_norm"},
    **{"InstanceNormalization": "instance_norm", "RMSNormalization": "rms_norm", "Dropout": "dropout"},
    **{"ReduceMean": "mean", "ReduceSum": "sum", "CumSum": "cumsum", "TopK": "topk", "ArgMax": "argmax"},
    "Attention": "scaled_dot_product_attention",
}
SPATIAL = {  # nodes whose operator has the number of dimensions in its name
    "Conv": "conv{}d",
    "ConvTranspose": "conv_transpose{}d",
    "MaxPool": "max_pool{}d",
    "AveragePool": "avg_pool{}d",
    "GlobalAveragePool": "adaptive_avg_pool{}d",
    "GlobalMaxPool": "adaptive_max_pool{}d",
}
DIMENSIONS = 2  # where a node has no kernel: images
SCOPES, CLASSES = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy"
CALLED_AGAIN = re.compile(r"^(.+)_\d+$")
LIST_CHARS = 20_000
MISSING = "pip install 'deepprof[model]'"
EXPORT = "export it with torch.onnx.export"


@dataclass(slots=True)
class _OnnxGraph:
    """What of a graph says which operator a node is: its `weights`, and the `modules` of their names."""

    weights: set[str]
    modules: set[str]
    paths: set[str] = field(default_factory=set)


def read_onnx(path: Path) -> dict[str, Any]:
    """Return the content of a file of layers for an ONNX model.

    Raises `TraceError` when the file cannot be read, is no ONNX model or names no modules, or onnx is not installed.
    """
    graph = _load(path).graph
    weights = {each.name for each in graph.initializer}
    known = _OnnxGraph(weights, {name.rpartition(".")[0] for name in weights})
    named = [(node, *_find_module(node)) for node in graph.node]
    known.paths = {module for _, module, _ in named}
    if not any(known.paths):
        raise TraceError(path, "does not say which module its nodes belong to", EXPORT)
    content = _collect(named, known, graph.name)
    if not content["operators"] or len(content["operators"]) > OPERATORS or len(content["modules"]) > MODULES:
        raise TraceError(path, "has no operator of PyTorch's, or too many", EXPORT)
    return content


def _load(path: Path) -> Any:
    """Return the model without weights that lie in other files."""
    try:
        import onnx
    except ImportError as error:
        raise TraceError(path, "needs the onnx library to be read", MISSING) from error
    try:
        if path.stat().st_size > LIMIT_NBYTES:
            raise TraceError(path, "is larger than an ONNX model can be", EXPORT)
        model = onnx.load(str(path), load_external_data=False)
    except OSError as error:
        raise TraceError(path, f"cannot be read: {error.strerror or error}", "check the path") from error
    except TraceError:
        raise
    except Exception as error:  # protobuf's own, which has several implementations
        raise TraceError(path, "is no ONNX model", EXPORT) from error
    if not model.graph.node:
        raise TraceError(path, "is no ONNX model: it has no nodes", EXPORT)
    if not all(isinstance(text, str) for text in _list_texts(model.graph)):
        raise TraceError(path, "is a damaged ONNX model: its names are not UTF-8", EXPORT)
    return model


def _list_texts(graph: Any) -> Iterator[object]:
    """Yield what is read of a graph as text; protobuf gives bytes where it is none."""
    yield graph.name
    yield from (each.name for each in graph.initializer)
    for node in graph.node:
        yield from (node.name, node.op_type, *node.input, *node.output)
        yield from (text for each in node.metadata_props for text in (each.key, each.value))


def _find_module(node: Any) -> tuple[str, str | None]:
    """Return the path of a node's module, empty for the model itself, and its class where it is known."""
    said = {each.key: each.value for each in node.metadata_props}
    scopes, classes = _read_list(said.get(SCOPES)), _read_list(said.get(CLASSES))
    if len(scopes) > 1:  # the last is the node itself
        kind = classes[len(scopes) - 2].rpartition(".")[2] if len(classes) >= len(scopes) - 1 else ""
        return scopes[-2][:NAME_CHARS], kind[:NAME_CHARS] or None
    return join_scopes(node.name)[:NAME_CHARS], None


def _read_list(text: str | None) -> list[str]:
    """Return a list of texts that is written as in Python; empty for anything else."""
    if not text or len(text) > LIST_CHARS:
        return []
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    texts = [each for each in found if isinstance(each, str)] if isinstance(found, list) else []
    return [each.encode("utf-8", "replace").decode() for each in texts]


def join_scopes(name: str) -> str:
    """Return the path of a module from the name of a node: `/layer1/layer1.0/conv1/Conv` is of `layer1.0.conv1`."""
    parts: list[str] = []
    for scope in name.split("/")[1:-1]:
        if parts and scope.startswith(f"{parts[-1]}."):
            parts.pop()
        parts.append(scope)
    return ".".join(parts)


def _collect(named: Iterable[tuple[Any, str, str | None]], graph: _OnnxGraph, model: str) -> dict[str, Any]:
    """Return the content of a file of layers for nodes, each with its module and that one's class."""
    numbers, kinds = dict[str, int](), dict[str, str | None]()
    operators: list[list[object]] = []
    for name, path, kind in _list_operators(named, graph):
        shown = path or (model or "model")[:NAME_CHARS]
        kinds[shown] = kinds.get(shown) or kind
        operators.append([f"aten::{name}", numbers.setdefault(shown, len(numbers)), 0])
    modules = [{"path": path, "class": kinds[path]} for path in numbers]
    return {"schema": SCHEMA, "modules": modules, "operators": operators}


def _list_operators(
    named: Iterable[tuple[Any, str, str | None]], graph: _OnnxGraph
) -> Iterator[tuple[str, str, str | None]]:
    """Yield the operator, module and class of each node that has one.

    A bias that is added to the product of a matrix with its weights is part of it.
    """
    multiplied: set[str] = set()
    for node, path, kind in named:
        name = _name_operator(node, graph)
        if node.op_type == "MatMul" and name == "linear":
            multiplied |= set(node.output)
        elif node.op_type == "Add" and multiplied & set(node.input) and graph.weights & set(node.input):
            continue
        if name is not None:
            yield name, _find_called(path, graph), kind


def _name_operator(node: Any, graph: _OnnxGraph) -> str | None:
    """Return the operator of a node, None for what is not one."""
    kind = node.op_type
    if kind in SPATIAL:
        kernel = next((each.ints for each in node.attribute if each.name == "kernel_shape"), ())
        return SPATIAL[kind].format(len(kernel) if 1 <= len(kernel) <= 3 else DIMENSIONS)
    if kind == "MatMul":
        return "linear" if len(node.input) > 1 and _is_weight(node.input[1], graph) else "matmul"
    if kind == "Gather":
        return "embedding" if node.input and node.input[0] in graph.weights else None
    return PLAIN.get(kind)


def _is_weight(name: str, graph: _OnnxGraph) -> bool:
    """Return whether a value is a weight: exporters transpose some, under names of their own."""
    return name in graph.weights or name.startswith(("onnx::MatMul", "transpose", "val_t"))


def _find_called(path: str, graph: _OnnxGraph) -> str:
    """Return the module of a path: `relu_1` is `relu` called again, unless it has weights."""
    again = CALLED_AGAIN.match(path)
    if again and again[1] in graph.paths and path not in graph.modules:
        return again[1]
    return path
