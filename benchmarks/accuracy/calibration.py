"""Whether a confidence means what it states: how many of the loops given this much of it are right."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from benchmarks.accuracy.looks import LOOKS, Outcome
from benchmarks.accuracy.tables import Better, Table

EDGES = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0)
SURE = 0.9
Verdicts = list[tuple[float, float, float]]  # confidence, right, fully right


def tables(jobs: str, outcomes: Sequence[Outcome]) -> list[Table]:
    """Return the reliability diagram as numbers, and its line for loops that are given as sure."""
    given = {look: [v for o in outcomes if o.look == look for v in o.loops] for look in LOOKS}
    shown: dict[str, Better] = {"look": "key", "confidence": "key", "loops": "any", "mean confidence": "any"}
    bins = [[look, *cells] for look, verdicts in given.items() for cells in diagram(verdicts)]
    columns: dict[str, Better] = {"look": "key", f"loops given ≥ {SURE}": "any"}
    return [
        Table(
            f"Confidence, {jobs}",
            "Of the loops found with a confidence in each range: their mean confidence, and the shares that are\n"
            "right, and right in phase as well.",
            shown | {"right": "any", "fully right": "any"},
            bins,
        ),
        Table(
            f"Sure loops, {jobs}",
            f"What a confidence of {SURE} or more is worth.",
            columns | {"right": "more", "fully right": "more"},
            [
                [look, *figures([v for v in verdicts if v[0] >= SURE])[:1], *shares(verdicts)]
                for look, verdicts in given.items()
            ],
        ),
    ]


def diagram(verdicts: Verdicts) -> list[list[str]]:
    """Return one row per bin of confidence; the last one holds 1 as well."""
    rows = []
    for low, high in pairwise(EDGES):
        inside = [v for v in verdicts if low <= v[0] < high or v[0] == high == EDGES[-1]]
        rows.append([f"{low:g} to {high:g}", *figures(inside)])
    return rows


def shares(verdicts: Verdicts) -> list[str]:
    """Return the shares of sure loops that are right and fully right."""
    return figures([v for v in verdicts if v[0] >= SURE])[2:]


def figures(verdicts: Verdicts) -> list[str]:
    """Return count, mean confidence, share right and share fully right."""
    if not verdicts:
        return ["0", "-", "-", "-"]
    return [str(len(verdicts)), *(f"{x:.3f}" for x in np.mean(verdicts, axis=0).tolist())]
