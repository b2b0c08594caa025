"""What operators cost together when a runtime computes them as one: PRoof's rule of fused operators.

The floating-point operations are summed, and only the tensors that come from outside or go there are moved. Which
operators are fused is the runtime's choice; `fuse_nodes` predicts it by one rule: a convolution or a matrix product
takes up the functions of every element that alone use its result.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import polars as pl

from deepprof.collectors.models.graph import TYPE_BITS, ModelGraph
from deepprof.collectors.table_schema import TableSchema
from deepprof.metrics.cost.onnx.node_costs import FREE, POINTWISE_RULES, cost_by_tensor
from deepprof.metrics.cost.onnx.node_products import PRODUCT_RULES
from deepprof.metrics.cost.operation_cost import OperationCost

FLOATS = frozenset({"float64", "float32", "float16", "bfloat16"})
NUMBER, TEXT = pl.Int64(), pl.String()
FUSED_COSTS: TableSchema = TableSchema.of(
    "operators that are computed as one, in the order of the first of them",
    {
        "node": (TEXT, "the name of the first"),
        "kind": (TEXT, "its type"),
        "layer": (TEXT, "the path of the module of the first"),
        "nodes": (pl.List(TEXT), "the names of all"),
        "flops": (NUMBER, "their floating-point operations; null: unknown, because one of them has no rule"),
        "product_flops": (NUMBER, "those of them that belong to products"),
        "product_dtype": (TEXT, "the type of the operands of their products, null without products"),
        "read_nbytes": (NUMBER, "the bytes that they read from outside; null: unknown"),
        "written_nbytes": (NUMBER, "the bytes that they write for others; null: unknown"),
    },
)


class GroupCosts:
    """The costs of groups of a graph's nodes, which are numbered as in `ModelGraph.nodes`.

    A node that only changes how elements are counted, such as Reshape, gives its input another name: what it makes is
    moved by those who compute and use it.
    """

    def __init__(self, graph: ModelGraph) -> None:
        self.graph = graph
        self.costs = [cost_by_tensor(node, graph) for node in graph.nodes]
        self._roots = _find_roots(graph)
        self.makers = {name: number for number, node in enumerate(graph.nodes) for name in node.outputs if name}
        self.users: dict[str, set[int]] = {}
        for number, node in enumerate(graph.nodes):
            if node.kind not in FREE:
                for name in filter(None, node.inputs):
                    self.users.setdefault(self.resolve(name), set()).add(number)
        self.results = frozenset(map(self.resolve, graph.outputs))

    def resolve(self, name: str) -> str:
        """Return the tensor of which a name is only another view."""
        return self._roots.get(name, name)

    def cost_of_group(self, numbers: Collection[int], dtype: str | None = None) -> OperationCost | None:
        """Return the cost of nodes that are computed as one, None where one of them has no rule.

        With a `dtype`, their floating-point tensors have that type, whatever the file states.
        """
        costs = [self.costs[number] for number in numbers]
        known = [cost for cost in costs if cost is not None]
        if len(known) < len(costs):
            return None
        made = {name for cost in known for name in cost.writes}
        reads = _merge((self.resolve(name), nbytes) for cost in known for name, nbytes in cost.reads.items())
        writes = _merge(item for cost in known for item in cost.writes.items())
        dtypes = [cost.product_dtype for cost in known if cost.product_dtype is not None]
        return OperationCost(
            flops=sum(cost.flops for cost in known),
            read_nbytes=sum(self._cast(item, dtype) for item in reads.items() if item[0] not in made),
            written_nbytes=sum(self._cast(item, dtype) for item in writes.items() if self._leaves(item[0], numbers)),
            product_flops=sum(cost.product_flops for cost in known),
            product_dtype=(dtype if dtype and dtypes[0] in FLOATS else dtypes[0]) if dtypes else None,
        )

    def _cast(self, item: tuple[str, int], dtype: str | None) -> int:
        """Return the bytes of a tensor, given with those that it has in the file, if it has another type."""
        name, nbytes = item
        spec = self.graph.tensors.get(name)
        if dtype is None or spec is None or spec.dtype not in FLOATS:
            return nbytes
        return nbytes * TYPE_BITS[dtype] // TYPE_BITS[spec.dtype]

    def _leaves(self, name: str, numbers: Collection[int]) -> bool:
        """Return whether a tensor that a group makes is used outside it; one that no one uses is written, too."""
        users = self.users.get(name, set())
        return not users or name in self.results or not users.issubset(numbers)


def _merge(items: Iterator[tuple[str, int]]) -> dict[str, int]:
    """Return the bytes of every tensor: what several nodes read is read once."""
    found: dict[str, int] = {}
    for name, nbytes in items:
        found[name] = max(found.get(name, 0), nbytes)
    return found


def _find_roots(graph: ModelGraph) -> dict[str, str]:
    """Return the tensor behind each result of a node that only renames."""
    roots: dict[str, str] = {}
    for node in graph.nodes:
        if node.kind in FREE and node.inputs and node.outputs:
            roots[node.outputs[0]] = roots.get(node.inputs[0], node.inputs[0])
    return roots


def fuse_nodes(costs: GroupCosts) -> list[tuple[int, ...]]:
    """Return the nodes of a graph in groups that are computed as one (PRoof, Table 4), in the order of their first."""
    taken = set[int]()
    groups = []
    for number, node in enumerate(costs.graph.nodes):
        if number in taken:
            continue
        group = [number, *_follow(number, costs)] if node.kind in PRODUCT_RULES else [number]
        taken.update(group)
        groups.append(tuple(group))
    return groups


def _follow(first: int, costs: GroupCosts) -> Iterator[int]:
    """Yield the functions of every element that can be computed with a node, one after the other.

    Each alone uses the result of the one before, and its other operands are there before the node begins.
    """
    nodes, number = costs.graph.nodes, first
    while True:
        result = nodes[number].outputs[0]
        users = costs.users.get(result, set())
        if len(users) != 1 or result in costs.results:
            return
        (user,) = users
        node = nodes[user]
        others = [name for name in node.inputs if name != result]
        is_ready = all(costs.makers.get(costs.resolve(name), -1) < first for name in others if name)
        same = costs.graph.tensors[node.outputs[0]].elements == costs.graph.tensors[result].elements
        if node.kind not in POINTWISE_RULES or not is_ready or not same or result not in node.inputs:
            return
        yield user
        number = user


def measure_fused(graph: ModelGraph) -> pl.DataFrame:
    """Return what the operators of a model cost when pointwise ones are fused (`FUSED_COSTS`)."""
    costs = GroupCosts(graph)
    rows = [_measure_group(group, costs) for group in fuse_nodes(costs)]
    return pl.DataFrame(rows, schema=FUSED_COSTS, orient="row")


def _measure_group(group: tuple[int, ...], costs: GroupCosts) -> tuple[object, ...]:
    first, names = costs.graph.nodes[group[0]], [costs.graph.nodes[number].name for number in group]
    found = costs.cost_of_group(group)
    own: tuple[object, ...] = (None,) * 5
    if found is not None:
        own = (found.flops, found.product_flops, found.product_dtype, found.read_nbytes, found.written_nbytes)
    return (first.name, first.kind, first.layer, names, *own)
