"""Who computes and who uses each tensor of a model, and what a set of operators reads and gives."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from deepprof.collectors.models.graph import ModelGraph


class GraphLinks:
    """The links of a graph: `producers` has the operator that computes a tensor, `consumers` those that read it.

    Operators are numbered as in `ModelGraph.nodes`.
    """

    def __init__(self, graph: ModelGraph) -> None:
        self.graph = graph
        self.producers = {name: number for number, node in enumerate(graph.nodes) for name in node.outputs if name}
        consumers = defaultdict[str, list[int]](list)
        for number, node in enumerate(graph.nodes):
            for name in filter(None, dict.fromkeys(node.inputs)):
                consumers[name].append(number)
        self.consumers: Mapping[str, Sequence[int]] = dict(consumers)
        self.results = frozenset(graph.outputs)

    def list_users(self, node: int) -> Iterator[int]:
        """Yield the operators that read a result of one."""
        for name in self.graph.nodes[node].outputs:
            yield from self.consumers.get(name, ())

    def list_sources(self, node: int) -> Iterator[int]:
        """Yield the operators whose results one reads."""
        for name in self.graph.nodes[node].inputs:
            if name in self.producers:
                yield self.producers[name]

    def list_results(self, nodes: Sequence[int]) -> list[str]:
        """Return the tensors that a set of operators computes for others, or for the user of the model."""
        inside = set(nodes)
        made = [name for node in nodes for name in self.graph.nodes[node].outputs if name in self.graph.tensors]
        return [name for name in made if name in self.results or not inside.issuperset(self.consumers.get(name, (-1,)))]
