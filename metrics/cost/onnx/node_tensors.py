"""A node with its tensors, as the rules of costs see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from deepprof.collectors.models.graph import ModelGraph, ModelNode, TensorSpec
from deepprof.metrics.cost.operation_cost import OperationCost

ABSENT = TensorSpec((0,), "bool")  # an optional input that is left out: no elements


class NodeTensors(Struct, frozen=True):
    """A node of a graph; its `inputs` and `outputs` are specs, `ABSENT` where they are left out."""

    node: ModelNode
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    @classmethod
    def of(cls, node: ModelNode, graph: ModelGraph) -> NodeTensors:
        """Return the node with the specs of its tensors."""
        tensors = graph.tensors
        inputs, outputs = (
            tuple(tensors[name] if name else ABSENT for name in names) for names in (node.inputs, node.outputs)
        )
        return cls(node, inputs, outputs)

    def input(self, place: int) -> TensorSpec:
        """Return an input, `ABSENT` if there are fewer."""
        return self.inputs[place] if place < len(self.inputs) else ABSENT

    @property
    def output(self) -> TensorSpec:
        """Return the first result."""
        return self.outputs[0]

    def number(self, name: str, default: int) -> int:
        """Return an attribute that is a whole number."""
        found = self.node.attributes.get(name, default)
        return found if isinstance(found, int) else default

    def numbers(self, name: str) -> tuple[int, ...]:
        """Return an attribute that is a list of whole numbers, empty where it is absent."""
        found: Any = self.node.attributes.get(name, ())
        return tuple(int(each) for each in found) if isinstance(found, tuple) else ()

    def text(self, name: str, default: str) -> str:
        """Return an attribute that is a text."""
        found = self.node.attributes.get(name, default)
        return found if isinstance(found, str) else default

    def cost(self, flops: int, product_flops: int = 0, *, first_nbytes: int | None = None) -> NodeCost:
        """Return the cost of this many operations; each different input is read once, and each result written.

        Of the first input `first_nbytes` are read, where that is not all of it.
        """
        reads = {name: spec.nbytes for name, spec in zip(self.node.inputs, self.inputs, strict=True) if name}
        if first_nbytes is not None:
            reads[self.node.inputs[0]] = first_nbytes
        writes = {name: spec.nbytes for name, spec in zip(self.node.outputs, self.outputs, strict=True) if name}
        return NodeCost(flops, reads, writes, product_flops, self.inputs[0].dtype if product_flops else None)


class NodeCost(Struct, frozen=True):
    """The cost of a node, with the bytes that it reads and writes of every tensor, by their names."""

    flops: int
    reads: Mapping[str, int]
    writes: Mapping[str, int]
    product_flops: int = 0
    product_dtype: str | None = None

    def add_up(self) -> OperationCost:
        """Return the cost with the bytes of all tensors together."""
        read, written = sum(self.reads.values()), sum(self.writes.values())
        return OperationCost(self.flops, read, written, self.product_flops, self.product_dtype)


Rule = Callable[[NodeTensors], NodeCost | None]
