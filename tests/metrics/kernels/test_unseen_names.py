"""Names that were labelled from knowledge of the libraries before the tables were read (docs/kernels.md)."""

from __future__ import annotations

import csv
from pathlib import Path

import polars as pl
import pytest

from deepprof.metrics.kernels.classify import classify_names

FILE = Path(__file__).with_name("unseen_names.tsv")
NOT_STATED = "?"  # the name has no type: one in the result is a guess

Label = dict[str, str]
Kind = dict[str, object]


@pytest.fixture(scope="module")
def labelled() -> list[tuple[Label, Kind]]:
    """Return each name's label (categories separated by `|`, precision, unit) and what the tables show of it."""
    with FILE.open(encoding="utf-8", newline="") as file:
        labels = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    kinds = classify_names(pl.Series([label["name"] for label in labels]))
    return list(zip(labels, kinds.iter_rows(named=True), strict=True))


def _has_category(label: Label, kind: Kind) -> bool:
    return kind["category"] in label["category"].split("|")


def _has_factors(label: Label, kind: Kind) -> bool:
    if label["precision"] == NOT_STATED:
        return kind["precision"] is None
    return not label["unit"] or (kind["precision"], kind["unit"]) == (label["precision"], label["unit"])


def test_every_name_has_its_category(labelled: list[tuple[Label, Kind]]) -> None:
    wrong = [(label["name"], kind["category"]) for label, kind in labelled if not _has_category(label, kind)]
    assert wrong == []
    assert len({label["name"] for label, _ in labelled}) == len(labelled) > 700


def test_every_product_has_its_precision_and_unit(labelled: list[tuple[Label, Kind]]) -> None:
    wrong = [
        (label["name"], kind["precision"], kind["unit"]) for label, kind in labelled if not _has_factors(label, kind)
    ]
    assert wrong == []
    assert sum(bool(label["unit"]) for label, _ in labelled) > 170


def test_most_kinds_are_sure(labelled: list[tuple[Label, Kind]]) -> None:
    assert sum(kind["sure"] is True for _, kind in labelled) > 0.5 * len(labelled)
