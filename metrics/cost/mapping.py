"""Which operators of a model each layer of a backend computes, as PRoof maps them: by names, then by data flow.

A backend fuses operators, drops those that do nothing, splits others and inserts conversions. `map_layers` finds for
each of its layers the operators of the model:

1. by name: a layer or one of the originals that it states is called as an operator or as its result, but for an ending
   that backends append; or one of the layer's outputs is a tensor of the model;
2. by data flow: a layer that no name shows computes a tensor with as many elements as its output has, from the tensors
   that it reads;
3. by the longest beginning of its name that is an operator's, where these find nothing;
4. what is left belongs to the layer that alone uses its result, or else to the one that computes its input.

A layer without its own operators, whose output has as many elements as an input, only converts that tensor.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush

from msgspec import Struct

from deepprof.collectors.models.backend_profile import BackendLayer, BackendProfile, LayerRole
from deepprof.collectors.models.graph import ModelGraph

NO_LAYER = -1
# Operators whose work is multiplying and adding: of ONNX and of its runtimes' own domains.
PRODUCT_KINDS = frozenset(
    {
        *("Conv", "ConvInteger", "ConvTranspose", "DeformConv", "QLinearConv"),
        *("Gemm", "MatMul", "MatMulInteger", "QLinearMatMul", "Einsum"),
        *("Attention", "MultiHeadAttention", "GroupQueryAttention", "LSTM", "GRU", "RNN"),
    }
)
MOVES = frozenset({"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten"})
ENDINGS = re.compile(r"(/WithoutBiases|_nchwc|_nhwc|/fq_input_\d+|/fq_output_\d+)+$")
STEM = re.compile(r"([A-Za-z]+)[^/]*$")  # what a name that a backend made up states: `Multiply` of `Multiply_8193`
REACHED = 256  # operators that one layer without a name is searched for among
FEWEST_LETTERS = 3  # of two words where one begins with the other


class ModelMapping(Struct, frozen=True):
    """Layers of a backend and operators of a model, in both directions.

    `nodes` has for every layer the operators that it computes, by their places in the graph; `layers` for every
    operator its layer, `NO_LAYER` where it has none; `conversions` the tensor of the model that a layer only converts.
    """

    graph: ModelGraph
    profile: BackendProfile
    nodes: tuple[tuple[int, ...], ...]
    layers: tuple[int, ...]
    conversions: Mapping[int, str]


def map_layers(graph: ModelGraph, profile: BackendProfile) -> ModelMapping:
    """Return which operators of `graph` each layer of `profile` computes."""
    mapper = _LayerMapper(graph, profile.layers)
    mapper.claim_by_names()
    mapper.claim_products_by_prefix()
    mapper.claim_by_tensors()
    mapper.claim_by_flow()
    mapper.claim_by_prefix()
    mapper.claim_the_rest()
    nodes: list[list[int]] = [[] for _ in profile.layers]
    for node, layer in enumerate(mapper.owners):
        if layer != NO_LAYER:
            nodes[layer].append(node)
    conversions = {layer: tensor for layer, tensor in mapper.conversions.items() if not nodes[layer]}
    return ModelMapping(graph, profile, tuple(map(tuple, nodes)), tuple(mapper.owners), conversions)


class _LayerMapper:
    """The search for one model; `owners` has the layer of every operator."""

    def __init__(self, graph: ModelGraph, layers: Sequence[BackendLayer]) -> None:
        self.graph, self.backend_layers = graph, layers
        self.owners = [NO_LAYER] * len(graph.nodes)
        self.conversions: dict[int, str] = {}
        counts = Counter(node.name for node in graph.nodes)  # a name of several shows none of them
        self.by_name = {node.name: number for number, node in enumerate(graph.nodes) if counts[node.name] == 1}
        self.links = GraphLinks(graph)
        self.claimed = defaultdict[int, list[int]](list)  # of a layer its operators, so far
        self.makers = {tensor.name: number for number, layer in enumerate(layers) for tensor in layer.outputs}
        self.users = defaultdict[int, list[int]](list)  # of a layer those that read its outputs
        for number, layer in enumerate(layers):
            for tensor in layer.inputs:
                if tensor.name in self.makers:
                    self.users[self.makers[tensor.name]].append(number)

    def claim_by_names(self) -> None:
        """Give each operator to the layer that has its name, else to the first that names it as an original."""
        for names in (lambda layer: (layer.name,), lambda layer: layer.originals):
            for number, layer in enumerate(self.backend_layers):
                if layer.role is not LayerRole.CONVERSION:
                    self._claim(number, map(self._find_named, names(layer)))

    def claim_products_by_prefix(self) -> None:
        """Give a layer that multiplies the product whose name its own begins with: what follows shows a fusion."""
        for number, layer in enumerate(self.backend_layers):
            found = self._find_prefix(layer.name) if layer.role is LayerRole.PRODUCT else None
            if found is not None and not self.claimed[number] and self.graph.nodes[found].kind in PRODUCT_KINDS:
                self._claim(number, [found])

    def claim_by_tensors(self) -> None:
        """Give each operator to the layer with an output of the same name as its own.

        Where a layer only gives that tensor another shape or order, it is the result of the layer before.
        """
        for number, layer in reversed(list(enumerate(self.backend_layers))):
            made = [self.links.producers.get(tensor.name) for tensor in layer.outputs]
            if layer.role is not LayerRole.CONVERSION:
                self._claim(self._skip_moves(number, made[0]) if len(made) == 1 else number, made)

    def _skip_moves(self, number: int, node: int | None) -> int:
        """Return the layer that computes an operator's result, which layer `number` gives in another shape or order."""
        layer = self.backend_layers[number]
        if node is None or layer.kind not in MOVES or self.graph.nodes[node].kind in MOVES or not layer.inputs:
            return number
        before = self.makers.get(layer.inputs[0].name, number)
        return before if self.backend_layers[before].role is LayerRole.PRODUCT else number

    def claim_by_flow(self) -> None:
        """Give each layer that no name shows the operators that compute its outputs from its inputs."""
        for number, layer in enumerate(self.backend_layers):
            if self.claimed[number]:
                continue
            inputs = self._find_inputs(layer)
            if layer.role is not LayerRole.CONVERSION:
                self._claim_between(number, inputs)
            if not self.claimed[number]:
                self._note_conversion(number, inputs)

    def claim_by_prefix(self) -> None:
        """Give a layer without operators the one whose name is the longest beginning of its own."""
        for number, layer in enumerate(self.backend_layers):
            if not self.claimed[number] and number not in self.conversions and layer.role is not LayerRole.CONVERSION:
                self._claim(number, [self._find_prefix(layer.name)])

    def claim_the_rest(self) -> None:
        """Give each operator without a layer to the one that alone uses its result, else to that of its input."""
        for node in reversed(range(len(self.owners))):
            users = {self.owners[each] for each in self.links.list_users(node)}
            if len(users) == 1:
                self._join(node, *users)
        for node in range(len(self.owners)):
            self._join(node, max((self.owners[each] for each in self.links.list_sources(node)), default=NO_LAYER))

    def _claim(self, layer: int, nodes: Iterable[int | None]) -> None:
        for node in nodes:
            if node is not None and self.owners[node] == NO_LAYER and self._may_have(layer, node):
                self.owners[node] = layer
                self.claimed[layer].append(node)

    def _join(self, node: int, layer: int) -> None:
        if layer != NO_LAYER:
            self._claim(layer, [node])

    def _may_have(self, layer: int, node: int) -> bool:
        """Return whether a layer can compute an operator: products are of layers that compute them, one of each."""
        if self.graph.nodes[node].kind not in PRODUCT_KINDS:
            return True
        role = self.backend_layers[layer].role
        has_none = not any(self.graph.nodes[each].kind in PRODUCT_KINDS for each in self.claimed[layer])
        return role in {LayerRole.ATTENTION, LayerRole.FUSED} or (role is LayerRole.PRODUCT and has_none)

    def _find_named(self, name: str) -> int | None:
        """Return the operator with a name or an output's name, as it is or without what backends append."""
        for each in dict.fromkeys((name, ENDINGS.sub("", name))):
            found = self.by_name.get(each, self.links.producers.get(each))
            if found is not None:
                return found
        return None

    def _find_prefix(self, name: str) -> int | None:
        """Return the operator whose name is the longest one that `name` begins with, up to a border of words."""
        for border in reversed([match.start() for match in re.finditer(r"[/_.: +]", name)]):
            if border and name[:border] in self.by_name:
                return self.by_name[name[:border]]
        return None

    def _find_inputs(self, layer: BackendLayer) -> list[str]:
        found = [name for tensor in layer.inputs for name in self._resolve(tensor.name)]
        return list(dict.fromkeys(found))

    def _resolve(self, name: str) -> Iterator[str]:
        """Yield the tensors of the model that one of the backend's is: by its name, or by the layer that makes it."""
        if name in self.graph.tensors:
            yield name
        maker = self.makers.get(name)
        if maker is None:
            return
        if maker in self.conversions:
            yield self.conversions[maker]
        yield from self.links.list_results(self.claimed[maker])

    def _claim_between(self, number: int, inputs: Iterable[str]) -> None:
        """Give a layer the operators that compute, from `inputs`, tensors with as many elements as its outputs."""
        layer = self.backend_layers[number]
        reached = self._reach(inputs)
        readers = {node for user in self.users[number] for node in self.claimed[user]}
        for tensor in layer.outputs:
            fitting = [node for node in reached if tensor.elements in self._count_elements(node)]
            fitting = [node for node in fitting if self.owners[node] == NO_LAYER and self._may_have(number, node)]
            if fitting:
                best = min(fitting, key=lambda node: self._rank(node, layer, readers))
                self._claim(number, sorted({best, *self._list_sources(best, reached)}))

    def _reach(self, inputs: Iterable[str]) -> set[int]:
        """Return operators without a layer that can be computed from `inputs`, in the order of the model."""
        known, reached = set(inputs), set[int]()
        queue = [node for name in known for node in self.links.consumers.get(name, ())]
        heapify(queue)
        while queue and len(reached) < REACHED:
            node = heappop(queue)
            needed = [name for name in self.graph.nodes[node].inputs if name and name not in self.graph.weights]
            if node in reached or self.owners[node] != NO_LAYER or not known.issuperset(needed):
                continue
            reached.add(node)
            known.update(self.graph.nodes[node].outputs)
            for user in self.links.list_users(node):
                heappush(queue, user)
        return reached

    def _count_elements(self, node: int) -> set[int | None]:
        known = self.graph.tensors
        return {known[name].elements for name in self.graph.nodes[node].outputs if name in known}

    def _rank(self, node: int, layer: BackendLayer, readers: set[int]) -> tuple[bool, bool, int]:
        """Return what puts the likeliest operator first: its kind, who reads it, and how near it is."""
        operator = self.graph.nodes[node]
        stem = STEM.search(layer.name)
        words = {layer.kind.lower(), stem[1].lower() if stem else ""}
        is_alike = any(_are_alike(operator.kind.lower(), word) for word in words)
        is_read = not readers.isdisjoint(self.links.list_users(node))
        return not is_alike, not is_read, node

    def _list_sources(self, node: int, reached: set[int]) -> Iterator[int]:
        """Yield the operators among those reached that `node` is computed from."""
        seen, queue = {node}, [node]
        while queue:
            for source in self.links.list_sources(queue.pop()):
                if source in reached and source not in seen:
                    seen.add(source)
                    queue.append(source)
                    yield source

    def _note_conversion(self, number: int, inputs: Iterable[str]) -> None:
        """Note which tensor a layer without operators converts: one with as many elements as its output."""
        layer = self.backend_layers[number]
        if layer.role in {LayerRole.PRODUCT, LayerRole.ATTENTION}:
            return
        sizes = {tensor.elements for tensor in layer.outputs}
        named = [tensor.name for tensor in layer.outputs if tensor.name in self.graph.tensors]
        for name in (*named, *inputs):
            if self.graph.tensors[name].elements in sizes:
                self.conversions[number] = name
                return


def _are_alike(one: str, other: str) -> bool:
    """Return whether one of two words begins with the other: `mul` and `multiply`."""
    shorter, longer = sorted((one, other), key=len)
    return len(shorter) >= FEWEST_LETTERS and longer.startswith(shorter)


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
