"""What the layers of a backend cost: the FLOP of their operators, and the bytes of the tensors around them.

PRoof's rule: of a fused layer the FLOP are summed, and only the tensors move that it reads from other layers or gives
to them; each of these moves once. What an operator reads only a part of (a strided convolution, an embedding) counts as
that part. Where the backend computes in another type than the file has, floating-point tensors have that type.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from deepprof.collectors.models.backend_profile import BackendLayer
from deepprof.collectors.models.graph import ModelGraph, TensorSpec
from deepprof.metrics.cost.graph_links import GraphLinks
from deepprof.metrics.cost.mapping import ModelMapping
from deepprof.metrics.cost.onnx.node_costs import cost_of_node
from deepprof.metrics.cost.operation_cost import OperationCost

FLOATS = frozenset({"float64", "float32", "float16", "bfloat16"})
NO_COST = OperationCost(0, 0, 0)
PREDICTED = "predicted"
SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    **{"batch": pl.Int64, "place": pl.Int64, "name": pl.String, "kind": pl.String, "role": pl.String},
    **{"layer": pl.String, "operators": pl.List(pl.String), "converts": pl.String, "dtype": pl.String},
    **{"device_ns": pl.Int64, "flops": pl.Int64, "product_flops": pl.Int64, "product_dtype": pl.String},
    **{"nbytes": pl.Int64, "tensors_nbytes": pl.Int64, "basis": pl.String},
}


def cost_layers(mapping: ModelMapping) -> pl.DataFrame:
    """Return a row for each layer of the backend, in the order in which they run.

    `layer` is the module of its first product, or of its first operator; `operators` are their names, `converts` the
    tensor that the layer only converts. `flops`, `product_flops` and `nbytes` are null where an operator has no rule or
    the layer is not mapped; a conversion moves the tensors that the backend states. `tensors_nbytes` are the bytes of
    the layer's tensors as the backend has them, to compare. `basis` says that FLOP and bytes are predicted. `device_ns`
    is the layer's measured time.
    """
    set_costs = SetCosts(mapping.graph)
    rows = [_make_row(mapping, set_costs, number) for number in range(len(mapping.nodes))]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def sum_layers(rows: pl.DataFrame, latency_ns: int | None, name: str = "end to end") -> pl.DataFrame:
    """Return one row for a whole model: the sums over its layers and the measured `latency_ns`.

    A sum is null where a layer that took time has none. The type of its products is that of most of their FLOP.
    """
    types = rows.group_by("product_dtype").agg(pl.sum("product_flops")).drop_nulls().sort("product_flops")
    kinds = {column: _sum_known(rows, column) for column in ("flops", "product_flops", "nbytes", "tensors_nbytes")}
    whole = {"batch": rows["batch"].first(), "name": name, "device_ns": latency_ns, "basis": PREDICTED, **kinds}
    whole["product_dtype"] = types["product_dtype"].last() if len(types) else None
    return pl.DataFrame([whole], schema=SCHEMA)


def _sum_known(rows: pl.DataFrame, column: str) -> int | None:
    missing = rows.filter(pl.col(column).is_null() & (pl.col("device_ns").fill_null(0) > 0))
    return None if len(missing) else int(rows[column].sum())


def _make_row(mapping: ModelMapping, set_costs: SetCosts, number: int) -> tuple[object, ...]:
    layer, nodes = mapping.profile.layers[number], mapping.nodes[number]
    cost = set_costs.cost_of_set(nodes, layer.dtype) if nodes else _cost_of_conversion(mapping, number)
    known = [mapping.graph.nodes[node] for node in nodes]
    products = [node for node in nodes if set_costs.has_product(node)]
    module = mapping.graph.nodes[(products or nodes)[0]].layer if nodes else ""
    return (
        *(mapping.profile.batch, number, layer.name, layer.kind, layer.role.value),
        *(module, [node.name for node in known], mapping.conversions.get(number), layer.dtype, layer.time_ns),
        *((cost.flops, cost.product_flops, cost.product_dtype, cost.nbytes) if cost else (None,) * 4),
        *(layer.tensors_nbytes, PREDICTED),
    )


def _cost_of_conversion(mapping: ModelMapping, number: int) -> OperationCost | None:
    """Return the cost of a layer that only converts a tensor: the tensor before and after."""
    if number not in mapping.conversions:
        return None
    layer: BackendLayer = mapping.profile.layers[number]
    sizes = [sum(each.nbytes or 0 for each in tensors) for tensors in (layer.inputs, layer.outputs)]
    return OperationCost(0, sizes[0], sizes[1]) if layer.tensors_nbytes is not None else None


class SetCosts:
    """The costs of sets of a graph's operators."""

    def __init__(self, graph: ModelGraph) -> None:
        self.graph, self.links = graph, GraphLinks(graph)
        self.costs = [cost_of_node(node, graph) for node in graph.nodes]

    def has_product(self, node: int) -> bool:
        """Return whether an operator multiplies and adds."""
        cost = self.costs[node]
        return cost is not None and cost.product_flops > 0

    def cost_of_set(self, nodes: Sequence[int], dtype: str | None = None) -> OperationCost | None:
        """Return the cost of operators that run as one, None where one of them has no rule.

        `dtype` is the type that they compute in, None for that of the file.
        """
        known = [cost for node in nodes if (cost := self.costs[node]) is not None]
        if len(known) < len(nodes):
            return None
        types = [cost.product_dtype for cost in known if cost.product_dtype is not None]
        moves = any(cost.nbytes for cost in known)
        return OperationCost(
            flops=sum(cost.flops for cost in known),
            read_nbytes=self._count_read(nodes, dtype) if moves else 0,
            written_nbytes=self._count_written(nodes, dtype) if moves else 0,
            product_flops=sum(cost.product_flops for cost in known),
            product_dtype=(dtype if dtype and types[0] in FLOATS else types[0]) if types else None,
        )

    def _count_written(self, nodes: Sequence[int], dtype: str | None) -> int:
        return sum(_count_nbytes(self.graph.tensors[name], dtype) for name in self.links.list_results(nodes))

    def _count_read(self, nodes: Sequence[int], dtype: str | None) -> int:
        """Return the bytes of what operators read from outside of them, each tensor once."""
        inside = {name for node in nodes for name in self.graph.nodes[node].outputs}
        parts = dict[str, float]()
        for node in nodes:
            for name, part in self._list_parts(node):
                if name not in inside:
                    parts[name] = max(parts.get(name, 0.0), part)
        return sum(round(part * _count_nbytes(self.graph.tensors[name], dtype)) for name, part in parts.items())

    def _list_parts(self, node: int) -> list[tuple[str, float]]:
        """Return the inputs of an operator, each with the part of it that is read.

        One that reads less than all reads less of its first input. What moves nothing passes its first input on, if
        that has as many elements as its result (a new shape), or reads nothing (a shape).
        """
        names = [name for name in dict.fromkeys(self.graph.nodes[node].inputs) if name]
        cost, specs = self.costs[node] or NO_COST, [self.graph.tensors[name] for name in names]
        if not names or not cost.nbytes:
            result = self.graph.tensors.get(self.graph.nodes[node].outputs[0])
            passes = bool(names) and result is not None and result.elements == specs[0].elements
            return [(names[0], 1.0)] if passes else []
        unread = sum(spec.nbytes for spec in specs) - cost.read_nbytes
        first = 1.0 - min(max(unread, 0) / specs[0].nbytes, 1.0) if specs[0].nbytes else 0.0
        return [(names[0], first), *((name, 1.0) for name in names[1:])]


def _count_nbytes(spec: TensorSpec, dtype: str | None) -> int:
    """Return the bytes of a tensor where floating-point numbers have the type `dtype`."""
    return TensorSpec(spec.shape, dtype).nbytes if dtype in FLOATS and spec.dtype in FLOATS else spec.nbytes
