"""A node with its tensors, as the rules of costs see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from deepprof.collectors.models.graph import ModelGraph, ModelNode, TensorSpec
from deepprof.metrics.cost.operation_cost import OperationCost

ABSENT = TensorSpec((0,), "bool")  # an optional input that is left out: no elements


@dataclass(frozen=True, slots=True)
class NodeTensors:
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

    def cost(self, flops: int, product_flops: int = 0, *, read: int | None = None) -> OperationCost:
        """Return the cost of so many operations; `read` bytes, or each different input once, and each result."""
        inputs = dict(zip(self.node.inputs, self.inputs, strict=True))
        return OperationCost(
            flops=flops,
            read_nbytes=sum_nbytes(inputs.values()) if read is None else read,
            written_nbytes=sum_nbytes(self.outputs),
            product_flops=product_flops,
            product_dtype=self.inputs[0].dtype if product_flops else None,
        )


Rule = Callable[[NodeTensors], OperationCost | None]


def sum_nbytes(specs: Iterable[TensorSpec]) -> int:
    """Return the bytes of tensors together."""
    return sum(spec.nbytes for spec in specs)
