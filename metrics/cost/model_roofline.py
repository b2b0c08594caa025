"""The roofline of a model on a backend: the cost and the time of each layer, and how far the mapping can be trusted."""

from __future__ import annotations

from collections import Counter

import polars as pl
from msgspec import Struct

from deepprof.collectors.models.backend_profile import BackendLayer, BackendProfile, LayerRole
from deepprof.collectors.models.graph import ModelGraph
from deepprof.metrics.cost.fusion import FLOATS, GroupCosts
from deepprof.metrics.cost.mapping import NO_LAYER, PRODUCT_KINDS, GraphLinks, ModelMapping, map_layers
from deepprof.metrics.cost.operation_cost import OperationCost
from deepprof.metrics.cost.roofs import DevicePeaks, add_roofs

COUNTED = "counted"  # bytes that the processor counted; FLOP are predicted all the same

PREDICTED = "predicted"
SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    **{"batch": pl.Int64, "place": pl.Int64, "name": pl.String, "kind": pl.String, "role": pl.String},
    **{"layer": pl.String, "operators": pl.List(pl.String), "converts": pl.String, "dtype": pl.String},
    **{"device_ns": pl.Int64, "flops": pl.Int64, "product_flops": pl.Int64, "product_dtype": pl.String},
    **{"nbytes": pl.Int64, "tensors_nbytes": pl.Int64, "basis": pl.String},
}


class ModelRun(Struct, frozen=True, eq=False):
    """A model that ran on a backend with inputs of one shape.

    `layers` has the rows of `cost_layers`, `whole` one for the model from end to end, both with their roofs.
    `layers` also has `share_ratio`, of the time of all layers, null where they use none.
    """

    profile: BackendProfile
    checks: _MappingChecks
    layers: pl.DataFrame
    whole: pl.DataFrame

    @property
    def difference_ratio(self) -> float | None:
        """How much more bytes the backend's own tensors have than predicted, of the layers where both are available."""
        known = self.layers.drop_nulls(["nbytes", "tensors_nbytes"]).filter(pl.col("nbytes") > 0)
        predicted = int(known["nbytes"].sum())
        return int(known["tensors_nbytes"].sum()) / predicted - 1 if predicted else None


def measure_model_run(graph: ModelGraph, profile: BackendProfile, peaks: DevicePeaks | None) -> ModelRun:
    """Return what the layers of a profile cost and how far they are from their roofs.

    Where the processor counted the bytes of a run, the row of the whole model has these.
    """
    mapping = map_layers(graph, profile)
    layers = cost_layers(mapping)
    whole = sum_layers(layers, profile.latency_ns)
    if profile.counted_nbytes is not None:
        whole = whole.with_columns(nbytes=pl.lit(profile.counted_nbytes, pl.Int64), basis=pl.lit(COUNTED))
    all_ns = pl.col("device_ns").sum()
    shares = add_roofs(layers, peaks).with_columns(share_ratio=pl.when(all_ns > 0).then(pl.col("device_ns") / all_ns))
    return ModelRun(profile, check_mapping(mapping), shares, add_roofs(whole, peaks))


def cost_layers(mapping: ModelMapping) -> pl.DataFrame:
    """Return a row for every layer of the backend, in the order in which they run.

    `layer` is the module of its first product, or of its first operator; `operators` are their names, `converts` the
    tensor that the layer only converts. `flops`, `product_flops` and `nbytes` are null where an operator has no rule or
    the layer is not mapped; a conversion moves the tensors that the backend states. `tensors_nbytes` are the bytes of
    the layer's tensors as the backend has them, to compare. `basis` states that FLOP and bytes are predicted.
    `device_ns` is the layer's measured time."""
    costs = GroupCosts(mapping.graph)
    rows = [_make_row(mapping, costs, number) for number in range(len(mapping.nodes))]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def sum_layers(rows: pl.DataFrame, latency_ns: int | None) -> pl.DataFrame:
    """Return one row for a whole model: the sums over its layers and the measured `latency_ns`.

    A sum is null where a layer that used time has none. The type of its products is that of most of their FLOP.
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


class _MappingChecks(Struct, frozen=True):
    """How far a mapping can be trusted.

    Of `product_layers`, `exact_layers` hold exactly one operator that multiplies and adds (those of attention two at
    least); of `product_nodes`, `mapped_products` have a layer. Of `sized_layers`, which have operators and an output
    whose size the backend states, `agreeing_layers` compute tensors with as many elements. Of `layers_ns`, `nodes_ns`
    are of layers with operators and `conversions_ns` of those that convert a tensor of the model.
    """

    product_layers: int
    exact_layers: int
    product_nodes: int
    mapped_products: int
    sized_layers: int
    agreeing_layers: int
    layers_ns: int
    nodes_ns: int
    conversions_ns: int

    @property
    def mapped_ratio(self) -> float | None:
        """The share of the layers' time that is mapped, None where nothing used time."""
        return (self.nodes_ns + self.conversions_ns) / self.layers_ns if self.layers_ns else None


def check_mapping(mapping: ModelMapping) -> _MappingChecks:
    """Return how far a mapping agrees with what the backend states of its layers."""
    layers, graph = mapping.profile.layers, mapping.graph
    products = [number for number in range(len(layers)) if _is_product(mapping, number)]
    nodes = [number for number, node in enumerate(graph.nodes) if node.kind in PRODUCT_KINDS]
    links = GraphLinks(graph)
    agreements = [_agrees(mapping, links, number) for number in range(len(layers))]
    times = [layer.time_ns or 0 for layer in layers]
    return _MappingChecks(
        product_layers=len(products),
        exact_layers=sum(_is_exact(mapping, number) for number in products),
        product_nodes=len(nodes),
        mapped_products=sum(mapping.layers[node] != NO_LAYER for node in nodes),
        sized_layers=sum(each is not None for each in agreements),
        agreeing_layers=sum(each is True for each in agreements),
        layers_ns=sum(times),
        nodes_ns=sum(time for time, nodes in zip(times, mapping.nodes, strict=True) if nodes),
        conversions_ns=sum(times[number] for number in mapping.conversions),
    )


def _is_product(mapping: ModelMapping, layer: int) -> bool:
    """Return whether a layer multiplies and adds: its kind reports it, or what it was fused from."""
    role = mapping.profile.layers[layer].role
    kinds = {mapping.graph.nodes[node].kind for node in mapping.nodes[layer]}
    return role in {LayerRole.PRODUCT, LayerRole.ATTENTION} or (role is LayerRole.FUSED and bool(kinds & PRODUCT_KINDS))


def _is_exact(mapping: ModelMapping, layer: int) -> bool:
    """Return whether a layer contains one operator that multiplies and adds, or the two of attention."""
    kinds = [mapping.graph.nodes[node].kind for node in mapping.nodes[layer]]
    products = sum(kind in PRODUCT_KINDS for kind in kinds)
    if mapping.profile.layers[layer].role is LayerRole.ATTENTION:
        return products >= 2
    return products == 1 or (products == 2 and "Softmax" in kinds)


def _agrees(mapping: ModelMapping, links: GraphLinks, layer: int) -> bool | None:
    """Return whether a layer's operators give tensors of its outputs' sizes, None where that cannot be compared."""
    said = [tensor.elements for tensor in mapping.profile.layers[layer].outputs]
    known = [size for size in said if size is not None]
    if not mapping.nodes[layer] or not known or len(known) < len(said):
        return None
    results = links.list_results(mapping.nodes[layer])
    return not Counter(known) - Counter(links.graph.tensors[name].elements for name in results)
