"""TensorRT's files as trtexec documents them: layers, types, times and the operators that a layer was made of."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from deepprof.backends import tensorrt
from deepprof.backends.backend import RunOptions, load_backend
from deepprof.backends.tensorrt import read_recorded
from deepprof.collectors.errors import TraceError, UsageError
from deepprof.collectors.models.backend_profile import LayerRole
from deepprof.collectors.models.onnx_model import read_model
from deepprof.metrics.cost.mapping import map_layers
from deepprof.metrics.cost.model_roofline import check_mapping, cost_layers
from tests.deepprof.backends.small_models import write_convolutions

ROW, CHANNELS = "Row major linear FP32", "Channel major FP16 format where channel % 8 == 0"


def tensor(name: str, dims: list[int], text: str = CHANNELS) -> dict[str, Any]:
    return {"Name": name, "Location": "Device", "Dimensions": dims, "Format/Datatype": text}


def layer(name: str, kind: str, inputs: list[Any], outputs: list[Any], originals: str = "") -> dict[str, Any]:
    return {
        **{"Name": name, "LayerType": kind, "Inputs": inputs, "Outputs": outputs, "ParameterType": kind},
        **{"TacticValue": "0x0", "StreamId": 0, "Metadata": originals},
    }


IMAGE, FEATURES = [2, 3, 16, 16], [2, 16, 8, 8]
LAYERS = [
    layer(
        "Reformatting CopyNode for Input Tensor 0 to /stem/Conv + /stem/Relu",
        "Reformat",
        [tensor("x", IMAGE, ROW)],
        [tensor("Reformatted Input Tensor 0 to /stem/Conv + /stem/Relu", IMAGE)],
    ),
    layer(
        "/stem/Conv + /stem/Relu",
        "CaskConvolution",
        [tensor("Reformatted Input Tensor 0 to /stem/Conv + /stem/Relu", IMAGE)],
        [tensor("r1", [2, 16, 16, 16])],
        "[ONNX Layer: /stem/Conv]\x1e[ONNX Layer: /stem/Relu]",
    ),
    layer("/skip/Conv", "CaskConvolution", [tensor("r1", [2, 16, 16, 16])], [tensor("c3", FEATURES)]),
    layer(
        "/body/Conv + /Add + PWN(/Relu)",
        "CaskConvolution",
        [tensor("r1", [2, 16, 16, 16]), tensor("c3", FEATURES)],
        [tensor("r2", FEATURES)],
    ),
    layer(
        "/GlobalAveragePool",
        "CaskPooling",
        [tensor("r2", FEATURES)],
        [tensor("p", [2, 16, 1, 1])],
        "[ONNX Layer: /GlobalAveragePool]",
    ),
    layer(
        "__myl_Fc_myl0_1",
        "gemm",
        [tensor("p", [2, 16, 1, 1])],
        [tensor("y", [2, 10], ROW)],
        "[ONNX Layer: /Flatten]\x1f[ONNX Layer: /head/Gemm]",
    ),
]
TIMES_MS = [0.01, 0.2, 0.03, 0.1, 0.02, 0.04]


def record(folder: Path, layers: list[Any] = LAYERS, times: list[float] = TIMES_MS) -> tuple[Path, Path]:
    """Write the two files of trtexec and return their paths."""
    rows = [
        {"name": each["Name"], "timeMs": 100 * time, "averageMs": 2 * time, "medianMs": time, "percentage": 1.0}
        for each, time in zip(layers, times, strict=True)
    ]
    profile, info = folder / "profile.json", folder / "layers.json"
    profile.write_text(json.dumps([{"count": 100}, *rows]))
    info.write_text(json.dumps({"Layers": layers, "Bindings": ["x", "y"]}))
    return profile, info


def test_layers_have_their_times_types_and_operators(tmp_path: Path) -> None:
    profile = read_recorded(*record(tmp_path), 2)
    assert (profile.runs, profile.average, profile.latency_ns, profile.layers_ns) == (100, "median", None, 400_000)
    reformat, stem, skip, body, pool, head = profile.layers
    assert [each.role for each in profile.layers] == [
        *(LayerRole.CONVERSION, LayerRole.PRODUCT, LayerRole.PRODUCT, LayerRole.PRODUCT, LayerRole.OTHER),
        LayerRole.PRODUCT,
    ]
    assert (stem.time_ns, stem.dtype, reformat.inputs[0].dtype) == (200_000, "float16", "float32")
    assert (skip.originals, body.originals) == (("/skip/Conv",), ("/body/Conv", "/Add", "/Relu"))
    assert (stem.originals, head.originals) == (("/stem/Conv", "/stem/Relu"), ("/Flatten", "/head/Gemm"))
    assert (reformat.originals, pool.outputs[0].shape) == ((), (2, 16, 1, 1))


def test_its_layers_map_to_the_model(tmp_path: Path) -> None:
    graph = read_model(write_convolutions(tmp_path / "model.onnx"), batch=2)
    mapping = map_layers(graph, read_recorded(*record(tmp_path), 2))
    checks = check_mapping(mapping)
    assert (checks.product_layers, checks.exact_layers, checks.mapped_products) == (4, 4, 4)
    assert (checks.sized_layers, checks.agreeing_layers) == (5, 5)
    assert (checks.layers_ns, checks.nodes_ns, checks.conversions_ns) == (400_000, 390_000, 10_000)
    assert mapping.conversions == {0: "x"}
    costs = cost_layers(mapping)
    # Float16, as the layer is: two images, 16 × 27 weights, 16 biases, the results.
    assert costs["nbytes"][1] == 2 * (2 * 3 * 256 + 432 + 16 + 2 * 4096)
    assert costs["nbytes"][0] == (4 + 2) * 2 * 3 * 256  # read as float32, written as float16
    assert costs["product_dtype"].to_list() == [None, "float16", "float16", "float16", None, "float32"]


def test_engines_without_details_have_names_and_times(tmp_path: Path) -> None:
    profile_path, info = record(tmp_path)
    info.write_text(json.dumps({"Layers": [each["Name"] for each in LAYERS]}))
    profile = read_recorded(profile_path, info, 2)
    assert [each.kind for each in profile.layers] == ["unknown"] * 6
    assert profile.layers[1].originals == ("/stem/Conv", "/stem/Relu")
    assert profile.layers_ns == 400_000


def test_a_region_that_was_compiled_as_one_names_its_ends(tmp_path: Path) -> None:
    region = layer("{ForeignNode[/stem/Conv.../head/Gemm]}", "Myelin", [], [])
    found = read_recorded(*record(tmp_path, [region], [1.0]), 1).layers[0]
    assert (found.role, found.originals) == (LayerRole.FUSED, ("/stem/Conv", "/head/Gemm"))


def test_open_dimensions_are_no_sizes(tmp_path: Path) -> None:
    opened = layer("a", "Convolution", [], [tensor("y", [-1, 4], "N/A due to dynamic shapes")])
    assert read_recorded(*record(tmp_path, [opened], [1.0]), 1).layers[0].outputs[0].shape is None


@pytest.mark.parametrize("content", ["", "[", "{}", '{"Layers": 1}', '{"Layers": [1]}', "[" * 100_000, "\0"])
def test_other_files_are_refused(tmp_path: Path, content: str) -> None:
    profile, info = record(tmp_path)
    info.write_text(content)
    with pytest.raises(TraceError, match="is no such file of trtexec; write it with trtexec --profilingVerbosity"):
        read_recorded(profile, info, 1)


def test_more_layers_than_an_engine_has_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorrt, "MAX_LAYERS", len(LAYERS) - 1)
    with pytest.raises(TraceError, match="has more than 5 layers"):
        read_recorded(*record(tmp_path), 1)


def test_files_of_two_engines_are_told(tmp_path: Path) -> None:
    profile, info = record(tmp_path)
    profile.write_text('[{"count": 1}, {"name": "other", "timeMs": 1, "averageMs": 1}]')
    with pytest.raises(TraceError, match="give two files of the same engine"):
        read_recorded(profile, info, 1)


def test_without_trtexec_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="trtexec of TensorRT is not on PATH; install TensorRT, or read its files"):
        load_backend("tensorrt")


PROGRAM = """#!{python}
import sys
options = dict(each.lstrip("-").partition("=")[::2] for each in sys.argv[1:])
open({said!r}, "w").write("\\n".join(sys.argv[1:]))
if {fails}:
    print("[01/01/2026-00:00:00] [E] Error[4]: no parser for it")
    sys.exit(1)
