"""Contexts as collapsed stacks, one a line with its number, as flamegraph.pl, inferno and speedscope read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import polars as pl

from deepprof.render.flame import FlameMeasure, label
from deepprof.render.plain import printable
from deepprof.render.pprof import split_ranks

SEPARATOR = ";"


def write_collapsed(contexts: pl.DataFrame, file: BinaryIO, measure: FlameMeasure) -> str:
    """Write a line for every context that used something itself, those of several ranks under their rank.

    `contexts` are those of an `Analysis`. Returns a summary of what was written.
    """
    count = 0
    for around, rows in split_ranks(contexts):
        for line in _list_stacks(rows.with_columns(own=measure.own), [name for name, _, _ in around]):
            file.write(f"{line}\n".encode())
            count += 1
    return f"{count:,} stacks by {measure.title}"


def _list_stacks(contexts: pl.DataFrame, around: list[str]) -> Iterator[str]:
    """Yield the lines of one rank's contexts; the first, which is around all, has one if it used something itself."""
    stacks = [SEPARATOR.join(around)]
    rows = contexts.select("parent", "kind", "name", "file", "line", "own").iter_rows(named=True)
    for number, row in enumerate(rows):
        name = printable(label(row)).replace(SEPARATOR, ":")
        if number:
            stacks.append(SEPARATOR.join(filter(None, (stacks[row["parent"]], name))))
        if row["own"]:
            yield f"{stacks[number] or name} {row['own']}"
