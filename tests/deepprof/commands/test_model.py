"""`deepprof model`: what it prints for small ONNX files, in its three formats, and what it says of wrong arguments."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from deepprof.commands import main
from tests.onnx_files import node, save_model

pytest.importorskip("onnx", reason="onnx is not installed (pip install 'deepprof[model]')")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a model of a convolution and what follows, in the directory in which the test runs."""
    monkeypatch.chdir(tmp_path)
    weights = {"w": np.zeros((8, 3, 3, 3), np.float32), "b": np.zeros(8, np.float32)}
    nodes = [
        node("Conv", "x w b", "a", name="/stem/conv/Conv", pads=[1, 1, 1, 1]),
        node("Relu", "a", "r", name="/stem/act/Relu"),
        node("GlobalAveragePool", "r", "y", name="/GlobalAveragePool"),
    ]
    return save_model(Path("net.onnx"), nodes, {"x": ["n", 3, 16, 16]}, ["y"], weights)


def printed(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(["model", *argv]) == 0
    return capsys.readouterr().out


# The convolution does 2 x 27 operations for each of 4,096 results, and adds a bias to each.
TEXT = """\
net.onnx: x 2x3x16x16 float16
3 operators, 224 parameters, 448 B of weights
233 kFLOP, 221 kFLOP of them in products; moves 35.5 KiB (6.4 FLOP/byte), fused
19.5 KiB (11.7)

                      parameters    FLOP   share     bytes  FLOP/byte
  stem.conv                  224   225 k  96.5 %  11.4 KiB       19.2
  stem.act                     0   4.1 k   1.8 %  16.0 KiB        0.2
  (the model itself)           0  4.11 k   1.8 %  8.03 KiB        0.5
"""


def test_the_text_has_a_row_for_each_layer(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = printed(capsys, "net.onnx", "--batch", "2", "--dtype", "float16")
    assert out == TEXT
    assert max(map(len, out.splitlines())) <= 80


def test_json_has_all_that_is_known(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed(capsys, "net.onnx", "--format", "json", "--by", "kind", "--shape", "x=4x3x16x16"))
    assert found["schema"] == "deepprof.model/1"
    assert found["inputs"] == [{"name": "x", "shape": [4, 3, 16, 16], "dtype": "float32"}]
    assert found["totals"]["flops"] == 4 * (54 * 8 * 256 + 3 * 8 * 256 + 8)
    assert found["totals"]["unknown_kinds"] == {}
    assert [row["name"] for row in found["rows"]] == ["Conv", "Relu", "GlobalAveragePool"]


def test_csv_has_a_row_for_each_operator(path: Path, tmp_path: Path) -> None:
    assert main(["model", "net.onnx", "--format", "csv", "--by", "operator", "-o", "costs.csv"]) == 0
    rows = list(csv.DictReader(io.StringIO((tmp_path / "costs.csv").read_text())))
    assert [(row["node"], row["kind"], row["flops"]) for row in rows][1] == ("/stem/act/Relu", "Relu", "2048")
    assert rows[1]["product_dtype"] == ""


def test_what_has_no_rule_is_named(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnx

    monkeypatch.setenv("COLUMNS", "80")
    save_model(
        path, [node("own.Magic", "x", "a", name="/m/Magic"), node("Relu", "a", "y", name="/m/Relu")], {"x": [4]}, ["y"]
    )
    model = onnx.load("net.onnx")
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT, [4]))
    onnx.save(model, "net.onnx")
    lines = printed(capsys, "net.onnx").splitlines()
    assert lines[3:5] == [
        "Unknown, and left out of all sums, is what these cost: own.Magic (1). Covered:",
        "50.0 % of the operators with 50.0 % of the bytes.",
    ]
    assert lines[-1].split() == ["m", "0", "≥4", "100", "%", "≥32", "B", "0.1"]


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["none.onnx"], "none.onnx: cannot be read: No such file or directory; check the path"),
        (["net.onnx", "--shape", "x"], "'x' is not NAME=SHAPE, such as tokens=8x128"),
        (["net.onnx", "--shape", "x=1x-3"], "is not NAME=SHAPE"),
        (["net.onnx", "--shape", "y=1x3"], "net.onnx has no such input; its inputs are x"),
        (["net.onnx", "--shape", "x=1x3"], "--shape x: has 2 dimensions, but the input has 4"),
        (["net.onnx", "--shape", "x=1x3x4x4", "--shape", "x=1x3x5x5"], "an input has two shapes"),
        (["net.onnx", "--shape", "x=1x4x16x16"], "/stem/conv/Conv (Conv): its input has 4 channels, but its weight 3"),
        (["net.onnx", "--batch", "0"], "is not a whole number of at least 1"),
        (["net.onnx", "--dtype", "int8"], "invalid choice: 'int8'"),
        (["net.onnx", "-o", "no/such/file"], "no/such"),
    ],
)
def test_wrong_arguments_are_said_in_one_line(
    path: Path, capsys: pytest.CaptureFixture[str], argv: list[str], problem: str
) -> None:
    assert main(["model", *argv]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert problem in captured.err


def test_no_framework_is_imported(path: Path) -> None:
    code = "import sys; from deepprof.commands import main; main(['model', 'net.onnx']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert "onnx" in loaded
    assert not loaded & {"torch", "onnxruntime", "openvino", "jax", "tensorflow"}
