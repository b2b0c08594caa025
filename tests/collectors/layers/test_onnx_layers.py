"""Layers from ONNX: node names as torch.onnx.export writes them, with and without metadata."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from deepprof.collectors.errors import TraceError
from deepprof.collectors.layers.layers_file import read_layers
from deepprof.collectors.models.onnx_file import join_scopes

Node = tuple[str, str, list[str], list[str], dict[str, Any]]


@pytest.fixture(scope="module")
def onnx() -> Any:
    return pytest.importorskip("onnx", reason="onnx is not installed (pip install 'deepprof[model]')")


def save(onnx: Any, path: Path, nodes: list[Node], weights: list[str], said: dict[str, dict[str, str]]) -> Path:
    """Write a model; `said` is the metadata of nodes by name."""
    helper = onnx.helper
    made = [helper.make_node(kind, inputs, outputs, name=name, **more) for name, kind, inputs, outputs, more in nodes]
    for node in made:
        for key, value in said.get(node.name, {}).items():
            entry = node.metadata_props.add()
            entry.key, entry.value = key, value
    shape = onnx.TensorProto.FLOAT
    tensors = [helper.make_tensor(name, shape, [1], [0.0]) for name in weights]
    ends = [helper.make_tensor_value_info(name, shape, None) for name in ("x", nodes[-1][3][0])]
    graph = helper.make_graph(made, "Net", ends[:1], ends[1:], tensors)
    onnx.save(helper.make_model(graph), str(path))
    return path


def read(path: Path) -> list[tuple[str, str, str | None]]:
    return read_layers(path).table.select("operator", "layer", "layer_class").rows()


def test_scopes_in_names_are_paths(onnx: Any, tmp_path: Path) -> None:
    nodes: list[Node] = [
        ("/conv1/Conv", "Conv", ["x", "conv1.weight"], ["a"], {"kernel_shape": [3, 3]}),
        ("/relu/Relu", "Relu", ["a"], ["b"], {}),
        ("/layer1/layer1.0/conv1/Conv", "Conv", ["b", "layer1.0.conv1.weight"], ["c"], {"kernel_shape": [3]}),
        ("/layer1/layer1.0/bn_1/BatchNormalization", "BatchNormalization", ["c", "layer1.0.bn_1.weight"], ["d"], {}),
        ("/layer1/layer1.0/Add", "Add", ["d", "b"], ["e"], {}),
        ("/relu_1/Relu", "Relu", ["e"], ["f"], {}),
        ("/pool/GlobalAveragePool", "GlobalAveragePool", ["f"], ["g"], {}),
        ("/Flatten", "Flatten", ["g"], ["h"], {}),
        ("/up/MatMul", "MatMul", ["h", "onnx::MatMul_17"], ["i"], {}),
        ("/up/Add", "Add", ["up.bias", "i"], ["j"], {}),
        ("/MatMul", "MatMul", ["j", "h"], ["k"], {}),
        ("/words/Gather", "Gather", ["words.weight", "k"], ["l"], {}),
        ("/fc/Gemm", "Gemm", ["l", "fc.weight", "fc.bias"], ["m"], {}),
    ]
    weights = ["conv1.weight", "layer1.0.conv1.weight", "layer1.0.bn_1.weight", "onnx::MatMul_17", "up.bias"]
    path = save(onnx, tmp_path / "m.onnx", nodes, [*weights, "words.weight", "fc.weight", "fc.bias"], {})
    assert read(path) == [
        ("aten::conv2d", "conv1", None),
        ("aten::relu", "relu", None),
        ("aten::conv1d", "layer1.0.conv1", None),
        ("aten::batch_norm", "layer1.0.bn_1", None),
        ("aten::add", "layer1.0", None),
        ("aten::relu", "relu", None),
        ("aten::adaptive_avg_pool2d", "pool", None),
        ("aten::linear", "up", None),
        ("aten::matmul", "Net", None),
        ("aten::embedding", "words", None),
        ("aten::linear", "fc", None),
    ]


def test_metadata_has_paths_and_classes(onnx: Any, tmp_path: Path) -> None:
    said = {
        "pkg.torch.onnx.name_scopes": "['', 'body', 'body.1', 'relu']",
        "pkg.torch.onnx.class_hierarchy": "['m.Net', 'torch.nn.Sequential', 'torch.nn.ReLU', 'aten.relu.default']",
    }
    nodes: list[Node] = [
        ("node_relu_1", "Relu", ["x"], ["a"], {}),
        ("node_odd", "Relu", ["a"], ["b"], {}),
        ("/body/body.0/Tanh", "Tanh", ["b"], ["c"], {}),
    ]
    odd = {"pkg.torch.onnx.name_scopes": "__import__('os')"}
    path = save(onnx, tmp_path / "m.onnx", nodes, [], {"node_relu_1": said, "node_odd": odd})
    assert read(path) == [
        ("aten::relu", "body.1", "ReLU"),
        ("aten::relu", "Net", None),
        ("aten::tanh", "body.0", None),
    ]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("/layer1/layer1.0/conv1/Conv", "layer1.0.conv1"),
        ("/encoder/layers.0/self_attn/MatMul", "encoder.layers.0.self_attn"),
        ("/features/features.0/features.0.0/Conv", "features.0.0"),
        ("/Add", ""),
        ("Add_7", ""),
        ("", ""),
    ],
)
def test_a_scope_that_repeats_the_one_before_is_not_told_twice(name: str, path: str) -> None:
    assert join_scopes(name) == path


def test_what_cannot_be_used_is_said_in_one_line(onnx: Any, tmp_path: Path) -> None:
    nameless = save(onnx, tmp_path / "a.onnx", [("r", "Relu", ["x"], ["a"], {})], [], {})
    shapes = save(onnx, tmp_path / "b.onnx", [("/a/Reshape", "Reshape", ["x", "s"], ["a"], {})], [], {})
    damaged = tmp_path / "c.onnx"
    damaged.write_bytes(b"\x08\x07nonsense" * 3)
    for path, said in (
        (nameless, "does not say which module"),
        (shapes, "has no operator"),
        (damaged, "no ONNX model"),
    ):
        with pytest.raises(TraceError, match=said) as raised:
            read_layers(path)
        assert "\n" not in str(raised.value)
    with pytest.raises(TraceError, match="cannot be read"):
        read_layers(tmp_path / "none.onnx")


@pytest.mark.parametrize("text", [b"/aaaa", b"Relu", b"Net", b"wwww", b"xxxx"])
def test_names_that_are_no_text_are_refused_in_one_line(onnx: Any, tmp_path: Path, text: bytes) -> None:
    path = save(onnx, tmp_path / "m.onnx", [("/aaaa/Relu", "Relu", ["xxxx"], ["a"], {})], ["wwww"], {})
    path.write_bytes(path.read_bytes().replace(text, b"\xff" * len(text), 1))
    with pytest.raises(TraceError, match="names are not UTF-8"):
        read_layers(path)


def test_a_scope_that_cannot_be_written_is_shown_with_a_question_mark(onnx: Any, tmp_path: Path) -> None:
    said = {"pkg.torch.onnx.name_scopes": r"['', 'b\ud800', 'relu']"}
    path = save(onnx, tmp_path / "m.onnx", [("node_relu", "Relu", ["x"], ["a"], {})], [], {"node_relu": said})
    assert read(path) == [("aten::relu", "b?", None)]


def test_without_the_library_the_line_that_installs_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(TraceError, match=r"pip install 'deepprof\[model\]'"):
        read_layers(tmp_path / "m.onnx")
