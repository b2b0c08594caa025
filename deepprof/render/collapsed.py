"""Contexts as collapsed stacks, one a line with its number, as flamegraph.pl, inferno and speedscope read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

import polars as pl

from deepprof.render.flame import label
from deepprof.render.plain import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deepprof.analysis import Analysis
    from deepprof.render.flame import FlameMeasure

SEPARATOR = ";"


def write_collapsed(analysis: Analysis, file: BinaryIO, measure: FlameMeasure) -> str:
    """Write a line for each context that took something itself, those of several ranks under their rank.

    Returns a summary of what was written.
    """
    ranks, count = analysis.contexts["rank"].unique(maintain_order=True).to_list(), 0
    for rank in ranks:
        contexts = analysis.contexts.filter(pl.col("rank") == rank).with_columns(own=measure.own)
        for line in _list_stacks(contexts, [f"rank {rank}"] if len(ranks) > 1 else []):
            file.write(f"{line}\n".encode())
            count += 1
    return f"{count:,} stacks by {measure.title}"


def _list_stacks(contexts: pl.DataFrame, around: list[str]) -> Iterator[str]:
    """Yield the lines of one rank's contexts; the first, which is around all, has one if it took something itself."""
    stacks = [SEPARATOR.join(around)]
    rows = contexts.select("parent", "kind", "name", "file", "line", "own").iter_rows(named=True)
    for number, row in enumerate(rows):
        name = printable(label(row)).replace(SEPARATOR, ":")
        if number:
            stacks.append(SEPARATOR.join(filter(None, (stacks[row["parent"]], name))))
        if row["own"]:
            yield f"{stacks[number] or name} {row['own']}"
