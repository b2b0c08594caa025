"""How far a mapping of a backend's layers to a model's operators can be trusted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from deepprof.collectors.models.backend_profile import LayerRole
from deepprof.metrics.cost.graph_links import GraphLinks
from deepprof.metrics.cost.mapping import NO_LAYER, PRODUCT_KINDS, ModelMapping


@dataclass(frozen=True, slots=True)
class MappingChecks:
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
        """The share of the layers' time that is mapped, None where nothing took time."""
        return (self.nodes_ns + self.conversions_ns) / self.layers_ns if self.layers_ns else None


def check_mapping(mapping: ModelMapping) -> MappingChecks:
    """Return how far a mapping agrees with what the backend says of its layers."""
    layers, graph = mapping.profile.layers, mapping.graph
    products = [number for number in range(len(layers)) if _is_product(mapping, number)]
    nodes = [number for number, node in enumerate(graph.nodes) if node.kind in PRODUCT_KINDS]
    links = GraphLinks(graph)
    agreements = [_agrees(mapping, links, number) for number in range(len(layers))]
    times = [layer.time_ns or 0 for layer in layers]
    return MappingChecks(
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
    """Return whether a layer multiplies and adds: its kind says so, or what it was fused from."""
    role = mapping.profile.layers[layer].role
    kinds = {mapping.graph.nodes[node].kind for node in mapping.nodes[layer]}
    return role in {LayerRole.PRODUCT, LayerRole.ATTENTION} or (role is LayerRole.FUSED and bool(kinds & PRODUCT_KINDS))


def _is_exact(mapping: ModelMapping, layer: int) -> bool:
    """Return whether a layer holds one operator that multiplies and adds, or the two of attention."""
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
