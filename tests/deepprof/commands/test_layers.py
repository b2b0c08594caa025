"""`deepprof layers` and `--layers`, as their users call them."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deepprof.collectors.layers.layers_file import write_layers
from deepprof.commands import main
from deepprof.simulation import simulate, write

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

MODEL = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.fc = nn.Embedding(8, 4), nn.Linear(4, 4)

    def forward(self, tokens, more=None):
        x = self.fc(self.words(tokens)).relu()
        return x if more is None else x * more

def build():
    return Net()

def broken():
    raise ValueError("two\\nlines")

def other():
    return 3

class Quits(Net):
    def forward(self, tokens):
        raise SystemExit(3)

class WordlessError(Exception):
    def __str__(self):
        raise ValueError

def wordless():
    raise WordlessError

net = Net()
"""
LAYERS = ["aten::embedding", "aten::linear", "aten::relu"]


def run(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run the command in its own process, because torch is loaded with a setting for it."""
    command = [sys.executable, "-m", "deepprof", "layers", *argv]
    unseen = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=unseen)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(MODEL)
    return tmp_path


@needs_torch
def test_a_model_in_a_file_is_written_and_nothing_else_is_said(folder: Path) -> None:
    done = run(folder, "net.py:build", "--input", "2x3:int64", "--input", "more=1", "-o", "layers.json")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "layers.json: 4 operators in 3 layers\n"
    told = json.loads((folder / "layers.json").read_text())
    assert told["modules"][0] == {"path": "Net", "class": "Net"}
    assert [name for name, *_ in told["operators"]] == [*LAYERS, "aten::mul"]


@needs_torch
@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("net.py:net",), "forward pass failed (TypeError"),
        (("net.py:build", "--input", "2x3"), "forward pass failed (RuntimeError"),
        (("net.py:broken",), "broken() failed (ValueError: two)"),
        (("net.py:Quits", "--input", "2x3"), "forward pass failed (SystemExit: 3)"),
        (("net.py:wordless",), "wordless() failed (WordlessError)"),
        (("net.py:other",), "a int is no torch.nn.Module"),
        (("net.py:none",), "net has no none"),
        (("none.py:net",), "there is no file"),
        (("no.such.package:net",), "cannot be imported (ModuleNotFoundError"),
    ],
)
def test_what_fails_is_said_in_one_line(
    folder: Path, argv: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main(["layers", *argv, "-o", "layers.json"]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("deepprof: ")]
    assert len(lines) == 1
    assert said in lines[0]
    assert not (folder / "layers.json").exists()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["net", "-o", "a.json"], "names no model"),
        (["net.py:net", "--input", "2y3", "-o", "a.json"], "is not a shape"),
        (["net.py:net", "--input", "2x3:complex", "-o", "a.json"], "is not a shape"),
        (["net.py:net", "--input", "a=1", "--input", "a=2", "-o", "a.json"], "--input: a is given more than once"),
        (["net.onnx", "--input", "2x3", "-o", "a.json"], "--input: an ONNX file is read"),
        (["net.py:net", "-o", "no/folder/a.json"], "there is no directory"),
    ],
)
def test_what_cannot_be_meant_is_said_in_one_line(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["layers", *argv]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("trace") / "t.json.gz"
    write(simulate("healthy", iterations=6), path)
    return str(path)


def test_layers_are_taken_with_a_trace_of_their_model(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from deepprof import read

    host = read(trace)
    names = host.names.gather(host.host_events.filter(category="op")["name_id"].unique())
    content = {"schema": "deepprof.layers/1", "modules": [{"path": "Net", "class": "Net"}]}
    path = tmp_path / "layers.json"
    path.write_bytes(write_layers(content | {"operators": [[names[0], 0, 0]]}))
    assert main(["diagnose", trace, "--layers", str(path)]) == 0
    path.write_bytes(write_layers(content | {"operators": [["aten::no_such", 0, 0]]}))
    capsys.readouterr()
    export = ["export", trace, "--to", "collapsed", "-o", os.devnull]
    for command in (["diagnose", trace], ["flame", trace], export, ["diff", trace, trace]):
        assert main([*command, "--layers", str(path)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "no trace has any of its 1 operator; give the layers of the model" in line


@pytest.mark.traces
def test_two_runs_are_compared_by_the_layers_of_one_model(traces: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layers = Path(__file__).parents[3] / "docs" / "resnet50.layers.json"
    runs = [str(traces / name) for name in ("tb-resnet50-nw4", "tb-resnet50-nw0")]
    assert main(["diff", *runs, "--layers", str(layers), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["pairs"][0]["layers"]
    assert (found["source"], found["a_only"], found["b_only"], found["problem"]) == ("operators", 0, 0, None)
    assert found["matched"] > 100
    assert "layer3.2.conv2" in {row["path"] for row in found["rows"]}


@pytest.mark.parametrize("option", [["--cluster", "local"], ["--daemon", "unix:/nowhere"]])
def test_they_are_for_traces_that_are_read_here(capsys: pytest.CaptureFixture[str], option: list[str]) -> None:
    assert main(["diagnose", "job", "--layers", "a.json", *option]) == 2
    assert f"leave it out with {option[0]}" in capsys.readouterr().err
