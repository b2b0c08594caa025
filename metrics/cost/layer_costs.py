"""What the layers of a backend cost: the FLOP of their operators, and the bytes of the tensors around them.

The operators of a layer are costed as one (`fusion`). Where the backend computes in another type than the file has,
floating-point tensors have that type.
"""

from __future__ import annotations

import polars as pl

from deepprof.collectors.models.backend_profile import BackendLayer
from deepprof.metrics.cost.fusion import FLOATS, GroupCosts
from deepprof.metrics.cost.mapping import ModelMapping
from deepprof.metrics.cost.operation_cost import OperationCost

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
    costs = GroupCosts(mapping.graph)
    rows = [_make_row(mapping, costs, number) for number in range(len(mapping.nodes))]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def sum_layers(rows: pl.DataFrame, latency_ns: int | None) -> pl.DataFrame:
    """Return one row for a whole model: the sums over its layers and the measured `latency_ns`.

    A sum is null where a layer that took time has none. The type of its products is that of most of their FLOP.
    """
    types = rows.group_by("product_dtype").agg(pl.sum("product_flops")).drop_nulls().sort("product_flops")
    kinds = {column: _sum_known(rows, column) for column in ("flops", "product_flops", "nbytes", "tensors_nbytes")}
    whole = {"batch": rows["batch"].first(), "name": "end to end", "device_ns": latency_ns, "basis": PREDICTED, **kinds}
    whole["product_dtype"] = types["product_dtype"].last() if len(types) else None
    return pl.DataFrame([whole], schema=SCHEMA)


def _sum_known(rows: pl.DataFrame, column: str) -> int | None:
    missing = rows.filter(pl.col(column).is_null() & (pl.col("device_ns").fill_null(0) > 0))
    return None if len(missing) else int(rows[column].sum())


def _make_row(mapping: ModelMapping, costs: GroupCosts, number: int) -> tuple[object, ...]:
    layer, nodes = mapping.profile.layers[number], mapping.nodes[number]
    dtype = layer.dtype if layer.dtype in FLOATS else None
    cost = costs.cost_of_group(nodes, dtype) if nodes else _cost_of_conversion(mapping, number)
    known = [mapping.graph.nodes[node] for node in nodes]
    products = [node for node in nodes if (own := costs.costs[node]) is not None and own.product_flops]
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
