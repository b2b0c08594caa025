"""`deepprof roofline TRACE` on a made-up job whose peaks, shapes and times are available."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from msgspec.structs import replace

from benchmarks.cases.contexts import write
from benchmarks.cases.peaks import PEAK_CASES
from deepprof.collectors.store import replace_store, write_index
from deepprof.collectors.store.rank import write_rank
from deepprof.collectors.trace import OPERANDS, Trace, empty_table
from deepprof.commands import main

Run = Callable[..., tuple[int, str, str]]


def write_store(trace: Trace, folder: Path) -> Path:
    """Write a store of one rank."""
    with replace_store(folder) as part:
        write_rank(trace, part / "rank=0")
        write_index(part, [0])
    return folder


@pytest.fixture(scope="module")
def trace() -> Trace:
    return write(PEAK_CASES["a product far from its roof"][0], iterations=6)[0]


@pytest.fixture(scope="module")
def stored(trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(trace, tmp_path_factory.mktemp("roofline") / "store")


@pytest.fixture
def run(stored: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*options: str, path: Path = stored) -> tuple[int, str, str]:
        code = main(["roofline", str(path), *options])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def test_the_farthest_operator_comes_first(run: Run) -> None:
    code, out, _ = run()
    assert code == 0
    rows = out.partition("calls")[2].splitlines()
    assert rows[1].startswith("aten::mm 8192x1024, 1024x8192")
    assert "9.3 %" in rows[1] + rows[2]
    assert "NVIDIA H100 SXM5 80 GB" in out
    assert "MFU -" in out  # the other operators have no shapes


def test_the_text_ends_with_the_picture_where_peaks_are_known(run: Run, trace: Trace, tmp_path: Path) -> None:
    _, out, _ = run()
    assert "Roofline of rank 0, device 0, by operator" in out
    assert "A aten::mm 8192" in out.partition("roof: memory")[2]
    assert "roof" not in run("--format", "csv")[1].replace("roof_ratio", "").replace("above_roof", "")
    unknown = replace(trace, devices=trace.devices.clear())
    _, out, _ = run(path=write_store(unknown, tmp_path / "unknown"))
    assert "Roofline of rank" not in out


def test_shapes_are_not_cut_on_a_usual_page(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    rows = run()[1].partition("calls")[2].splitlines()
    assert rows[1] == "aten::mm 8192x1024, 1024x8192"
    assert rows[2].lstrip().startswith("1 ")


def test_json_has_the_same_figures(run: Run) -> None:
    code, out, _ = run("--format", "json", "--top", "1")
    found = json.loads(out)
    assert (code, found["schema"], found["by"], len(found["rows"])) == (0, "deepprof.roofline.trace/1", "operator", 1)
    (row,) = found["rows"]
    assert (row["name"], row["bound"], row["device_ns"]) == ("aten::mm", "compute", 1_500_000)
    assert row["headroom_ns"] == pytest.approx(1_500_000 - 2 * 8192 * 1024 * 8192 / 989.4e3, rel=1e-4)
    assert found["mfu_ratio"] is None
    assert "is not known" in found["why_no_mfu"]


@pytest.mark.parametrize("by", ["layer", "kernel"])
def test_rows_can_be_layers_and_kernels(run: Run, by: str) -> None:
    code, out, _ = run("--by", by, "--format", "csv")
    header, *rows = out.splitlines()
    assert (code, header.split(",")[0]) == (0, "name")
    assert rows
    assert by == "layer" or rows[0].startswith("mm_kernel,")


@pytest.mark.parametrize(
    ("suffix", "begin"), [("svg", "<svg"), ("html", "<!doctype html>"), ("json", "{"), ("csv", "name,")]
)
def test_the_name_of_the_output_says_what_it_is(run: Run, tmp_path: Path, suffix: str, begin: str) -> None:
    target = tmp_path / f"roofline.{suffix}"
    assert run("-o", str(target))[0] == 0
    assert target.read_text().lstrip().startswith(begin)


def test_peaks_can_be_given(run: Run, tmp_path: Path) -> None:
    peaks = tmp_path / "peaks.toml"
    peaks.write_text(
        'schema = "deepprof.peaks/1"\n[[devices]]\nname = "Slow"\nsource = "by hand"\n'
        "vector_flops_per_s = { float32 = 1e12 }\nmatrix_flops_per_s = { bfloat16 = 100e12 }\n"
        "memory_nbytes_per_s = { memory = 1e12 }\n"
    )
    code, out, _ = run("--peaks", str(peaks), "--format", "json", "--top", "1")
    (row,) = json.loads(out)["rows"]
    assert (code, json.loads(out)["peaks"]) == (0, "Slow")
    assert row["ideal_ns"] == pytest.approx(2 * 8192 * 1024 * 8192 / 100e3)
    code, _, err = run("--peaks", "no such device")
    assert (code, err.count("\n")) == (2, 1)


def test_without_shapes_one_line_says_how_to_record_them(run: Run, trace: Trace, tmp_path: Path) -> None:
    write_store(replace(trace, operands=empty_table(OPERANDS)), tmp_path / "bare")
    code, out, err = run(path=tmp_path / "bare")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "record_shapes=True" in err


def test_shapes_without_a_kernel_are_another_mistake(run: Run, trace: Trace, tmp_path: Path) -> None:
    copies = pl.lit("memcpy").cast(trace.device_events.schema["activity"]).alias("activity")
    write_store(replace(trace, device_events=trace.device_events.with_columns(copies)), tmp_path / "idle")
    code, out, err = run(path=tmp_path / "idle")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "no kernel ran" in err
    assert "record_shapes" not in err


def test_an_unknown_device_has_figures_without_roofs(run: Run, trace: Trace, tmp_path: Path) -> None:
    write_store(replace(trace, devices=trace.devices.clear()), tmp_path / "unknown")
    code, out, _ = run(path=tmp_path / "unknown")
    assert code == 0
    assert "--peaks" in out
    assert "TFLOP/s" not in out.partition("calls")[0]


def test_a_rank_that_is_not_there(run: Run) -> None:
    code, _, err = run("--rank", "7")
    assert (code, "there is no such rank" in err) == (2, True)
