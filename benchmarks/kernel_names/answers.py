"""What DeepProf finds of labelled kernels: by their names, and by the operators of the traces that they are from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from benchmarks.kernel_names.labels import Label, list_files
from deepprof.collectors.errors import DeepProfError
from deepprof.collectors.importers import read
from deepprof.metrics.kernels.classify import classify_names, find_kernel_kinds

__all__ = ["Answer", "ask_names", "ask_traces"]

CONVOLUTION = re.compile(r"(?i)conv")


@dataclass(frozen=True, slots=True)
class Answer:
    """How right is what was found of one name in one file, and how much it weighs; `typed` is None for no product.

    `literal` is whether the category is the label's, without what an operator may show beyond the name.
    """

    label: Label
    file: str
    literal: bool
    category: bool
    typed: bool | None
    sure: bool
    names: float
    time_ns: int


def ask_names(labels: list[Label], kinds: pl.DataFrame | None = None) -> list[Answer]:
    """Return the answers by names alone; `kinds` are those found, where they are not DeepProf's own."""
    found = classify_names(pl.Series([label.name for label in labels], dtype=pl.String)) if kinds is None else kinds
    rows = zip(labels, found.iter_rows(named=True), strict=True)
    return [_judge(label, row, "", 1.0, label.time_ns) for label, row in rows]


def ask_traces(labels: list[Label]) -> Iterator[tuple[Answer, Answer]]:
    """Yield for every kernel of every trace the answers by the name alone, and with the operators that launched it."""
    by_name = {label.name: label for label in labels}
    files = frozenset(file for label in labels for file in label.files)
    for file, path in list_files(files):
        try:
            trace = read(path)
        except DeepProfError:
            continue  # one of several files of that name that is no trace
        found = find_kernel_kinds(trace)
        spans = trace.device_events.select(ns=pl.col("end_ns") - pl.col("start_ns"), row=pl.Series(found.of_events))
        sums = spans.filter(pl.col("row") >= 0).group_by("row", maintain_order=True).agg(pl.col("ns").sum())
        table = found.table[sums["row"]].with_columns(sums["ns"]).filter(pl.col("name").is_in(list(by_name)))
        whole = table.with_columns(share=pl.col("ns") / pl.col("ns").sum().over("name")).fill_nan(1.0)
        alone = classify_names(whole["name"])
        for shown, hidden in zip(whole.iter_rows(named=True), alone.iter_rows(named=True), strict=True):
            label = by_name[shown["name"]]
            weight = {"names": shown["share"], "time_ns": shown["ns"]}
            yield _judge(label, hidden, file, **weight), _judge(label, shown, file, **weight)


def _judge(label: Label, row: dict[str, object], file: str, names: float, time_ns: int) -> Answer:
    """Return how right a row of kinds is.

    Names are labelled without their operators. Where these are shown, a product that ran inside a convolution may be
    called one, and a kernel of a name that does not show may be what its operator is.
    """
    operator = row.get("operator")
    shown = isinstance(operator, str)
    inside = isinstance(operator, str) and "matmul" in label.categories and bool(CONVOLUTION.search(operator))
    literal = row["category"] in label.categories
    category = literal or (inside and row["category"] == "convolution") or (shown and "unknown" in label.categories)
    typed = None
    if label.is_product and not label.part:
        told = "operator" in row and "unknown" in label.precisions  # operands show what the name does not
        precision = told or (row["precision"] or "unknown") in label.precisions
        typed = category and precision and (row["unit"] or "unknown") == label.unit
    return Answer(label, file, literal, category, typed, bool(row["sure"]), names, time_ns)
