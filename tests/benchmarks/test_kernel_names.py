"""How `make kernels` scores: on labels made by hand, with shares computed by hand."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from benchmarks.kernel_names import __main__ as command
from benchmarks.kernel_names import labels as reading
from benchmarks.kernel_names.answers import Answer, ask_names
from benchmarks.kernel_names.labels import Label, read_labels
from benchmarks.kernel_names.leaving_out import leave_out
from benchmarks.kernel_names.scoring import Row, compare_files, rate, rate_sure
from deepprof.metrics.kernels.kinds import KERNEL_KINDS

HEAD = "name\tcategory\tprecision\tunit\tlibrary\tconfidence\tnote\ttotal_ns\tcalls\tfiles"
LINES = (
    "volta_sgemm_64x64_nn\tmatmul\tfp32\tsimt\tcuBLAS\tsure\talt=convolution\t700\t1\ta,b",
    "attn_fwd\tattention\tunknown\ttensor_core\tAOTriton\tlikely\tby its neighbours\t200\t1\ta",
    "Im3d2Col\tconvolution\tunknown\tunknown\tMIOpen\tlikely\taux: im2col; alt=layout\t100\t1\tb",
)


@pytest.fixture
def labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Label]:
    """Return three labels of two files."""
    path = tmp_path / "names.tsv"
    path.write_text("\n".join([HEAD, *LINES]) + "\n")
    monkeypatch.setattr(reading, "LABELS", path)
    return read_labels()


def kinds(*rows: tuple[object, ...]) -> pl.DataFrame:
    return pl.DataFrame([(*row, None, None, sure) for *row, sure in rows], schema=dict(KERNEL_KINDS), orient="row")


def test_labels_have_their_alternatives(labels: list[Label]) -> None:
    assert [label.categories for label in labels] == [
        {"matmul", "convolution"},
        {"attention"},
        {"convolution", "layout"},
    ]
    assert [(label.part, label.sure, label.time_ns) for label in labels] == [
        (False, True, 700),
        (False, False, 200),
        (True, False, 100),
    ]


def test_shares_are_by_names_and_by_time(labels: list[Label]) -> None:
    found = kinds(
        ("convolution", "fp32", "tensor_core", True), ("softmax", None, None, True), ("layout", None, None, False)
    )
    answers = ask_names(labels, found)
    category, typed = rate("x", answers, (0.9, 0.5), (0.0, 0.0))
    assert (category.names, category.time) == (pytest.approx(2 / 3), pytest.approx(0.8))
    assert (typed.names, typed.time) == (0.0, 0.0)  # one has the wrong unit, one is no product; a part is not counted
    assert category.fails
    assert "below the floor" in category.write()
    assert rate_sure(answers)[1] == ["volta_sgemm_64x64_nn", "attn_fwd"]


def test_medians_are_over_files() -> None:
    label = Label("k", frozenset({"matmul"}), frozenset({"fp32"}), "simt", True, False, True, 1, frozenset({"a"}))
    right = {"a": [True], "b": [True, False], "c": [False]}
    answers = [Answer(label, file, each, each, each, True, 1.0, 10) for file, all_ in right.items() for each in all_]
    row = compare_files("x", answers, (0.5, 0.6))
    assert (row.names, row.time, row.fails) == (0.5, 0.5, True)
    assert not Row("x", 1.0, 1.0).fails


def test_lines_that_one_file_supports_are_left_out(labels: list[Label]) -> None:
    found = {(answer.label.name, answer.category) for answer in leave_out(labels)}
    assert ("volta_sgemm_64x64_nn", True) in found  # of two files
    assert ("Im3d2Col", True) not in found


def test_without_labels_nothing_is_scored(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "read_labels", list)
    for value, code in ((None, 0), ("1", "DEEPPROF_NO_SKIPS is set")):
        monkeypatch.delenv("DEEPPROF_NO_SKIPS", raising=False)
        if value:
            monkeypatch.setenv("DEEPPROF_NO_SKIPS", value)
        with pytest.raises(SystemExit) as caught:
            command.main()
        assert caught.value.code == code
        assert "not scored" in capsys.readouterr().out
