"""The table of a run: a row a check, with its figure, its verdict and what would have disproved it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from enum import StrEnum

__all__ = ["Row", "Verdict", "draw_table", "judge"]

WIDTHS = (34, 62, 8, 42)
HEADS = ("check", "figure", "verdict", "disproved by")


class Verdict(StrEnum):
    """What came of a check; only `FAILED` makes the exit status 1."""

    OK = "ok"
    FAILED = "FAILED"
    MEASURED = "measured"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    check: str
    figure: str
    verdict: Verdict
    disproof: str = ""


def judge(check: str, ok: bool, figure: str, disproof: str) -> Row:
    """Return the row of a check that can fail."""
    return Row(check, figure, Verdict.OK if ok else Verdict.FAILED, disproof)


def draw_table(rows: Iterable[Row]) -> str:
    """Return the rows as text with aligned columns; long cells go over several lines."""
    lines = [*draw_row(HEADS), "  ".join("-" * width for width in WIDTHS)]
    for row in rows:
        lines += draw_row([str(cell) for cell in astuple(row)])
    return "\n".join(lines)


def draw_row(cells: Iterable[str]) -> list[str]:
    """Return the lines of one row."""
    columns = [textwrap.wrap(cell, width) or [""] for cell, width in zip(cells, WIDTHS, strict=True)]
    lines = []
    for at in range(max(map(len, columns))):
        parts = [column[at] if at < len(column) else "" for column in columns]
        lines.append("  ".join(f"{part:<{width}}" for part, width in zip(parts, WIDTHS, strict=True)).rstrip())
    return lines
