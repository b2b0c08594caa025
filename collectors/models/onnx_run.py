"""Shapes that only a run can show: onnxruntime runs a model once, unoptimised, and gives the tensors asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from deepprof.collectors.errors import TraceError
from deepprof.collectors.models.graph import TensorSpec
from deepprof.collectors.models.onnx_order import shorten_name
from deepprof.collectors.models.onnx_types import NUMBERS, make_spec

MISSING_RUNTIME = "pip install 'deepprof[onnxruntime]'"
QUIET = 4  # severity of what onnxruntime logs: only what ends the process


def run_for_shapes(
    path: Path, model: Any, inputs: Mapping[str, TensorSpec], names: Iterable[str]
) -> dict[str, TensorSpec]:
    """Return the shapes of tensors in one run with random inputs; integers are 0, so that they are valid indices.

    Raises `TraceError` where onnxruntime is not installed or cannot run the model, such as without its weights.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise TraceError(path, "needs onnxruntime to be run", MISSING_RUNTIME) from error
    wanted = [*names]
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = QUIET
    content = _prepare(path, model, inputs, wanted)
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        results = session.run(wanted, {name: _draw(spec) for name, spec in inputs.items()})
    except Exception as error:  # of onnxruntime, whose classes have no common base
        problem = f"cannot be run by onnxruntime: {shorten_name(' '.join(str(error).split()))}"
        raise TraceError(path, problem, "check that it runs with these shapes") from error
    return {name: _measure(path, name, result) for name, result in zip(wanted, results, strict=True)}


def _prepare(path: Path, model: Any, inputs: Mapping[str, TensorSpec], wanted: Iterable[str]) -> bytes:
    import onnx
    from onnx.external_data_helper import load_external_data_for_model

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    try:
        load_external_data_for_model(copy, str(path.parent))
    except Exception as error:  # of several libraries
        problem = "the file of its weights is absent or damaged, and they are needed to run it"
        raise TraceError(path, problem, "put it beside the model") from error
    for each in copy.graph.input:
        if each.name in inputs:
            spec = inputs[each.name]
            each.CopyFrom(onnx.helper.make_tensor_value_info(each.name, NUMBERS[spec.dtype], spec.shape))
    del copy.graph.value_info[:], copy.graph.output[:]
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted)
    try:
        content: bytes = copy.SerializeToString()
    except Exception as error:  # of protobuf, which has several implementations
        raise TraceError(path, "is too large to be run for its shapes", "export it with fixed shapes") from error
    return content


def _draw(spec: TensorSpec) -> Any:
    """Return an input: numbers from 0 to 1, truths, or integers that are 0."""
    if spec.dtype.startswith("float"):
        return np.random.default_rng(0).random(spec.shape).astype(spec.dtype)
    return np.ones(spec.shape, bool) if spec.dtype == "bool" else np.zeros(spec.shape, spec.dtype)


def _measure(path: Path, name: str, result: Any) -> TensorSpec:
    number = NUMBERS.get(getattr(getattr(result, "dtype", None), "name", ""), 0)
    try:
        return make_spec(getattr(result, "shape", ()), number)
    except ValueError as error:
        raise TraceError(path, f"the tensor {shorten_name(name)} has {error}", "export it with tensors only") from error
