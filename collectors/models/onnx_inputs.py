"""Shapes of a model's inputs: what the file states, and what the user gives for the rest or instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deepprof.collectors.errors import TraceError, UsageError, escaped
from deepprof.collectors.models.graph import TensorSpec
from deepprof.collectors.models.onnx_order import shorten_name
from deepprof.collectors.models.onnx_types import DTYPES, make_spec

Shape = tuple[int, ...]
NAMED_INPUTS = 5  # in a message


@dataclass(slots=True)
class _OnnxInputs:
    """The shapes of a model's inputs.

    `dims` has each input's dimensions: a size, or the name of a symbol, which may be empty; None where the file does
    not state how many there are. `symbols` are the sizes of named symbols. `is_changed` says that a fixed dimension was
    replaced, so that other shapes that the file states do not hold any more.
    """

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


def resolve_inputs(path: Path, graph: Any, batch: int | None, shapes: Mapping[str, Shape]) -> _OnnxInputs:
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


def make_inputs(path: Path, graph: Any, inputs: _OnnxInputs) -> dict[str, TensorSpec]:
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
