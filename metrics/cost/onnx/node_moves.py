"""Costs of what only moves elements, and of what does nothing at run time."""

from __future__ import annotations

from collections.abc import Mapping

from deepprof.metrics.cost.onnx.node_tensors import NodeCost, NodeTensors, Rule

# These change how elements are counted, not where they lie; dropout is for training.
FREE = ("Shape", "Size", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Constant", "Dropout")
WHOLE = (  # all inputs are read, all results written
    *("Transpose", "Concat", "Pad", "Tile", "Expand", "Cast", "CastLike", "DepthToSpace", "SpaceToDepth", "OneHot"),
    *("ConstantOfShape", "Range", "EyeLike", "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike"),
    *("ScatterND", "ScatterElements", "Scatter", "NonZero", "Compress", "ReverseSequence", "Col2Im", "Bernoulli"),
    "com.microsoft.QLinearConcat",
)
PARTS = ("Slice", "Split", "Trilu", "CenterCropPad")  # only what becomes a result is read
GATHERING = ("Gather", "GatherElements", "GatherND")
TAPS = {"nearest": 1, "linear": 2, "bilinear": 2, "cubic": 4}  # elements along each dimension that make one


def _do_nothing(_: NodeTensors) -> NodeCost:
    return NodeCost(0, {}, {})


def _move(tensors: NodeTensors) -> NodeCost:
    return tensors.cost(0)


def _take_part(tensors: NodeTensors) -> NodeCost:
    """Return the cost of copying a part: what is written is what was read, beside bounds and sizes."""
    written = sum(spec.nbytes for spec in tensors.outputs)
    return tensors.cost(0, first_nbytes=min(written, tensors.input(0).nbytes))


def _gather(tensors: NodeTensors) -> NodeCost:
    """Return the cost of a look-up: the indices, and of the table what they name."""
    return tensors.cost(0, first_nbytes=tensors.output.nbytes)


def _resize(tensors: NodeTensors) -> NodeCost:
    """Return the cost of Resize or Upsample: a weighted sum of near elements along each dimension that changes."""
    data, output = tensors.input(0), tensors.output
    changed = sum(before != after for before, after in zip(data.shape, output.shape, strict=False))
    taps = TAPS.get(tensors.text("mode", "nearest"), 2) ** changed
    seen = min(data.nbytes, output.nbytes * taps)
    return tensors.cost((2 * taps - 1 if taps > 1 else 0) * output.elements, first_nbytes=seen)


def _sample(tensors: NodeTensors) -> NodeCost:
    """Return the cost of GridSample: a weighted sum of the nearest elements at places that a grid gives."""
    dims = len(tensors.output.shape) - 2
    taps = TAPS.get(tensors.text("mode", "linear"), 2) ** dims
    seen = min(tensors.input(0).nbytes, tensors.output.nbytes * taps)
    return tensors.cost((2 * taps - 1 if taps > 1 else 0) * tensors.output.elements, first_nbytes=seen)


MOVE_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(FREE, _do_nothing),
    **dict.fromkeys(WHOLE, _move),
    **dict.fromkeys(PARTS, _take_part),
    **dict.fromkeys(GATHERING, _gather),
    **{"Resize": _resize, "Upsample": _resize, "GridSample": _sample},
}
