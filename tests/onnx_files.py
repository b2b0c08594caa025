"""Small ONNX files for tests, made node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Dims = Sequence[int | str | None]


def save_model(
    path: Path,
    nodes: Sequence[Any],
    inputs: Mapping[str, Dims],
    outputs: Sequence[str],
    weights: Mapping[str, Any] | None = None,
    **more: Any,
) -> Path:
    """Write a model; inputs are float32, weights arrays, and `more` fields of the model such as `functions`."""
    from onnx import TensorProto, helper, numpy_helper, save

    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in inputs.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "net", ends, results, tensors)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1), helper.make_opsetid("com.microsoft", 1)]
    save(helper.make_model(graph, opset_imports=opsets, **more), str(path))
    return path


def node(kind: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    """Return a node whose tensors are named in a line each; `-` is an input that is left out."""
    from onnx import helper

    domain, _, name = kind.rpartition(".")
    names = ["" if each == "-" else each for each in inputs.split()]
    return helper.make_node(name, names, outputs.split(), domain=domain, **attributes)
