"""Models from ONNX files: every tensor has the shape that it has at run time, or one line states why not."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepprof.collectors.errors import DeepProfError, UsageError
from deepprof.collectors.models.onnx_model import read_model
from tests.onnx_files import node, save_model

pytest.importorskip("onnx", reason="onnx is not installed (pip install 'deepprof[model]')")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m.onnx"


def refused(path: Path, **options: Any) -> str:
    """Return the line that states why a model is not read."""
    with pytest.raises(DeepProfError) as raised:
        read_model(path, **options)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_graph_has_the_shapes_of_all_its_tensors(path: Path) -> None:
    weights = {"w": np.zeros((8, 3, 3, 3), np.float32), "b": np.zeros(8, np.float32)}
    nodes = [
        node("Conv", "x w b", "y", name="/stem/conv/Conv", strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Identity", "y", "z"),
        node("Relu", "z", "r"),
    ]
    graph = read_model(save_model(path, nodes, {"x": [2, 3, 8, 8]}, ["r"], weights))
    assert [(each.name, each.kind, each.inputs, each.layer) for each in graph.nodes] == [
        ("/stem/conv/Conv", "Conv", ("x", "w", "b"), "stem.conv"),
        ("Relu_2", "Relu", ("y",), ""),
    ]
    assert graph.nodes[0].attributes == {"strides": (2, 2), "pads": (1, 1, 1, 1)}
    assert {name: spec.shape for name, spec in graph.tensors.items()} == {
        **{"x": (2, 3, 8, 8), "w": (8, 3, 3, 3), "b": (8,), "y": (2, 8, 4, 4), "r": (2, 8, 4, 4)}
    }
    assert (graph.weights, graph.inputs, graph.outputs) == (frozenset({"w", "b"}), ("x",), ("r",))


def flattening() -> list[Any]:
    """Return nodes that flatten all but the first dimension, as exporters write it."""
    return [
        node("Shape", "x", "shape"),
        node("Gather", "shape zero", "first", axis=0),
        node("Unsqueeze", "first axes", "first1"),
        node("Concat", "first1 rest", "new", axis=0),
        node("Reshape", "x new", "y"),
        node("MatMul", "y w", "z"),
    ]


CONSTANTS = {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([-1]), "w": np.zeros((48, 5), np.float32)}


def test_shapes_that_nodes_compute_are_followed(path: Path) -> None:
    save_model(path, flattening(), {"x": ["n", 3, 16]}, ["z"], CONSTANTS)
    graph = read_model(path, batch=7)
    assert [each.kind for each in graph.nodes] == ["Reshape", "MatMul"]
    assert (graph.tensors["z"].shape, graph.values["new"]) == ((7, 5), (7, -1))


def test_a_batch_that_the_file_leaves_open_is_one(path: Path) -> None:
    save_model(path, flattening(), {"x": ["n", 3, 16]}, ["z"], CONSTANTS)
    assert read_model(path).tensors["z"].shape == (1, 5)
    assert read_model(path, shapes={"x": (4, 3, 16)}).tensors["z"].shape == (4, 5)


def test_a_symbol_has_one_size(path: Path) -> None:
    save_model(path, [node("Add", "a b", "c")], {"a": ["n", "s"], "b": ["n", "s"]}, ["c"])
    assert read_model(path, shapes={"a": (2, 9)}).tensors["b"].shape == (2, 9)
    assert "the dimension s would be 8 here and 9 elsewhere" in refused(path, shapes={"a": (2, 9), "b": (2, 8)})
    assert "the shape of input a is open (1xs); give it with --shape a=" in refused(path)


def test_floating_point_types_are_replaced(path: Path) -> None:
    nodes = [node("Gather", "w i", "g"), node("Add", "g x", "y")]
    weights = {"w": np.zeros((9, 4), np.float32), "i": np.array([1, 2])}
    graph = read_model(save_model(path, nodes, {"x": [2, 4]}, ["y"], weights), dtype="float16")
    assert {name: spec.dtype for name, spec in graph.tensors.items()} == {
        "x": "float16",
        "g": "float16",
        "y": "float16",
    }
    assert graph.weights == {"g"}  # the look-up of a constant is one


def test_functions_of_the_model_are_inlined(path: Path) -> None:
    from onnx import helper

    body = helper.make_function("own", "Twice", ["a"], ["b"], [node("Add", "a a", "b")], [helper.make_opsetid("", 18)])
    save_model(path, [node("own.Twice", "x", "y")], {"x": [3]}, ["y"], functions=[body])
    assert [each.kind for each in read_model(path).nodes] == ["Add"]


def test_nodes_need_not_be_in_order(path: Path) -> None:
    save_model(path, [node("Relu", "a", "b"), node("Tanh", "x", "a")], {"x": [3]}, ["b"])
    assert [each.kind for each in read_model(path).nodes] == ["Tanh", "Relu"]


def test_a_stated_shape_serves_an_operator_that_onnx_does_not_know(path: Path) -> None:
    import onnx

    save_model(path, [node("own.Magic", "x", "a"), node("Relu", "a", "y")], {"x": ["n", 4]}, ["y"])
    assert "own.Magic is no operator of ONNX; give --run" in refused(path)
    model = onnx.load(str(path))
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT, ["n", 2]))
    onnx.save(model, str(path))
    graph = read_model(path, batch=6)
    assert [each.kind for each in graph.nodes] == ["own.Magic", "Relu"]
    assert graph.tensors["y"].shape == (6, 2)


def test_weights_in_another_file_need_not_be_there(path: Path) -> None:
    import onnx

    save_model(path, flattening(), {"x": [2, 3, 16]}, ["z"], CONSTANTS)
    whole = read_model(path)
    onnx.save(onnx.load(str(path)), str(path), save_as_external_data=True, location="w.data", size_threshold=100)
    (path.parent / "w.data").unlink()
    assert read_model(path) == whole


@pytest.mark.parametrize("length", [None, "16", "900000"])
def test_of_another_file_only_the_weight_is_read(path: Path, length: str | None) -> None:
    import onnx

    save_model(path, [node("Reshape", "x new", "y")], {"x": [2, 4]}, ["y"], {"new": np.array([1, 8])})
    model = onnx.load(str(path))
    weight = model.graph.initializer[0]
    path.with_name("weights").write_bytes(weight.raw_data + bytes(1_000_000))
    weight.ClearField("raw_data")
    weight.data_location = weight.EXTERNAL
    weight.external_data.add(key="location", value="weights")
    if length is not None:
        weight.external_data.add(key="length", value=length)
    onnx.save(model, str(path))
    assert read_model(path).tensors["y"].shape == (1, 8)


@pytest.mark.filterwarnings("ignore:.*shapes are those of one run")
def test_a_run_needs_the_weights_in_another_file(path: Path) -> None:
    import onnx

    if importlib.util.find_spec("onnxruntime") is None:
        pytest.skip("onnxruntime is not installed (pip install 'deepprof[onnxruntime]')")
    nodes = [node("NonZero", "x", "i"), node("Cast", "i", "j", to=1), node("MatMul", "j w", "y")]
    save_model(path, nodes, {"x": [48]}, ["y"], {"w": CONSTANTS["w"]})
    onnx.save(onnx.load(str(path)), str(path), save_as_external_data=True, location="w.data", size_threshold=100)
    assert read_model(path, may_run=True).tensors["y"].shape == (1, 5)
    (path.parent / "w.data").unlink()
    assert "the file of its weights is absent or damaged, and they are needed to run it" in refused(path, may_run=True)


def test_shapes_that_only_a_run_can_tell(path: Path) -> None:
    if importlib.util.find_spec("onnxruntime") is None:
        pytest.skip("onnxruntime is not installed (pip install 'deepprof[onnxruntime]')")
    nodes = [node("NonZero", "m", "i"), node("Cast", "i", "j", to=1), node("Mul", "j x", "y")]
    nodes = [node("Greater", "x low", "m"), *nodes]
    save_model(path, nodes, {"x": [1]}, ["y"], {"low": np.array([-1.0], np.float32)})
    assert "NonZero: the shape of i does not follow from its inputs; give --run" in refused(path)
    with pytest.warns(UserWarning, match="shapes are those of one run by onnxruntime"):
        assert read_model(path, may_run=True).tensors["y"].shape == (1, 1)


def test_branches_stay_a_node_of_their_own(path: Path) -> None:
    from onnx import TensorProto, helper

    result = helper.make_tensor_value_info("r", TensorProto.FLOAT, [4])
    branch = helper.make_graph([node("Relu", "a", "r")], "g", [], [result])
    nodes = [
        node("Exp", "x", "a"),
        node("If", "c", "y", then_branch=branch, else_branch=branch),
        node("Tanh", "y", "z"),
    ]
    graph = read_model(save_model(path, nodes, {"x": [4]}, ["z"], {"c": np.array(True)}))
    assert [each.kind for each in graph.nodes] == ["Exp", "If", "Tanh"]
    assert graph.tensors["z"].shape == (4,)


@pytest.mark.filterwarnings("ignore:.*shapes are those of one run")
def test_results_of_a_loop_have_the_shapes_of_a_run(path: Path) -> None:
    from onnx import TensorProto, helper

    info = helper.make_tensor_value_info
    ends = [info("i", TensorProto.INT64, []), info("on", TensorProto.BOOL, []), info("v", TensorProto.FLOAT, None)]
    body = [node("Identity", "on", "on2"), node("Concat", "v x", "v2", axis=0)]
    results = [info("on2", TensorProto.BOOL, []), info("v2", TensorProto.FLOAT, None)]
    made = node("Loop", "times - x", "y", body=helper.make_graph(body, "g", ends, results))
    save_model(path, [made, node("Tanh", "y", "z")], {"x": [4]}, ["z"], {"times": np.array(3)})
    assert "Loop: the shape of y does not follow from its inputs; give --run" in refused(path)
    if importlib.util.find_spec("onnxruntime") is None:
        pytest.skip("onnxruntime is not installed (pip install 'deepprof[onnxruntime]')")
    assert read_model(path, may_run=True).tensors["z"].shape == (16,)


def test_fixed_shapes_that_do_not_fit_another_batch_are_refused(path: Path) -> None:
    nodes = [node("Reshape", "x shape", "y"), node("Relu", "y", "z")]
    save_model(path, nodes, {"x": [1, 6]}, ["z"], {"shape": np.array([1, 2, 3])})
    assert read_model(path).tensors["z"].shape == (1, 2, 3)
    assert "not as many elements as its input; export the model with these shapes" in refused(path, batch=128)


BROKEN: dict[str, tuple[list[tuple[str, str, str]], str]] = {
    "cycle": ([("Add", "x b", "a"), ("Relu", "a", "b")], "is cyclic: Add needs its own result"),
    "own result": ([("Add", "x a", "a")], "is cyclic: Add"),
    "nothing makes it": ([("Relu", "nowhere", "a")], "Relu needs the tensor nowhere, which nothing makes"),
    "made twice": ([("Relu", "x", "a"), ("Tanh", "x", "a")], "makes the tensor a twice"),
    "input made": ([("Relu", "x", "x")], "makes the tensor x twice"),
    "no such operator": ([("Magic", "x", "a")], "Magic"),
    "too few inputs": ([("MatMul", "x", "a")], "MatMul"),
    "shapes differ": ([("MatMul", "x x", "a")], "MatMul"),
    "text": ([("StringNormalizer", "x", "a")], "StringNormalizer"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_graphs_that_contradict_themselves_are_refused_in_one_line(path: Path, name: str) -> None:
    nodes, problem = BROKEN[name]
    save_model(path, [node(*each) for each in nodes], {"x": [2, 3]}, ["a"])
    assert problem in refused(path)


@pytest.mark.parametrize(
    ("dims", "problem"),
    [
        ([2, -3], "the negative dimension -3"),
        ([1 << 40, 1 << 40], "more elements than any device holds"),
        ([1] * 40, "more than 32 dimensions"),
        (None, "the shape of input x is open (no stated rank)"),
    ],
)
def test_shapes_that_no_tensor_has_are_refused(path: Path, dims: list[int], problem: str) -> None:
    assert problem in refused(save_model(path, [node("Relu", "x", "y")], {"x": dims}, ["y"]))


def test_weights_with_shapes_that_no_tensor_has_are_refused(path: Path) -> None:
    import onnx

    save_model(path, [node("Add", "x w", "y")], {"x": [3]}, ["y"], {"w": np.zeros(3, np.float32)})
    model = onnx.load(str(path))
    for dims, problem in (([-3], "negative"), ([1 << 50], "more elements")):
        model.graph.initializer[0].dims[:] = dims
        onnx.save(model, str(path))
        assert problem in refused(path)


@pytest.mark.parametrize("name", ["strides", "dilations", "kernel_shape", "group"])
def test_sizes_of_nothing_are_refused_before_onnx_divides_by_them(path: Path, name: str) -> None:
    value: Any = 0 if name == "group" else [0, 0]
    save_model(
        path,
        [node("Conv", "x w", "y", **{name: value})],
        {"x": [1, 3, 4, 4]},
        ["y"],
        {"w": np.zeros((2, 3, 1, 1), np.float32)},
    )
    assert f"its {name} is not positive" in refused(path)


@pytest.mark.parametrize("count", [1, 3, 1 << 40])
def test_a_split_into_other_parts_than_its_results_is_refused(path: Path, count: int) -> None:
    save_model(path, [node("Split", "x", "a b", axis=0, num_outputs=count)], {"x": [4]}, ["a", "b"])
    assert "its parts are not as many as its results" in refused(path)
    save_model(path, [node("Split", "x sizes", "a b", axis=0)], {"x": [4]}, ["a"], {"sizes": np.array([4])})
    assert "its parts are not as many as its results" in refused(path)


@pytest.mark.parametrize("kind", ["Shape", "Gather", "Reshape", "Concat", "Slice", "Constant", "Identity", "Cast"])
@pytest.mark.parametrize("inputs", ["", "-", "- -"])
def test_inputs_that_are_left_out_are_refused(path: Path, kind: str, inputs: str) -> None:
    save_model(path, [node(kind, inputs, "a"), node("Add", "a x", "y")], {"x": [4]}, ["y"])
    assert "a shape cannot be inferred" in refused(path)


CONTRADICTIONS: dict[str, tuple[str, dict[str, Any], list[list[int]], str]] = {
    "channels": ("ConvTranspose", {}, [[1, 8, 4, 4], [9, 5, 3, 3]], "its input has 8 channels, but its weight 9"),
    "kernel": ("Conv", {"kernel_shape": [5, 5]}, [[1, 8, 9, 9], [6, 8, 3, 3]], "its kernel_shape is not that of its"),
    "window": ("Conv", {}, [[1, 8, 2, 2], [6, 8, 3, 3]], "its window is larger than its input"),
    "pool": ("MaxPool", {"kernel_shape": [3, 3]}, [[1, 8, 2, 2]], "its window is larger than its input"),
    "letter": ("Einsum", {"equation": "ij,jk->ik"}, [[3, 4], [7, 5]], "j of its equation is 4 and 7"),
    "last letter": ("Einsum", {"equation": "...j,jk->...k"}, [[2, 3, 4], [7, 5]], "j of its equation is 4 and 7"),
    "control": ("Einsum", {"equation": "ij,j\x03k->ik"}, [[3, 4], [4, 5]], "its equation is none of letters"),
    "recurrent": ("LSTM", {"hidden_size": 6}, [[7, 2, 5], [1, 24, 9], [1, 24, 6]], "its weights do not fit its input"),
    "flat": ("GRU", {"hidden_size": 6}, [[7, 2, 5], [18], [1, 18, 6]], "have not three dimensions each"),
    "no weights": ("RNN", {"hidden_size": 6}, [[7, 2, 5]], "have not three dimensions each"),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_sizes_that_onnx_accepts_though_they_do_not_fit_are_refused(path: Path, name: str) -> None:
    kind, attributes, shapes, problem = CONTRADICTIONS[name]
    names = "xwr"[: len(shapes)]
    weights = {each: np.zeros(shape, np.float32) for each, shape in zip(names[1:], shapes[1:], strict=True)}
    save_model(path, [node(kind, " ".join(names), "y", **attributes)], {"x": shapes[0]}, ["y"], weights)
    assert problem in refused(path)


@pytest.mark.parametrize("stated", ["UNDEFINED", "STRING"])
def test_attributes_are_checked_whatever_type_they_state(path: Path, stated: str) -> None:
    from onnx import AttributeProto

    relu = node("Relu", "x", "a")
    pool, product = (
        node("MaxPool", "a", "y", kernel_shape=[1, 1], strides=[0, 0]),
        node("Einsum", "a", "y", equation="?"),
    )
    for wrong, problem in ((pool, "its strides is not positive"), (product, "its equation is none of letters")):
        for each in wrong.attribute:
            each.type = AttributeProto.AttributeType.Value(stated)
        assert problem in refused(save_model(path, [relu, wrong], {"x": [1, 1, 4, 4]}, ["y"]))


def test_attributes_of_subgraphs_are_checked(path: Path) -> None:
    from onnx import TensorProto, helper

    result = helper.make_tensor_value_info("t", TensorProto.FLOAT, [1])
    branch = helper.make_graph([node("Einsum", "x", "t", equation="?")], "branch", [], [result])
    outer = node("If", "yes", "y", then_branch=branch, else_branch=branch)
    assert "its equation is none" in refused(save_model(path, [outer], {"x": [1]}, ["y"], {"yes": np.array(True)}))


def test_an_equation_may_have_spaces_and_broadcast(path: Path) -> None:
    weights = {"w": np.zeros((1, 5), np.float32)}
    save_model(
        path, [node("Einsum", "x w", "y", equation=" ... i j, j k -> ... i k")], {"x": [2, 3, 4]}, ["y"], weights
    )
    assert read_model(path).tensors["y"].shape == (2, 3, 5)


def test_a_first_result_may_be_left_out(path: Path) -> None:
    from onnx import helper

    weights = {"w": np.zeros((2, 24, 5), np.float32), "r": np.zeros((2, 24, 6), np.float32)}
    lstm = helper.make_node("LSTM", ["x", "w", "r"], ["", "h"], hidden_size=6, direction="bidirectional")
    save_model(path, [lstm, node("Relu", "h", "y")], {"x": [7, 2, 5]}, ["y"], weights)
    assert read_model(path).tensors["y"].shape == (2, 2, 6)


def test_a_result_that_nothing_makes_is_refused(path: Path) -> None:
    save_model(path, [node("Relu", "x", "y")], {"x": [4]}, ["z"])
    assert "gives the tensor z, which nothing makes; export the model again" in refused(path)


def test_options_that_the_inputs_do_not_have_are_refused(path: Path) -> None:
    save_model(path, [node("Add", "x w", "y")], {"x": ["n", 3]}, ["y"], {"w": np.zeros(3, np.float32)})
    with pytest.raises(UsageError, match=r"--shape z: .* has no such input; its inputs are x"):
        read_model(path, shapes={"z": (1, 3)})
    with pytest.raises(UsageError, match="--shape x: has 1 dimensions, but the input has 2"):
        read_model(path, shapes={"x": (3,)})
    assert "--shape w" in refused(path, shapes={"w": (3,)})


@pytest.mark.parametrize("size", [0, 1, 10, 50, 100])
def test_a_truncated_file_is_refused_or_read_as_less(path: Path, size: int) -> None:
    save_model(path, flattening(), {"x": ["n", 3, 16]}, ["z"], CONSTANTS)
    path.write_bytes(path.read_bytes()[:size])
    assert "ONNX model" in refused(path)


def test_what_is_no_file_or_no_model_is_refused(path: Path, tmp_path: Path) -> None:
    assert "cannot be read" in refused(tmp_path / "none.onnx")
    assert "cannot be read" in refused(tmp_path)
    path.write_bytes(b"{}" * 100)
    assert "is no ONNX model" in refused(path)
    assert "it has no nodes" in refused(save_model(path, [], {"x": [1]}, ["x"]))


def test_a_file_beyond_the_limit_of_protobuf_is_refused(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate((2 << 30) + 1)  # without blocks on the disk
    assert "larger than the 2 GiB that an ONNX file can have; save it with its weights outside" in refused(path)


def test_too_many_nodes_and_long_names_are_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = "n" * 100_000
    save_model(path, [node("Relu", "x", "a"), node("Magic", "a", "y", name=long)], {"x": [3]}, ["y"])
    assert len(refused(path)) < 600
    monkeypatch.setattr("deepprof.collectors.models.onnx_order.MAX_NODES", 1)
    assert "has more than 1 nodes" in refused(path)


def test_a_constant_that_would_fill_the_memory_is_no_value(path: Path) -> None:
    nodes = [
        node("ConstantOfShape", "size", "big"),
        node("Expand", "x size", "wide"),
        node("Add", "big wide", "y"),
    ]
    graph = read_model(save_model(path, nodes, {"x": [1]}, ["y"], {"size": np.array([1 << 40])}))
    assert graph.tensors["y"].shape == (1 << 40,)


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes", "expected"),
    [
        ("Slice", {"a": [5, 6, 7, 8], "s": [1], "e": [1 << 62], "ax": [0], "st": [2]}, {}, [6, 8]),
        ("Slice", {"a": [5, 6, 7], "s": [-1], "e": [-(1 << 62)], "ax": [0], "st": [-1]}, {}, [7, 6, 5]),
        ("Gather", {"a": [5, 6, 7], "i": [-1, 0]}, {}, [7, 5]),
        ("Div", {"a": [-7, 7], "b": [2, 2]}, {}, [-3, 3]),
        ("Range", {"a": 1, "b": 8, "c": 3}, {}, [1, 4, 7]),
        ("ReduceProd", {"a": [2, 3, 4]}, {}, [24]),
        ("Where", {"c": [True, False], "a": [1, 2], "b": [3, 4]}, {}, [1, 4]),
        ("Mod", {"a": [7, 9], "b": [4, 5]}, {}, [3, 4]),
        ("Transpose", {"a": [[1, 2], [3, 4]]}, {"perm": [1, 0]}, [1, 3, 2, 4]),
        ("Squeeze", {"a": [[1, 2]], "ax": [0]}, {}, [1, 2]),
    ],
)
def test_values_are_computed_as_onnx_defines(
    path: Path, kind: str, inputs: dict[str, Any], attributes: dict[str, Any], expected: list[int]
) -> None:
    weights = {name: np.array(value) for name, value in inputs.items()}
    nodes = [
        node(kind, " ".join(inputs), "v", **attributes),
        node("Cast", "v", "f", to=1),
        node("Reshape", "x v", "r"),
        node("Add", "r f", "y"),
    ]
    save_model(path, nodes, {"x": [3]}, ["r"], weights)
    from deepprof.collectors.models.onnx_values import compute_values

    found = compute_values(kind, list(weights.values()), {name: tuple(each) for name, each in attributes.items()})
    assert found is not None
    assert found[0].reshape(-1).tolist() == expected


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [
        ("Div", [np.array([1]), np.array([0])]),
        ("Mul", [np.array([1 << 40]), np.array([1 << 40])]),
        ("Range", [np.array(0), np.array(1 << 50), np.array(1)]),
        ("Range", [np.array(0), np.array(5), np.array(0)]),
        ("Gather", [np.array([1, 2]), np.array([7])]),
        ("Reshape", [np.array([1, 2]), np.array([3])]),
        ("Expand", [np.array([1]), np.array([1 << 40])]),
        ("Concat", [np.array([1])]),
        ("Cast", [np.array([1])]),
        ("Relu", [np.array([1])]),
    ],
)
def test_values_that_cannot_be_computed_are_not_followed(kind: str, inputs: list[Any]) -> None:
    from deepprof.collectors.models.onnx_values import compute_values

    assert compute_values(kind, inputs, {}) is None
