"""The labelled names of kernels, and the traces that they are from."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from deepprof.metrics.kernels.kinds import PRODUCTS

__all__ = ["LABELS", "TRACES", "Label", "list_files", "read_labels"]

ROOT = Path(__file__).resolve().parents[2]
TRACES = Path(os.environ.get("DEEPPROF_TRACES", ROOT / "../shared/traces")).resolve()
LABELS = TRACES.with_name("kernels") / "names.tsv"


@dataclass(frozen=True, slots=True)
class Label:
    """What is right of a name: its categories and precisions (`unknown`: the name does not show), and its unit.

    `part`: the kernel prepares or ends a product, and only its category counts. `sure`: so is the label.
    """

    name: str
    categories: frozenset[str]
    precisions: frozenset[str]
    unit: str
    is_product: bool
    part: bool
    sure: bool
    time_ns: int
    files: frozenset[str]


def read_labels() -> list[Label]:
    """Return the labels, or none where they are absent."""
    if not LABELS.is_file():
        return []
    rows = pl.read_csv(LABELS, separator="\t", quote_char=None, infer_schema_length=0).iter_rows(named=True)
    return [_read(row) for row in rows]


def _read(row: dict[str, str | None]) -> Label:
    note, category = row["note"] or "", row["category"] or ""
    return Label(
        name=row["name"] or "",
        categories=frozenset({category, *_find_alternatives(r"alt(?: category)?=([a-z_|]+)", note)}),
        precisions=frozenset(
            {row["precision"] or "unknown", *_find_alternatives(r"alt precision=([a-z0-9_|]+)", note)}
        ),
        unit=row["unit"] or "unknown",
        is_product=category in PRODUCTS,
        part="aux:" in note,
        sure=row["confidence"] == "sure",
        time_ns=int(row["total_ns"] or 0),
        files=frozenset((row["files"] or "").split(",")),
    )


def _find_alternatives(pattern: str, note: str) -> set[str]:
    return {word for found in re.findall(pattern, note) for word in found.split("|")}


def list_files(wanted: frozenset[str]) -> Iterator[tuple[str, Path]]:
    """Yield the name in the labels, and the path, of every wanted trace."""
    for folder in (TRACES, TRACES.with_name("more_traces")):
        manifest = folder / "manifest.csv"
        if not manifest.is_file():
            continue
        with manifest.open(newline="") as lines:
            for row in csv.DictReader(lines):
                name = row["file"].partition("/")[0]
                if name in wanted:
                    yield name, folder / row["file"]
