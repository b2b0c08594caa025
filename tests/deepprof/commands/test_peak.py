"""`deepprof peak`, with small arrays."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepprof.commands import main
from deepprof.metrics.cost.achieved_peaks import NumpyKernels
from deepprof.metrics.cost.peak_files import load_peaks


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(NumpyKernels, "array_nbytes", lambda _: 400_000)
    monkeypatch.setattr(NumpyKernels, "prepare_product", lambda *_: lambda: None)


def test_it_prints_stores_and_writes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "peaks.json"
    assert main(["peak", "--seconds", "0.1", "--dtype", "float64", "-o", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "triad" in printed
    assert "float64 products" in printed
    assert "float32 products" not in printed
    assert "No vendor's figures" in printed
    stored = load_peaks("cpu")
    assert stored == load_peaks(str(out))
    assert set(stored.vector_flops_per_s) == {"float64"}


def test_a_type_that_is_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["peak", "--dtype", "bfloat16"]) == 2
    assert "choose from float32, float64" in capsys.readouterr().err