open(options["exportProfile"], "w").write(open({profile!r}).read())
open(options["exportLayerInfo"], "w").write(open({info!r}).read())
open(options["exportTimes"], "w").write('[{{"latencyMs": 1.5}}, {{"latencyMs": 0.5}}, {{"latencyMs": 1.0}}]')
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, *, fails: bool) -> Path:
    """Put a stand-in for trtexec on PATH, which writes recorded files; return where it notes its options."""
    import sys

    profile, info = record(folder)
    program, said = folder / "bin" / "trtexec", folder / "said"
    program.parent.mkdir()
    values = {"python": sys.executable, "said": str(said), "profile": str(profile), "info": str(info)}
    program.write_text(PROGRAM.format(**values, fails=fails))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return said


def test_trtexec_builds_and_runs_the_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said, path = install(tmp_path, monkeypatch, fails=False), write_convolutions(tmp_path / "model.onnx")
    graph = read_model(path, batch=2)
    options = RunOptions({"x": graph.tensors["x"]}, "float16", runs=7)
    profile = load_backend("tensorrt").profile(path, options)
    assert (profile.latency_ns, profile.layers_ns, profile.batch) == (1_000_000, 400_000, 2)
    given = said.read_text().splitlines()
    assert f"--onnx={path}" in given
    assert {"--shapes='x':2x3x16x16", "--iterations=7", "--fp16", "--profilingVerbosity=detailed"} <= {*given}
    assert not Path(next(each for each in given if "exportProfile" in each).partition("=")[2]).exists()


def test_what_trtexec_complains_of_is_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(tmp_path, monkeypatch, fails=True)
    path = write_convolutions(tmp_path / "model.onnx")
    with pytest.raises(TraceError, match=r"tensorrt cannot build or run it: Error\[4\]: no parser for it"):
        load_backend("tensorrt").profile(path, RunOptions({"x": read_model(path).tensors["x"]}))
