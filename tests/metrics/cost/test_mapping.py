"""Layers of a backend have the operators that they compute: by name, by data flow, and never more than one product."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deepprof.collectors.models.backend_profile import LayerRole
from deepprof.collectors.models.graph import ModelGraph
from deepprof.metrics.cost.mapping import NO_LAYER, ModelMapping, map_layers
from deepprof.metrics.cost.model_roofline import check_mapping
from tests.metrics.cost.backend_profiles import make_graph, make_layer, make_profile

IMAGE = (1, 8, 4, 4)
PRODUCT, FUSED, CONVERSION = LayerRole.PRODUCT, LayerRole.FUSED, LayerRole.CONVERSION
BLOCK = [
    ("/conv1/Conv", "Conv", "x w1", "c1"),
    ("/relu/Relu", "Relu", "c1", "r1"),
    ("/conv2/Conv", "Conv", "r1 w2", "c2"),
    ("/Add", "Add", "c2 r1", "sum"),
    ("/act/Sigmoid", "Sigmoid", "sum", "gate"),
    ("/act/Mul", "Mul", "sum gate", "y"),
]
NORM = [  # what an exporter makes of a layer norm without weights
    ("/ReduceMean", "ReduceMean", "x", "mean"),
    ("/Sub", "Sub", "x mean", "centred"),
    ("/Pow", "Pow", "centred two", "squares"),
    ("/ReduceMean_1", "ReduceMean", "squares", "variance"),
    ("/Sqrt", "Sqrt", "variance", "deviation"),
    ("/Div", "Div", "centred deviation", "y"),
]
ROW = (1, 8, 4, 1)
SHAPES = {"mean": ROW, "variance": ROW, "deviation": ROW, "two": ()}


def block() -> ModelGraph:
    return make_graph(BLOCK, {"w1": (8, 8, 1, 1), "w2": (8, 8, 1, 1)}, weights=("w1", "w2"))


def named(mapping: ModelMapping) -> list[str]:
    """Return what each layer computes, as names without slashes."""
    return [" ".join(mapping.graph.nodes[node].name.strip("/") for node in nodes) for nodes in mapping.nodes]


def test_names_and_results_of_the_model_are_anchors_and_the_rest_follows_its_user() -> None:
    profile = make_profile(
        make_layer("/conv1/Conv_nchwc", "x w1", {"r1": IMAGE}, role=PRODUCT),
        make_layer("/conv2/Conv", "r1 w2 r1", {"sum": IMAGE}, role=PRODUCT),
        make_layer("made up", "sum", {"y": IMAGE}),
    )
    mapping = map_layers(block(), profile)
    assert named(mapping) == ["conv1/Conv relu/Relu", "conv2/Conv Add", "act/Sigmoid act/Mul"]
    assert mapping.layers == (0, 0, 1, 1, 2, 2)
    checks = check_mapping(mapping)
    assert (checks.product_layers, checks.exact_layers, checks.product_nodes, checks.mapped_products) == (2, 2, 2, 2)
    assert (checks.sized_layers, checks.agreeing_layers, checks.mapped_ratio) == (3, 3, 1.0)


def test_originals_count_without_what_a_backend_appends() -> None:
    originals = ("/conv1/Conv/WithoutBiases", "/relu/Relu")
    profile = make_profile(
        make_layer("a", "x", {"a:0": IMAGE}, role=PRODUCT, originals=originals),
        make_layer("b", "a:0", {"b:0": IMAGE}, role=PRODUCT, originals=("/conv2/Conv/WithoutBiases", "sum", "y")),
    )
    assert named(map_layers(block(), profile)) == [
        "conv1/Conv relu/Relu",
        "conv2/Conv Add act/Sigmoid act/Mul",
    ]


def test_layers_that_no_name_tells_are_found_between_their_inputs_and_the_sizes_of_their_outputs() -> None:
    profile = make_profile(
        make_layer("ReduceMean_36297", "x", {"a": ROW}, kind="Reduce"),
        make_layer("Subtract_36298", "x a", {"b": IMAGE}, kind="Subgraph", role=FUSED),
        make_layer("/Div", "b", {"c": IMAGE}, kind="Subgraph", role=FUSED),
    )
    mapping = map_layers(make_graph(NORM, SHAPES, weights=("two",)), profile)
    assert named(mapping) == ["ReduceMean", "Sub", "Pow ReduceMean_1 Sqrt Div"]
    assert check_mapping(mapping).agreeing_layers == 3


def test_the_kind_tells_operators_of_one_size_apart() -> None:
    graph = make_graph(
        [
            ("/Mul", "Mul", "x scale", "m"),
            ("/Transpose", "Transpose", "x", "t"),
            ("/MatMul", "MatMul", "m t", "y"),
        ],
        {"scale": ()},
        weights=("scale",),
    )
    product = make_layer("/MatMul", "a b", {"y": IMAGE}, role=PRODUCT)
    for name, kind, other in (("Transpose_7", "Subgraph", "Mul"), ("Multiply_8", "Eltwise", "Transpose")):
        profile = make_profile(make_layer(name, "x", {"a": IMAGE}, kind=kind, role=FUSED), product)
        chosen, left = named(map_layers(graph, profile))
        assert (chosen, left) == (({"Mul", "Transpose"} - {other}).pop(), f"{other} MatMul")


def test_inserted_conversions_are_other_names_of_a_tensor() -> None:
    profile = make_profile(
        make_layer("x_f32_bf16", "x", {"x'": IMAGE}, kind="Reorder", role=CONVERSION),
        make_layer("/conv1/Conv", "x' w1", {"a": IMAGE}, role=PRODUCT, originals=("/conv1/Conv", "/relu/Relu")),
        make_layer("Transpose_3", "a", {"a'": IMAGE}),
        make_layer("c", "a' w2", {"c:0": IMAGE}, role=PRODUCT, originals=("/conv2/Conv",)),
        make_layer("/act/Mul", "c:0", {"y": IMAGE}),
    )
    graph = make_graph([*BLOCK[:3], ("/act/Mul", "Mul", "c2 c2", "y")], {}, weights=("w1", "w2"))
    mapping = map_layers(graph, profile)
    assert mapping.conversions == {0: "x", 2: "r1"}
    assert named(mapping) == ["", "conv1/Conv relu/Relu", "", "conv2/Conv", "act/Mul"]
    checks = check_mapping(mapping)
    assert (checks.layers_ns, checks.nodes_ns, checks.conversions_ns) == (5_000, 3_000, 2_000)


def test_a_layer_that_computes_nothing_of_the_model_stays_unmapped() -> None:
    profile = make_profile(
        make_layer("/conv1/Conv", "x w1", {"y": IMAGE}, role=PRODUCT),
        make_layer("something else", "unheard of", {"z": (3,)}, time_ns=9_000),
    )
    mapping = map_layers(make_graph(BLOCK[:1], {}, weights=("w1",), outputs=("c1",)), profile)
    assert (mapping.nodes[1], mapping.conversions) == ((), {})
    assert check_mapping(mapping).mapped_ratio == 0.1


def test_a_name_of_several_operators_tells_none_of_them() -> None:
    graph = make_graph([("same", "Relu", "x", "a"), ("same", "Exp", "a", "b"), ("own", "Abs", "b", "y")], {})
    profile = make_profile(
        *(make_layer("same", before, {after: IMAGE}) for before, after in ("xa", "ab")),
        make_layer("own", "b", {"y": IMAGE}),
    )
    assert map_layers(graph, profile).nodes == ((0,), (1,), (2,))


def test_the_first_operator_has_the_layer_of_its_name() -> None:
    graph = make_graph([("first", "Relu", "x", "a"), ("last", "Exp", "a", "y")], {})
    profile = make_profile(make_layer("first", "?", {"p": (2,)}), make_layer("last", "?", {"q": (2,)}))
    assert map_layers(graph, profile).nodes == ((0,), (1,))


def test_the_longest_beginning_of_a_name_is_the_last_resort() -> None:
    graph = make_graph([("/a/MatMul", "MatMul", "x w", "m"), ("/a/MatMul_1", "MatMul", "m w", "y")], {}, weights=("w",))
    profile = make_profile(
        make_layer("/a/MatMul_1/MatMulScaleFusion/", "?", {"p": (2,)}, role=PRODUCT),
        make_layer("/a/MatMul/MatmulTransposeFusion/", "?", {"q": (2,)}, role=PRODUCT),
    )
    mapping = map_layers(graph, profile)
    assert named(mapping) == ["a/MatMul_1", "a/MatMul"]
    assert check_mapping(mapping).agreeing_layers == 0  # the sizes state that this is wrong


def test_a_product_between_new_shapes_has_its_name_and_what_was_added_to_it() -> None:
    rows = [
        ("/q/MatMul", "MatMul", "x w", "qm"),
        ("/q/Add", "Add", "qm b", "q"),
        ("/k/MatMul", "MatMul", "x w", "km"),
        ("/k/Add", "Add", "km b", "k"),
        ("/Mul", "Mul", "q k", "y"),
    ]
    flat = (8, 16)
    layers = [make_layer("in", "x", {"x'": flat}, kind="Reshape")]
    for name in "kq":  # in another order than the model has
        layers.append(make_layer(f"/{name}/MatMul/Fusion", "x' w b", {f"{name}'": flat}, kind="Gemm", role=PRODUCT))
        layers.append(make_layer(f"out {name}", f"{name}'", {name: IMAGE}, kind="Reshape"))
    profile = make_profile(*layers, make_layer("/Mul", "q k", {"y": IMAGE}))
    mapping = map_layers(make_graph(rows, {}, weights=("w", "b")), profile)
    assert named(mapping) == ["", "k/MatMul k/Add", "", "q/MatMul q/Add", "", "Mul"]
    assert mapping.conversions == {0: "x", 2: "k", 4: "q"}


def test_a_product_is_never_added_to_a_layer_that_has_one() -> None:
    profile = make_profile(make_layer("/conv2/Conv", "x w1 w2", {"y": IMAGE}, role=PRODUCT))
    mapping = map_layers(block(), profile)
    assert mapping.layers[0] == NO_LAYER
    checks = check_mapping(mapping)
    assert (checks.exact_layers, checks.product_nodes, checks.mapped_products) == (1, 2, 1)


def test_attention_that_was_fused_holds_two_products_and_other_code_one() -> None:
    rows = [
        ("/MatMul", "MatMul", "q k", "scores"),
        ("/Softmax", "Softmax", "scores", "weights"),
        ("/MatMul_1", "MatMul", "weights v", "y"),
    ]
    fused = make_layer("/MatMul_1", "q k v", {"y": IMAGE}, kind="Subgraph", role=FUSED)
    checks = check_mapping(map_layers(make_graph(rows, {}), make_profile(fused)))
    assert (checks.product_layers, checks.exact_layers, checks.mapped_products) == (1, 1, 2)
    without = [("/MatMul", "MatMul", "q k", "weights"), rows[2]]
    checks = check_mapping(map_layers(make_graph(without, {}), make_profile(fused)))
    assert (checks.product_layers, checks.exact_layers, checks.mapped_products) == (1, 0, 2)


def test_sizes_that_differ_are_told() -> None:
    profile = make_profile(
        make_layer("/conv1/Conv", "x w1", {"a": (1, 8, 4, 3)}, role=PRODUCT, originals=("/relu/Relu",)),
        make_layer("/conv2/Conv", "a w2", {"b": IMAGE}, role=PRODUCT, originals=("y",)),
    )
    checks = check_mapping(map_layers(block(), profile))
    assert (checks.sized_layers, checks.agreeing_layers) == (2, 1)


def test_nothing_to_map_is_no_error() -> None:
    mapping = map_layers(block(), make_profile())
    assert set(mapping.layers) == {NO_LAYER}
    assert check_mapping(mapping).mapped_ratio is None


@given(
    st.lists(st.tuples(st.lists(st.sampled_from(["Relu", "Sigmoid", "Add"]), max_size=4), st.booleans()), min_size=1)
)
def test_fused_blocks_are_found_again(blocks: list[tuple[list[str], bool]]) -> None:
    """Each layer is a convolution and what follows it; some are told by their last operator only."""
    rows, layers, owners, last = [], [], [], "x"
    for number, (tail, is_named) in enumerate(blocks):
        inputs = f"{last} w"
        for place, kind in enumerate(["Conv", *tail]):
            result = f"t{number}.{place}"
            rows.append((f"/{number}/{kind}_{place}", kind, inputs, result))
            inputs, owners = f"{result} {last}" if kind == "Add" else result, [*owners, number]
        anchor = rows[-1 - len(tail)][0] if is_named else rows[-1][0]
        inner = last if last == "x" else f"of {number - 1}"
        layers.append(make_layer(f"of {number}", inner, {f"of {number}": IMAGE}, role=PRODUCT, originals=(anchor,)))
        last = result
    # One that is named by its convolution has the rest only where nothing else claims it: the next layer's input.
    mapping = map_layers(make_graph(rows, {}, weights=("w",)), make_profile(*layers))
    products = [node for node, row in enumerate(rows) if row[1] == "Conv"]
    assert [mapping.layers[node] for node in products] == [owners[node] for node in products]
    assert NO_LAYER not in mapping.layers
    if not any(is_named for _, is_named in blocks):
        assert list(mapping.layers) == owners
