"""The tables without what only one file supports: how names are told that no one has seen."""

from __future__ import annotations

from collections import defaultdict

import msgspec
import numpy as np
import polars as pl

from benchmarks.kernel_names.answers import Answer, ask_names
from benchmarks.kernel_names.labels import Label
from deepprof.metrics.kernels.name_kinds import classify_names, cut_names, find_patterns
from deepprof.metrics.kernels.name_matching import find_first
from deepprof.metrics.kernels.pattern_tables import PatternTable, list_tables

__all__ = ["leave_out"]

Support = dict[tuple[int, str, int], set[str]]
"""The files of the names that a line of a table decides on, by the table, the list in it and the line."""


def leave_out(labels: list[Label]) -> list[Answer]:
    """Return the answers for every file's names, by tables without the lines that only names of that file need."""
    support = find_support(labels)
    answers = []
    for file in sorted({file for label in labels for file in label.files}):
        own = [label for label in labels if file in label.files]
        names = pl.Series([label.name for label in own], dtype=pl.String)
        answers += ask_names(own, classify_names(names, _without(support, file)))
    return answers


def find_support(labels: list[Label]) -> Support:
    """Return which files support each line of the tables."""
    tables, support = list_tables(), defaultdict(set)
    text = cut_names(pl.Series([label.name for label in labels], dtype=pl.String))
    found = find_patterns(text, tables)
    for number, table in enumerate(tables):
        rows = np.flatnonzero(found.table == number)
        for row, pattern in zip(rows, found.pattern[rows], strict=True):
            support[number, "patterns", int(pattern)] |= labels[row].files
        for lines in _split_types(table):
            used = find_first(text.gather(rows), [table.types[line].match for line in lines])
            for row, line in zip(rows, used, strict=True):
                if line >= 0:
                    support[number, "types", lines[line]] |= labels[row].files
    return support


def _split_types(table: PatternTable) -> list[list[int]]:
    """Return the lines of a table's types with a precision, and those with a unit."""
    lines = range(len(table.types))
    return [[line for line in lines if getattr(table.types[line], name) is not None] for name in ("precision", "unit")]


def _without(support: Support, file: str) -> list[PatternTable]:
    """Return the tables without the lines that only one file supports."""
    left = []
    for number, table in enumerate(list_tables()):
        kept = {
            name: tuple(
                each for line, each in enumerate(getattr(table, name)) if support.get((number, name, line)) != {file}
            )
            for name in ("patterns", "types")
        }
        left.append(msgspec.structs.replace(table, **kept))
    return left
