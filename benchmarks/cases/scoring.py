"""Verdicts as tables: how many are right, and what was taken for what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from benchmarks.accuracy.tables import Better, Table
from benchmarks.cases.case import HEALTHY, SURE, Verdict

__all__ = ["confusion", "summary"]

COLUMNS: dict[str, Better] = {
    "cases": "key",
    "number": "same",
    "right": "more",
    "abstained": "any",
    "wrong": "fewer",
    f"wrong at ≥ {SURE}": "fewer",
    "right, %": "more",
}
NOTE = (
    "*Right* means that the headline is the label (for a healthy job: that there is none). *Abstained*: something is "
    "wrong and nothing is said. *Wrong*: something else is blamed."
)


def summary(verdicts: Sequence[Verdict]) -> Table:
    """Return one row per section, and one for all."""
    sections = list(dict.fromkeys(verdict.case.section for verdict in verdicts))
    rows = [count(name, [v for v in verdicts if v.case.section == name]) for name in sections]
    return Table("Summary", NOTE, COLUMNS, [*rows, count("all", verdicts)])


def count(name: str, verdicts: Sequence[Verdict]) -> list[str]:
    """Return the cells of one row."""
    right, wrong = sum(v.right for v in verdicts), [v for v in verdicts if v.wrong]
    sure = sum(v.confidence >= SURE for v in wrong)
    numbers = (len(verdicts), right, sum(v.abstains for v in verdicts), len(wrong), sure)
    return [name, *map(str, numbers), f"{100 * right / max(1, len(verdicts)):.1f}"]


def confusion(verdicts: Sequence[Verdict]) -> Table:
    """Return a row per label and a column per headline; a case with two true headlines counts under the one it got."""
    pairs = Counter((v.headline if v.right else v.case.label, v.headline) for v in verdicts)
    names = [*sorted({name for pair in pairs for name in pair} - {HEALTHY}), HEALTHY]
    columns: dict[str, Better] = {"label": "key", **dict.fromkeys(names, "any")}
    rows = [[label, *(str(pairs[label, name] or ".") for name in names)] for label in names]
    return Table("Confusion matrix", "Rows are labels, columns are headlines.", columns, rows)
