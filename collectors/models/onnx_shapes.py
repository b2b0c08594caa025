"""Shapes of all tensors of an ONNX graph, one node after the other.

onnx infers the shapes of a node's results from those of its inputs and from small constants; those that nodes compute
are followed here (`onnx_values`), so that one pass over the nodes has every shape that follows from the inputs.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field

from deepprof.collectors.errors import TraceError
from deepprof.collectors.models.graph import AttributeValue, TensorSpec
from deepprof.collectors.models.onnx_order import describe_node, find_captured, list_inner, shorten_name
from deepprof.collectors.models.onnx_types import (
    DTYPES,
    NUMBERS,
    Symbols,
    make_spec,
    name_kind,
    read_attributes,
    read_type,
)
from deepprof.collectors.models.onnx_values import MAX_VALUES, Values, compute_values

SAME_SHAPE = frozenset(  # operators of onnxruntime, which onnx has no schema of: results have the shape of the input
    {
        *("BiasGelu", "FastGelu", "Gelu", "QuickGelu", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"),
        *("SimplifiedLayerNormalization", "RotaryEmbedding", "BiasSoftmax"),
    }
)
REASON_CHARS = 120  # of onnx's message
UNFOLDED = ("DequantizeLinear", "If", "Loop", "Scan")  # stay where they are though their inputs are constants
RANDOM = ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial")

Shape = tuple[int, ...]
Attributes = Mapping[str, AttributeValue]
POSITIVE = ("strides", "dilations", "kernel_shape", "blocksize", "group", "num_outputs", "num_heads")
TERM = r"[A-Za-z ]*(?:\.\.\.[A-Za-z ]*)?"
EQUATION = re.compile(rf"{TERM}(?:,{TERM})*(?:->{TERM})?")
CONVOLUTIONS = {"Conv": 1, "ConvInteger": 1, "QLinearConv": 3, "ConvTranspose": 1}  # the places of their weights
SLIDING = frozenset({*CONVOLUTIONS, "MaxPool", "AveragePool", "LpPool"})
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


class InferredTensors(Struct):
    """What is known of the tensors of a graph.

    `specs` has shapes and types, `values` the elements of small constants, `constants` what does not depend on the
    inputs' elements, `aliases` other names of the same tensor. `missing` states why a node's results have no shape, by
    the names of the results; those that follow from them are missing for an empty reason.
    """

    specs: dict[str, TensorSpec] = field(default_factory=dict)
    values: dict[str, Values] = field(default_factory=dict)
    constants: set[str] = field(default_factory=set)
    aliases: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def resolve(self, name: str) -> str:
        """Return the name under which a tensor is known."""
        return self.aliases.get(name, name)


class ShapeSources(Struct, frozen=True):
    """Where shapes come from that do not follow from the inputs: the file's own, and those that a run had."""

    declared: Mapping[str, TensorSpec]
    measured: Mapping[str, TensorSpec]


def read_declared(graph: Any, symbols: Symbols) -> dict[str, TensorSpec]:
    """Return the shapes that a file states for the results of its nodes, with symbolic dimensions replaced."""
    found = {}
    for value in (*graph.value_info, *graph.output):
        try:
            spec = read_type(value.type, symbols)
        except ValueError:
            continue
        if spec is not None:
            found[value.name] = spec
    return found


def add_weights(path: Path, tensors: Iterable[Any], known: InferredTensors) -> None:
    """Add the weights of a file, with the elements of small ones."""
    for tensor in tensors:
        _add_tensor(path, tensor.name, tensor, known)


def _add_tensor(path: Path, name: str, tensor: Any, known: InferredTensors) -> None:
    try:
        known.specs[name] = make_spec(tensor.dims, tensor.data_type)
    except ValueError as error:
        raise TraceError(path, f"has a weight {shorten_name(name)} with {error}", "export the model again") from error
    known.constants.add(name)
    values = _read_values(path, tensor)
    if values is not None:
        known.values[name] = values


