"""Names that mislead: what alone decides nothing, and what a kernel is in spite of its name."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from deepprof.metrics.kernels.classify import classify_names

FILE = Path(__file__).with_name("misleading_names.tsv")


def read_names() -> list[list[str]]:
    """Return name, category, precision, unit, and whether it is sure, of every line; what is not stated is empty."""
    lines = [line for line in FILE.read_text().splitlines() if line and not line.startswith("#")]
    return [[*line.split("\t"), "", "", ""][:5] for line in lines]


@pytest.mark.parametrize("row", read_names(), ids=lambda row: row[0][:60])
def test_a_misleading_name_is_told(row: list[str]) -> None:
    name, category, precision, unit, sure = row
    found = classify_names(pl.Series([name])).row(0, named=True)
    assert (found["category"], found["precision"] or "", found["unit"] or "") == (category, precision, unit)
    assert not sure or found["sure"] == (sure == "sure")


@pytest.mark.parametrize("prefix", ["maxwell", "pascal"])
@pytest.mark.parametrize("kernel", ["sgemm_128x64_nn", "dgemm_64x64_nt", "scudnn_128x64_relu_small_nn_v1"])
def test_devices_without_matrix_units_run_kernels_of_ordinary_units(prefix: str, kernel: str) -> None:
    found = classify_names(pl.Series([f"{prefix}_{kernel}"])).row(0, named=True)
    assert (found["unit"], found["precision"]) == ("simt", "fp64" if "dgemm" in kernel else "fp32")
