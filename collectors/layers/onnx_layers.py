"""Layers from an ONNX file: exporters of PyTorch write into each node which module it belongs to.

Types of nodes are mapped to PyTorch's operators by tables; those that only change shapes, and parts of an operator that
ONNX writes as several, are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from deepprof.collectors.errors import TraceError
from deepprof.collectors.live.model_forward import MODULES, NAME_CHARS, OPERATORS, SCHEMA
from deepprof.collectors.models.onnx_file import EXPORT, find_modules, load_onnx

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


def read_onnx(path: Path) -> dict[str, Any]:
    """Return the content of a file of layers for an ONNX model.

    Raises `TraceError` when the file cannot be read, is no ONNX model or names no modules, or onnx is not installed.
    """
    graph = load_onnx(path).graph
    weights = {each.name for each in graph.initializer}
    named = [(node, *module) for node, module in zip(graph.node, find_modules(graph.node, weights), strict=True)]
    if not any(module for _, module, _ in named):
        raise TraceError(path, "does not say which module its nodes belong to", EXPORT)
    content = _collect(named, weights, graph.name)
    if not content["operators"] or len(content["operators"]) > OPERATORS or len(content["modules"]) > MODULES:
        raise TraceError(path, "has no operator of PyTorch's, or too many", EXPORT)
    return content


def _collect(named: Iterable[tuple[Any, str, str | None]], weights: set[str], model: str) -> dict[str, Any]:
    """Return the content of a file of layers for nodes, each with its module and that one's class."""
    numbers, kinds = dict[str, int](), dict[str, str | None]()
    operators: list[list[object]] = []
    for name, path, kind in _list_operators(named, weights):
        shown = path or (model or "model")[:NAME_CHARS]
        kinds[shown] = kinds.get(shown) or kind
        operators.append([f"aten::{name}", numbers.setdefault(shown, len(numbers)), 0])
    modules = [{"path": path, "class": kinds[path]} for path in numbers]
    return {"schema": SCHEMA, "modules": modules, "operators": operators}


def _list_operators(
    named: Iterable[tuple[Any, str, str | None]], weights: set[str]
) -> Iterator[tuple[str, str, str | None]]:
    """Yield the operator, module and class of every node that has one.

    A bias that is added to the product of a matrix with its weights is part of it.
    """
    multiplied: set[str] = set()
    for node, path, kind in named:
        name = _name_operator(node, weights)
        if node.op_type == "MatMul" and name == "linear":
            multiplied |= set(node.output)
        elif node.op_type == "Add" and multiplied & set(node.input) and not weights.isdisjoint(node.input):
            continue
        if name is not None:
            yield name, path, kind


def _name_operator(node: Any, weights: set[str]) -> str | None:
    """Return the operator of a node, None for what is not one."""
    kind = node.op_type
    if kind in SPATIAL:
        kernel = next((each.ints for each in node.attribute if each.name == "kernel_shape"), ())
        return SPATIAL[kind].format(len(kernel) if 1 <= len(kernel) <= 3 else DIMENSIONS)
    if kind == "MatMul":
        return "linear" if len(node.input) > 1 and _is_weight(node.input[1], weights) else "matmul"
    if kind == "Gather":
        return "embedding" if node.input and node.input[0] in weights else None
    return PLAIN.get(kind)


def _is_weight(name: str, weights: set[str]) -> bool:
    """Return whether a value is a weight: exporters transpose some, under their own names."""
    return name in weights or name.startswith(("onnx::MatMul", "transpose", "val_t"))