def _read_values(path: Path, tensor: Any) -> Values | None:
    """Return the elements of a small weight, None for a large one and for one whose file is absent."""
    from onnx import numpy_helper

    if prod(tensor.dims) > MAX_VALUES or DTYPES[tensor.data_type] not in np.sctypeDict:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd keys in a place of external data
            return np.asarray(numpy_helper.to_array(_limit_part(tensor), str(path.parent)))
    except Exception:  # of several libraries: a part is absent, which is stated where a shape depends on it
        return None


def _limit_part(tensor: Any) -> Any:
    """Return a weight that reads of another file only its own bytes: without a length onnx reads all of the file."""
    if tensor.data_location != tensor.EXTERNAL:
        return tensor
    limited = type(tensor)()
    limited.CopyFrom(tensor)
    del limited.external_data[:]
    limited.external_data.extend(each for each in tensor.external_data if each.key != "length")
    limited.external_data.add(key="length", value=str(make_spec(tensor.dims, tensor.data_type).nbytes))
    return limited


def infer_shapes(path: Path, nodes: Iterable[Any], model: Any, known: InferredTensors, sources: ShapeSources) -> None:
    """Add to `known` what the nodes, in the order of execution, make."""
    opsets = list(model.opset_import)
    for node in nodes:
        needed = {known.resolve(name) for name in node.input if name}
        needed |= {known.resolve(name) for name in find_captured(node)} & known.missing.keys()
        if needed & known.missing.keys():
            _add_sources(node, "", known, sources)
        else:
            _infer_node(path, node, opsets, known, sources)


def _infer_node(path: Path, node: Any, opsets: list[Any], known: InferredTensors, sources: ShapeSources) -> None:
    """Add the results of a node whose inputs all have shapes; one without results does nothing."""
    if not any(node.output):
        return
    kind, attributes = name_kind(node), read_attributes(node)
    if kind == "Identity" and len(node.input) == len(node.output) == 1 and node.input[0]:
        known.aliases[node.output[0]] = known.resolve(node.input[0])
    elif kind == "Constant":
        _add_constant(path, node, attributes, known)
    elif (computed := _compute(node, kind, attributes, known)) is not None:
        for name, values in zip(node.output, computed, strict=False):
            known.values[name] = values
            known.specs[name] = make_spec(values.shape, NUMBERS[values.dtype.name])
            known.constants.add(name)
    else:
        reason = _infer_results(node, kind, attributes, opsets, known)
        if reason is None and _is_constant(node, kind, known):
            known.constants |= set(node.output)
        elif reason is not None:
            _add_sources(node, reason, known, sources)


def _add_constant(path: Path, node: Any, attributes: Mapping[str, AttributeValue], known: InferredTensors) -> None:
    """Add the result of a Constant, whose value is a tensor, a number or a list."""
    name = node.output[0]
    for each in node.attribute:
        if each.name == "value":
            _add_tensor(path, name, each.t, known)
            return
    value = next((attributes[each] for each in attributes if each.startswith("value_")), None)
    if value is None or isinstance(value, str) or (isinstance(value, tuple) and value and isinstance(value[0], str)):
        known.missing[name] = "its value is no tensor of numbers"
        return
    number = any(isinstance(each, float) for each in (value if isinstance(value, tuple) else (value,)))
    values = np.array(value, np.float32 if number else np.int64)
    known.specs[name] = make_spec(values.shape, NUMBERS[values.dtype.name])
    known.constants.add(name)
    if values.size <= MAX_VALUES:
        known.values[name] = values


def _compute(
    node: Any, kind: str, attributes: Mapping[str, AttributeValue], known: InferredTensors
) -> list[Values] | None:
    """Return the results of a node that are small constants, None where they are not."""
    if kind in {"Shape", "Size"} and any(node.input[:1]):
        shape = known.specs[known.resolve(node.input[0])].shape
        if kind == "Size":
            return [np.array(prod(shape), np.int64)]
        start, end = attributes.get("start", 0), attributes.get("end", len(shape))
        return [np.array(shape[start:end], np.int64)] if isinstance(start, int) and isinstance(end, int) else None
    inputs = [known.values.get(known.resolve(name)) if name else None for name in node.input]
    if any(name and value is None for name, value in zip(node.input, inputs, strict=True)):
        return None
    if kind == "ConstantOfShape":
        attributes = {**attributes, **_read_filling(node)}
    return compute_values(kind, inputs, attributes)


