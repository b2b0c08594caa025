"""Backends run a model, state what their layers needed, and each layer that multiplies contains one such operator."""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path

import pytest

from deepprof.backends import backend as shared
from deepprof.backends.backend import RunOptions, load_backend
from deepprof.collectors.errors import TraceError, UsageError
from deepprof.collectors.models.backend_profile import BackendProfile, LayerRole
from deepprof.collectors.models.graph import TensorSpec
from deepprof.collectors.models.onnx_model import read_model
from deepprof.metrics.cost.mapping import ModelMapping, map_layers
from deepprof.metrics.cost.model_roofline import check_mapping, cost_layers, sum_layers
from tests.deepprof.backends.small_models import write_attention, write_branches, write_convolutions, write_unsupported

RUNNING = ("onnxruntime", "openvino")
WRITERS = {"convolutions": write_convolutions, "attention": write_attention}
FLOPS = {  # of products, by hand: 2 × multiplications, of one image or of one sentence of 8 words
    "convolutions": 2 * (16 * 16 * 16 * 27 + 8 * 8 * 16 * 144 + 8 * 8 * 16 * 16 + 160),
    "attention": 2 * (3 * 8 * 32 * 32 + 2 * 8 * 8 * 32),
}


def run(path: Path, name: str, batch: int = 1, **options: object) -> tuple[ModelMapping, BackendProfile]:
    graph = read_model(path, batch=batch)
    inputs = {each: graph.tensors[each] for each in graph.inputs}
    chosen = {"runs": 3, "warmup": 1, "threads": 1} | options
    profile = load_backend(name).profile(path, RunOptions(inputs, **chosen))  # type: ignore[arg-type]
    return map_layers(graph, profile), profile


@pytest.mark.parametrize("name", RUNNING)
@pytest.mark.parametrize("model", WRITERS)
def test_layers_hold_one_product_each_and_tensors_of_the_sizes_that_ran(name: str, model: str, tmp_path: Path) -> None:
    mapping, profile = run(WRITERS[model](tmp_path / "model.onnx"), name, batch=2)
    checks = check_mapping(mapping)
    assert checks.exact_layers == checks.product_layers > 0
    assert checks.mapped_products == checks.product_nodes == (4 if model == "convolutions" else 5)
    assert checks.agreeing_layers == checks.sized_layers >= checks.product_layers
    layers = profile.layers
    unmapped = {number for number in range(len(layers)) if not mapping.nodes[number]} - mapping.conversions.keys()
    assert not unmapped
    costs = cost_layers(mapping)
    assert costs["product_flops"].sum() == 2 * FLOPS[model]
    assert sum_layers(costs, profile.latency_ns)["product_flops"].item() == 2 * FLOPS[model]
    assert (profile.batch, profile.runs) == (2, 3)
    assert all(layer.time_ns is not None and layer.time_ns >= 0 for layer in layers)
    assert profile.latency_ns is not None
    assert profile.latency_ns > 0


@pytest.mark.parametrize("name", RUNNING)
def test_predicted_bytes_are_those_of_the_tensors_that_a_convolution_had(name: str, tmp_path: Path) -> None:
    options = {"dtype": "float32"} if name == "openvino" else {}
    mapping, profile = run(write_convolutions(tmp_path / "model.onnx"), name, **options)
    costs = cost_layers(mapping)
    number = next(
        n for n, nodes in enumerate(mapping.nodes) if "/stem/Conv" in {mapping.graph.nodes[k].name for k in nodes}
    )
    row = costs.row(number, named=True)
    assert name == "openvino" or row["operators"] == ["/stem/Conv", "/stem/Relu"]
    # The image, 16 × 27 weights, 16 biases, 16 × 16 × 16 results, of 4 bytes each.
    assert row["nbytes"] == 4 * (3 * 256 + 432 + 16 + 4096) == row["tensors_nbytes"]
    assert row["dtype"] == row["product_dtype"] == "float32"
    assert profile.layers[number].role is LayerRole.PRODUCT


def test_the_type_that_is_asked_for_is_what_openvino_computes_in(tmp_path: Path) -> None:
    _, profile = run(write_convolutions(tmp_path / "model.onnx"), "openvino", dtype="float32")
    assert {layer.dtype for layer in profile.layers} == {"float32"}


