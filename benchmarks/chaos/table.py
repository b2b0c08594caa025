"""Outcomes as a table that people read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from benchmarks.accuracy.tables import Better, Table
from benchmarks.chaos.hostile import ATTACKS, CONTROL
from benchmarks.chaos.trial import Outcome

__all__ = ["make_table", "tell_aim"]

COLUMNS: dict[str, Better] = {
    "scenario": "key",
    "what was done": "any",
    "honest senders": "any",
    "records sent": "any",
    "acknowledged": "any",
    "lost": "fewer",
    "doubled": "fewer",
    "gone": "fewer",
    "p99 wait, quiet": "any",
    "p99 wait, disturbed": "any",
    "longest": "any",
    "ratio": "any",
    "how the daemon ended": "any",
    "note": "any",
}
NOTHING = "-"
AIM = 2.0  # times their quiet p99 that honest senders may wait next to hostile ones


def make_table(outcomes: Sequence[Outcome], note: str) -> Table:
    """Return the table."""
    return Table("Chaos", note, COLUMNS, [make_row(outcome) for outcome in outcomes])


def tell_aim(outcomes: Sequence[Outcome]) -> str:
    """Say next to which hostile clients honest ones wait as little as is aimed for, and next to which not."""
    hostile = {each.name: each.ratio for each in outcomes if each.name in ATTACKS and each.name != CONTROL}
    kept = [name for name, ratio in hostile.items() if ratio is not None and ratio <= AIM]
    missed = [f"{name} ({ratio:.1f})" for name, ratio in hostile.items() if ratio is not None and ratio > AIM]
    unknown = [name for name, ratio in hostile.items() if ratio is None]
    words = [(f"it is (at most {AIM:.0f})", kept), ("it is not", missed), ("too few waits", unknown)]
    return "; ".join(f"{text}: {', '.join(names)}" for text, names in words if names) or "no such row"


def make_row(outcome: Outcome) -> list[str]:
    return [
        outcome.name,
        outcome.done,
        str(outcome.size),
        f"{outcome.sent:,}",
        f"{outcome.acknowledged:,}",
        f"{outcome.count.lost:,}",
        f"{outcome.count.doubled:,}",
        str(outcome.gone),
        milliseconds(outcome.quiet_s),
        milliseconds(outcome.troubled_s),
        milliseconds(outcome.longest_s),
        NOTHING if outcome.ratio is None else f"{outcome.ratio:.1f}",
        "; ".join(f"{times} x {how}" for how, times in Counter(outcome.endings).items()).replace("|", "/"),
        "; ".join(outcome.notes).replace("|", "/") or NOTHING,
    ]


def milliseconds(seconds: float | None) -> str:
    return NOTHING if seconds is None else f"{seconds * 1e3:.0f} ms"