def _read_filling(node: Any) -> dict[str, AttributeValue]:
    from onnx import numpy_helper

    for each in node.attribute:
        if each.name == "value" and prod(each.t.dims) == 1:
            try:
                return {"value": (numpy_helper.to_array(each.t).reshape(-1)[0].item(),), "value_type": each.t.data_type}
            except Exception:  # of several libraries
                return {"value_type": "damaged"}
    return {}


def _is_constant(node: Any, kind: str, known: InferredTensors) -> bool:
    """Return whether the results of a node do not depend on the model's inputs, so that every runtime folds it."""
    names = [known.resolve(name) for name in node.input if name]
    return bool(names) and known.constants.issuperset(names) and kind not in (*UNFOLDED, *RANDOM)


def _infer_results(
    node: Any, kind: str, attributes: Mapping[str, AttributeValue], opsets: list[Any], known: InferredTensors
) -> str | None:
    """Add the shapes of a node's results as onnx infers them, and return why it cannot, None where it can."""
    if (fault := _find_fault(node)) is not None:
        return fault
    if kind == "Split" and not _has_all_parts(node, attributes, known):
        return "its parts are not as many as its results"  # onnx would read beyond them
    if node.domain == "com.microsoft" and node.op_type in SAME_SHAPE:
        known.specs[node.output[0]] = known.specs[known.resolve(node.input[0])]
        return None if not any(node.output[1:]) else "only the shape of its first result is known"
    if kind != node.op_type:
        return f"{shorten_name(kind)} is no operator of ONNX"
    return _ask_onnx(node, kind, attributes, opsets, known)


def _has_all_parts(node: Any, attributes: Mapping[str, AttributeValue], known: InferredTensors) -> bool:
    sizes = known.values.get(known.resolve(node.input[1])) if len(node.input) > 1 and node.input[1] else None
    listed = attributes.get("split", ())
    count = len(listed) if isinstance(listed, tuple) and listed else attributes.get("num_outputs", len(node.output))
    return (count if sizes is None else sizes.size) == len(node.output)


def _ask_onnx(
    node: Any, kind: str, attributes: Mapping[str, AttributeValue], opsets: list[Any], known: InferredTensors
) -> str | None:
    """Add what onnx infers of a model of one node; return why it cannot."""
    from onnx import checker, helper, numpy_helper, shape_inference

    names = {*filter(None, node.input), *(name for name in find_captured(node) if known.resolve(name) in known.specs)}
    inputs, weights = [], []
    for name in sorted(names):
        spec = known.specs[known.resolve(name)]
        inputs.append(helper.make_tensor_value_info(name, NUMBERS[spec.dtype], spec.shape))
        if (values := known.values.get(known.resolve(name))) is not None:
            weights.append(numpy_helper.from_array(values, name))
    outputs = [helper.make_value_info(name, helper.make_tensor_type_proto(0, None)) for name in node.output if name]
    for each in outputs:
        each.ClearField("type")
    graph = helper.make_graph([node], "node", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=opsets)
    try:
        # Without onnx's own propagation of data, which takes memory for every element of a vector, however long.
        results = shape_inference.infer_shapes(model, strict_mode=True).graph.output
        found = {each.name: read_type(each.type) for each in results}
    except (shape_inference.InferenceError, checker.ValidationError, ValueError, RuntimeError, MemoryError) as error:
        return _shorten_reason(str(error))
    if open_ones := [name for name, spec in found.items() if spec is None]:
        return f"the shape of {shorten_name(open_ones[0])} does not follow from its inputs"
    shapes = [known.specs[known.resolve(name)].shape if name else () for name in node.input]
    specs = [found.get(name) for name in node.output]
    if (problem := _find_contradiction(kind, attributes, shapes, specs)) is not None:
        return problem
    known.specs |= {name: spec for name, spec in found.items() if spec is not None}
    return None


