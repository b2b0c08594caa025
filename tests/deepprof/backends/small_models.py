"""Small models as ONNX files, without a framework: what backends fuse, in a few nodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["write_attention", "write_branches", "write_convolutions", "write_unsupported"]

OPSET = 17


def write_convolutions(path: Path, batch: int | str = "batch", side: int = 16) -> Path:
    """Write an image network: convolution and ReLU, a strided one added to a projection of the same, pooling, Gemm."""
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], "/stem/Conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], "/stem/Relu"),
        helper.make_node(
            *("Conv", ["r1", "w2", "b2"], ["c2"], "/body/Conv"), kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]
        ),
        helper.make_node("Conv", ["r1", "w3", "b3"], ["c3"], "/skip/Conv", kernel_shape=[1, 1], strides=[2, 2]),
        helper.make_node("Add", ["c2", "c3"], ["sum"], "/Add"),
        helper.make_node("Relu", ["sum"], ["r2"], "/Relu"),
        helper.make_node("GlobalAveragePool", ["r2"], ["p"], "/GlobalAveragePool"),
        helper.make_node("Flatten", ["p"], ["f"], "/Flatten"),
        helper.make_node("Gemm", ["f", "w4", "b4"], ["y"], "/head/Gemm", transB=1),
    ]
    weights = {"w1": (16, 3, 3, 3), "w2": (16, 16, 3, 3), "w3": (16, 16, 1, 1), "w4": (10, 16), "b4": (10,)}
    weights |= dict.fromkeys(("b1", "b2", "b3"), (16,))
    return _write(path, nodes, {"x": (TensorProto.FLOAT, [batch, 3, side, side])}, weights, [batch, 10])


def write_attention(path: Path, batch: int | str = "batch", words: int = 8) -> Path:
    """Write a block of a transformer over words: embedding, layer norm, attention of one head, a residual."""
    nodes = [
        helper.make_node("Gather", ["table", "tokens"], ["e"], "/embedding/Gather"),
        helper.make_node("LayerNormalization", ["e", "g", "g"], ["n"], "/norm/LayerNormalization", axis=-1),
        helper.make_node("MatMul", ["n", "wq"], ["q"], "/query/MatMul"),
        helper.make_node("MatMul", ["n", "wk"], ["k"], "/key/MatMul"),
        helper.make_node("MatMul", ["n", "wv"], ["v"], "/value/MatMul"),
        helper.make_node("Transpose", ["k"], ["kt"], "/Transpose", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "kt"], ["s"], "/MatMul"),
        helper.make_node("Mul", ["s", "scale"], ["scaled"], "/Mul"),
        helper.make_node("Softmax", ["scaled"], ["a"], "/Softmax", axis=-1),
        helper.make_node("MatMul", ["a", "v"], ["o"], "/MatMul_1"),
        helper.make_node("Add", ["o", "e"], ["y"], "/Add"),
    ]
    weights = {"table": (50, 32), "g": (32,), "wq": (32, 32), "wk": (32, 32), "wv": (32, 32), "scale": ()}
    inputs = {"tokens": (TensorProto.INT64, [batch, words])}
    return _write(path, nodes, inputs, weights, [batch, words, 32])


def write_unsupported(path: Path) -> Path:
    """Write a model with an operator that no backend has."""
    nodes = [helper.make_node("Unheard", ["x"], ["y"], "/Unheard", domain="elsewhere")]
    return _write(path, nodes, {"x": (TensorProto.FLOAT, [1, 4])}, {}, [1, 4])


def write_branches(path: Path) -> Path:
    """Write a model that computes one of two things, by the sum of its input."""
    result = helper.make_tensor_value_info("r", TensorProto.FLOAT, [1, 4])
    branches = {
        f"{name}_branch": helper.make_graph([helper.make_node(kind, ["x"], ["r"], f"/{kind}")], name, [], [result])
        for name, kind in (("then", "Relu"), ("else", "Sigmoid"))
    }
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], "/ReduceSum", keepdims=0),
        helper.make_node("Cast", ["s"], ["is_positive"], "/Cast", to=TensorProto.BOOL),
        helper.make_node("If", ["is_positive"], ["y"], "/If", **branches),
    ]
    return _write(path, nodes, {"x": (TensorProto.FLOAT, [1, 4])}, {}, [1, 4])


def _write(
    path: Path,
    nodes: Sequence[Any],
    inputs: dict[str, tuple[int, list[int | str]]],
    weights: dict[str, tuple[int, ...]],
    result: list[int | str],
) -> Path:
    random = np.random.default_rng(0)
    values = [numpy_helper.from_array(random.random(shape, np.float32), name) for name, shape in weights.items()]
    given = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
    graph = helper.make_graph(
        nodes, "small", given, [helper.make_tensor_value_info("y", TensorProto.FLOAT, result)], values
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("elsewhere", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path
