"""Names of kernels of many libraries and years, written from knowledge of the libraries, and what they compute."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from deepprof.metrics.kernels.classify import classify_names

FILE = Path(__file__).with_name("further_names.tsv")
UNTOLD = "?"


def read_names() -> list[list[str]]:
    """Return name, category, precision and unit of every line; the last two are empty where they are not stated."""
    lines = [line for line in FILE.read_text().splitlines() if line and not line.startswith("#")]
    return [[*line.split("\t"), "", ""][:4] for line in lines]


def test_names_of_many_libraries_are_told() -> None:
    rows = read_names()
    found = classify_names(pl.Series([row[0] for row in rows]))
    wrong = []
    for (name, category, *product), kinds in zip(rows, found.iter_rows(named=True), strict=True):
        told = [kinds["precision"] or UNTOLD, kinds["unit"] or UNTOLD]
        if kinds["category"] != category or (product[0] and told != product):
            wrong.append((name, kinds["category"], *told))
    assert wrong == []
    assert len({row[0] for row in rows}) == len(rows) > 300