def _shorten_reason(text: str) -> str:
    """Return the last sentence of onnx's message, without its own names functions."""
    last = text.strip().rpartition("]")[2].strip() or text.strip()
    return " ".join(last.split())[:REASON_CHARS] or "onnx cannot infer it"


def _add_sources(node: Any, reason: str, known: InferredTensors, sources: ShapeSources) -> None:
    """Add the shapes of results that do not follow from the inputs, from where else they are available."""
    for name in filter(None, node.output):
        spec = sources.measured.get(name) or sources.declared.get(name)
        if spec is None:
            known.missing[name] = f"{describe_node(node)}: {reason}" if reason else ""
        else:
            known.specs[name] = spec


def _find_fault(node: Any) -> str | None:
    """Return what is wrong with attributes of a node or of its subgraphs: onnx would divide by 0, or never end.

    It reads their fields whatever type they state. None if nothing is wrong.
    """
    for each in (attribute for inner in (node, *list_inner(node)) for attribute in inner.attribute):
        sizes = [*each.ints, *([each.i] if each.HasField("i") or each.type == each.INT else [])]
        if each.name in POSITIVE and min(sizes, default=1) < 1:
            return f"its {each.name} is not positive"
        if each.name == "equation" and not EQUATION.fullmatch(each.s.decode("utf-8", "replace")):
            return "its equation is none of letters"
    return None


def _find_contradiction(
    kind: str, attributes: Attributes, inputs: Sequence[Shape], results: Sequence[TensorSpec | None]
) -> str | None:
    """Return what is wrong with shapes that onnx accepts, None if nothing is."""
    first = results[0]
    inputs = [*inputs, *([()] * 4)]  # those that are left out
    if kind == "Reshape" and first is not None and first.elements != prod(inputs[0]):
        return "its new shape is fixed, and has not as many elements as its input"
    if kind in CONVOLUTIONS and (problem := _check_convolution(kind, attributes, inputs)) is not None:
        return problem
    if kind in SLIDING and first is not None and not first.elements and 0 not in inputs[0]:
        return "its window is larger than its input"
    if kind in GATES:
        return _check_recurrence(kind, inputs)
    return _check_equation(str(attributes.get("equation", "")), inputs) if kind == "Einsum" else None


def _check_convolution(kind: str, attributes: Attributes, inputs: Sequence[Shape]) -> str | None:
    """Return what is wrong with a convolution of N × C × spatial, None if nothing is."""
    data, weight = inputs[0], inputs[CONVOLUTIONS[kind]]
    if len(data) != len(weight) or len(data) < 3:
        return f"its input has {len(data)} dimensions, but its weight {len(weight)}"
    if attributes.get("kernel_shape", weight[2:]) != weight[2:]:
        return "its kernel_shape is not that of its weight"
    groups = attributes.get("group", 1)
    channels = weight[0] if kind == "ConvTranspose" else weight[1] * (groups if isinstance(groups, int) else 1)
    return None if data[1] == channels else f"its input has {data[1]} channels, but its weight {channels}"


def _check_recurrence(kind: str, inputs: Sequence[Shape]) -> str | None:
    """Return what is wrong with the weights of a recurrent layer: directions × (gates · hidden) × inputs."""
    data, weight, again = inputs[:3]
    if (len(data), len(weight), len(again)) != (3, 3, 3):
        return "its input and weights have not three dimensions each"
    gates = GATES[kind] * again[2]
    if weight[1:] != (gates, data[2]) or again[1] != gates or weight[0] != again[0]:
        return "its weights do not fit its input, or each other"
    return None


def _check_equation(equation: str, inputs: Sequence[Shape]) -> str | None:
    """Return which letter of an Einsum has two sizes, None if none has; 1 is broadcast."""
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, inputs, strict=False):
        before, _, after = term.partition("...")
        found = [*zip(before, shape, strict=False), *zip(reversed(after), reversed(shape), strict=False)]
        for letter, size in found:
            if 1 not in (size, other := sizes.setdefault(letter, size)) and size != other:
                return f"{letter} of its equation is {other} and {size}"
            sizes[letter] = max(other, size)
    return None
