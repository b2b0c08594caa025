"""`deepprof roofline MODEL.onnx`: a model runs, and its layers are against the device's peaks."""

from __future__ import annotations

import csv
import json
import re
import shlex
from pathlib import Path

import pytest

from deepprof.backends import memory_counter
from deepprof.backends.memory_counter import MissCounter
from deepprof.commands import main
from tests.deepprof.backends.small_models import write_attention, write_convolutions, write_unsupported
from tests.deepprof.backends.test_tensorrt import record

PEAKS = """
schema = "deepprof.peaks/1"
[[devices]]
name = "a machine"
source = "by hand"
vector_flops_per_s = {float32 = 1e14}
memory_nbytes_per_s = {memory = 1e13}
"""
PAGE = Path(__file__).resolve().parents[3] / "docs" / "roofline.md"
QUICK = ("--runs", "2", "--warmup", "1", "--threads", "1")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run in a folder with a model and a file of peaks, on a machine whose peaks were not measured."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "110")
    write_convolutions(tmp_path / "model.onnx")
    (tmp_path / "peaks.toml").write_text(PEAKS)
    return tmp_path


def run(*words: str) -> int:
    return main(["roofline", "model.onnx", *words])


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_several_batches_stand_in_one_table_with_what_holds_of_the_mapping(
    backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--backend", backend, "--batch", "1,4", "--peaks", "peaks.toml", *QUICK) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Roofs of a machine: by hand" in said
    assert said.count("4 of 4 layers that multiply hold exactly one such operator") == 2
    assert "Batch 4: " in said
    assert "their bytes are predicted" in said
    assert "100 % of the layers'" in said or "to conversions" in said


def test_without_peaks_it_says_how_to_get_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--backend", "onnxruntime", *QUICK) == 0
    assert "No peaks are known: run `deepprof peak`, or give --peaks" in capsys.readouterr().out


def test_json_has_each_layer_with_its_cost_its_roof_and_what_its_bytes_are() -> None:
    assert run("--backend", "onnxruntime", "--batch", "2", "--peaks", "peaks.toml", "-o", "out.json", *QUICK) == 0
    content = json.loads(Path("out.json").read_text())
    whole, *layers = content["rows"]
    assert (whole["name"], whole["place"], whole["batch"]) == ("model.onnx", None, 2)
    assert whole["product_flops"] == 2 * 2 * (16 * 16 * 16 * 27 + 8 * 8 * 16 * 144 + 8 * 8 * 16 * 16 + 160)
    assert {row["basis"] for row in content["rows"]} == {"predicted"}
    stem = next(row for row in layers if "/stem/Conv" in row["operators"])
    nbytes = 4 * (2 * (3 * 256 + 4096) + 432 + 16)
    assert (stem["nbytes"], stem["memory_ns"]) == (nbytes, pytest.approx(nbytes / 1e4))
    assert stem["achieved_nbytes_per_s"] == pytest.approx(nbytes * 1e9 / stem["device_ns"])
    assert stem["roof_ratio"] == pytest.approx(stem["ideal_ns"] / stem["device_ns"])
    assert sum(row["share_ratio"] for row in layers) == pytest.approx(1)


def test_why_bytes_are_predicted_stands_in_text_and_files(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_counter, "_open_counter", lambda: (None, "nobody counts here"))
    note = "Bytes are predicted, not counted: nobody counts here."
    assert run("--backend", "onnxruntime", *QUICK) == 0
    assert " ".join(capsys.readouterr().out.split()).count(note) == 1
    for name in ("out.json", "out.svg", "out.html"):
        assert run("--backend", "openvino", "-o", name, *QUICK) == 0
        assert note in Path(name).read_text()


def test_bytes_that_were_counted_need_no_reason(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MissCounter, "count_nbytes", lambda *_: 5_000)
    monkeypatch.setattr(memory_counter, "_open_counter", lambda: (None, None))
    assert run("--backend", "onnxruntime", *QUICK) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert " 5 kB counted " in said
    assert "Bytes are predicted" not in said


def test_pictures_and_tables_are_written_by_the_ending_of_the_name() -> None:
    for name in ("out.svg", "out.html", "out.csv"):
        assert run("--backend", "onnxruntime", "--peaks", "peaks.toml", "-o", name, *QUICK) == 0
    assert Path("out.svg").read_text().startswith("<svg")
    assert "model.onnx on onnxruntime" in Path("out.html").read_text()
    rows = list(csv.DictReader(Path("out.csv").read_text().splitlines()))
    assert json.loads(rows[1]["operators"])[0] == "/stem/Conv"


def test_words_are_numbers_that_are_in_every_vocabulary(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_attention(folder / "model.onnx")
    assert run("--backend", "onnxruntime", "--shape", "tokens=3x8", *QUICK) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Batch 3: 5 of 5 layers that multiply" in said


def test_recorded_files_of_trtexec_need_no_tensorrt(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile, info = record(folder)
    words = ("--backend", "tensorrt", "--batch", "2", "--profile", str(profile), "--layer-info", str(info))
    assert run(*words, "--peaks", "peaks.toml") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "median of 100 runs" in said
    assert "4 of 4 layers that multiply" in said
    assert "5 of 5 layers have as many elements" in said
    assert said.count("Bytes are predicted, not counted: trtexec runs in its own process, and writes no counters.") == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "--backend: say what runs the model"),
        (("--backend", "tensorrt", "--profile", "a"), "--profile and --layer-info belong together"),
        (("--backend", "openvino", "--profile", "a", "--layer-info", "b"), "openvino writes no such file"),
        (("--backend", "tensorrt", "--profile", "a", "--layer-info", "b"), "a: cannot be read: No such file"),
        (("--backend", "onnxruntime", "--shape", "x=axb"), "is not NAME=SHAPE"),
        (("--backend", "onnxruntime", "--shape", "z=1x2"), "has no such input; its inputs are x"),
        (("--backend", "onnxruntime", "--shape", "x=1x2"), "has 2 dimensions, but the input has 4"),
        (("--backend", "onnxruntime", "--dtype", "float16"), "ONNX Runtime computes in the types of the file"),
        (("--backend", "onnxruntime", "--peaks", "nothing like it"), "no peaks of such a device are known"),
        (("--backend", "onnxruntime", "--format", "json"), "--format: is of traces; leave it out"),
        (("--backend", "onnxruntime", "--top", "3"), "--top: is of traces; leave it out"),
        (("--backend", "onnxruntime", "--by", "layer"), "--by: is of traces; leave it out"),
        (("--backend", "onnxruntime", "--by", "operator"), "--by: is of traces; leave it out"),
        (("--backend", "onnxruntime", "--rank", "0"), "--rank: is of traces; leave it out"),
        (("--backend", "onnxruntime", "--from", "0s"), "--from: is of traces; leave it out"),
        (("--backend", "onnxruntime", "--iterations", "3"), "--iterations: is of traces; leave it out"),
        (("--backend", "onnxruntime", "--iterations", ":3"), "--iterations: is of traces; leave it out"),
        (("--backend", "onnxruntime", "--layer", "fc"), "--layer: is of traces; leave it out"),
        (("--backend", "onnxruntime", "--same-device"), "--same-device: is of traces; leave it out"),
        (("--backend", "onnxruntime", "-o", "out.png"), "end its name with one of .svg, .html, .json, .csv"),
    ],
)
def test_mistakes_are_one_line(words: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words) == 2
    said = capsys.readouterr()
    assert complaint in said.err
    assert (said.err.count("\n"), said.out) == (1, "")
    assert not list(Path.cwd().glob("out.*"))


def test_a_file_that_is_no_model_is_told_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["roofline", "trace.txt", "--backend", "onnxruntime"]) == 2
    assert "trace.txt" in capsys.readouterr().err


def test_a_model_that_no_backend_can_build_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_unsupported(folder / "model.onnx")
    assert run("--backend", "onnxruntime") == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_commands_of_the_page_run(folder: Path) -> None:
    record(folder)[1].rename(folder / "layers.json")
    commands = re.findall(r"^deepprof (roofline model\.onnx .*)$", PAGE.read_text(), re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        words = shlex.split(command)
        assert main([*words, *(QUICK if "--profile" not in words else ())]) == 0
    assert Path("roofline.svg").is_file()