def test_weights_that_change_their_type_once_are_no_layer_of_a_run(tmp_path: Path) -> None:
    mapping, profile = run(write_attention(tmp_path / "model.onnx"), "openvino")
    assert not [layer.name for layer in profile.layers if layer.inputs and layer.name.startswith("w")]
    assert len(profile.layers) < 20
    assert all(layer.inputs for layer in profile.layers)
    assert set(mapping.layers) <= set(range(len(profile.layers)))


@pytest.mark.parametrize("name", RUNNING)
def test_a_model_that_cannot_be_built_is_one_line_with_the_reason(name: str, tmp_path: Path) -> None:
    path = write_unsupported(tmp_path / "model.onnx")
    with pytest.raises(TraceError, match=f"{name} cannot build it: .*Unheard") as caught:
        load_backend(name).profile(path, RunOptions({"x": TensorSpec((1, 4), "float32")}))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400 + len(str(path))


@pytest.mark.parametrize("name", RUNNING)
def test_weights_in_a_file_that_is_absent_are_told(name: str, tmp_path: Path) -> None:
    import onnx

    path = write_convolutions(tmp_path / "model.onnx")
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="weights.bin", size_threshold=16)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(TraceError, match="cannot build it"):
        run(path, name)


def test_a_shape_that_the_file_fixes_is_told(tmp_path: Path) -> None:
    path = write_convolutions(tmp_path / "model.onnx", batch=1)
    with pytest.raises(UsageError, match="fixes the shape of input x, which is not 4x3x16x16"):
        run(path, "onnxruntime", batch=4)
    _, profile = run(path, "openvino", batch=4)  # which can change it
    assert profile.batch == 4


def test_types_that_a_backend_does_not_compute_in_are_refused(tmp_path: Path) -> None:
    path = write_convolutions(tmp_path / "model.onnx")
    with pytest.raises(UsageError, match="ONNX Runtime computes in the types of the file"):
        run(path, "onnxruntime", dtype="float16")
    with pytest.raises(UsageError, match="OpenVINO computes in float32, float16, bfloat16"):
        run(path, "openvino", dtype="int8")


@pytest.mark.parametrize("name", RUNNING)
def test_a_backend_that_is_not_installed_says_how_to_install_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module(f"deepprof.backends.{name}")
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=rf"--backend {name}: .*pip install 'deepprof\[{name}\]'"):
        load_backend(name)


def test_nothing_is_left_behind_when_a_run_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_convolutions(tmp_path / "model.onnx")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    module = importlib.import_module("deepprof.backends.onnxruntime")

    def interrupt(*_: object) -> int:
        assert list(scratch.iterdir())  # the profile is there
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "time_runs", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(path, "onnxruntime")
    assert not list(scratch.iterdir())
    assert not [each.name for each in Path.cwd().iterdir() if each.name.startswith("onnxruntime_profile")]


def test_inputs_are_numbers_that_any_model_can_take() -> None:
    specs = {"ids": TensorSpec((2, 3), "int64"), "mask": TensorSpec((2,), "bool"), "x": TensorSpec((2, 2), "float16")}
    drawn = shared.draw_inputs(specs)
    assert {name: (array.shape, array.dtype.name) for name, array in drawn.items()} == {
        "ids": ((2, 3), "int64"),
        "mask": ((2,), "bool"),
        "x": ((2, 2), "float16"),
    }
    assert not drawn["ids"].any()
    assert drawn["mask"].all()
    assert drawn["x"].min() >= 0
    assert drawn["x"].max() <= 1
    with pytest.raises(UsageError, match="no inputs of type bfloat16"):
        shared.draw_inputs({"x": TensorSpec((1,), "bfloat16")})
    with pytest.raises(UsageError, match="more than 16 GiB; give a smaller --batch"):
        shared.draw_inputs({"x": TensorSpec((1 << 31, 3), "float32")})


def test_branches_run_nodes_that_the_model_does_not_list(tmp_path: Path) -> None:
    path = write_branches(tmp_path / "model.onnx")
    with pytest.raises(TraceError, match="as with loops and branches; export it without If, Loop and Scan"):
        load_backend("onnxruntime").profile(path, RunOptions({"x": TensorSpec((1, 4), "float32")}))
