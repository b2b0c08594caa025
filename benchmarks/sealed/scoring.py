"""What a block states: shares with their 95 % intervals, and whether one is below its floor by more than luck."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.accuracy.tables import Better, Table
from benchmarks.cases.case import SURE

__all__ = ["CEILINGS", "FLOORS", "Answer", "missed", "passes", "summary", "wilson"]

NORMAL = 1.96  # standard errors in a 95 % interval
LUCK = 0.00135  # as likely as three standard errors of a normal distribution on one side
FLOORS = {"right or acceptable": 0.95}
CEILINGS = {"wrong at ≥ 0.8": 0.005, "false loops": 0.005}
COLUMNS: dict[str, Better] = {
    "kind": "key",
    "jobs": "same",
    "right": "any",
    "acceptable": "any",
    "abstained": "any",
    "wrong": "any",
    "right or acceptable": "any",
    f"wrong at ≥ {SURE}": "any",
    "iterations right": "any",
}


@dataclass(frozen=True)
class Answer:
    """What was stated of a job, and what should have been; `label` is None for a single pass.

    `loops` is how many loops were found, `counted` whether the iterations are right.
    """

    kind: str
    label: str | None
    also: tuple[str, ...]
    headline: str
    confidence: float
    silent: bool
    loops: int
    counted: bool

    @property
    def right(self) -> bool:
        """Whether the headline is the best one."""
        return self.headline == self.label

    @property
    def acceptable(self) -> bool:
        """Whether it is another true one."""
        return not self.right and self.headline in self.also

    @property
    def abstains(self) -> bool:
        """Whether nothing is stated where there is something."""
        return self.silent and not self.right and not self.acceptable

    @property
    def wrong(self) -> bool:
        """Whether something else is blamed."""
        return not (self.right or self.acceptable or self.silent)


def wilson(hits: int, number: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share."""
    if not number:
        return 0.0, 1.0
    share, square = hits / number, NORMAL**2 / number
    middle = share + square / 2
    half = NORMAL * math.sqrt(share * (1 - share) / number + square / (4 * number))
    return max(0.0, (middle - half) / (1 + square)), min(1.0, (middle + half) / (1 + square))


def say(hits: int, number: int) -> str:
    """Return a share with its interval."""
    low, high = wilson(hits, number)
    return f"{100 * hits / max(1, number):.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def summary(answers: Sequence[Answer]) -> Table:
    """Return one row per kind of job and one for all; single passes are their own table."""
    judged = [each for each in answers if each.label is not None]
    kinds = sorted({each.kind for each in judged})
    rows = [count(kind, [each for each in judged if each.kind == kind]) for kind in kinds]
    return Table("Jobs", "Shares with their 95 % intervals (Wilson).", COLUMNS, [*rows, count("all", judged)])


def count(kind: str, answers: Sequence[Answer]) -> list[str]:
    """Return the cells of one row."""
    right, acceptable = sum(a.right for a in answers), sum(a.acceptable for a in answers)
    wrong, sure = [a for a in answers if a.wrong], sum(a.wrong and a.confidence >= SURE for a in answers)
    counts = (len(answers), right, acceptable, sum(a.abstains for a in answers), len(wrong))
    hits = (right + acceptable, sure, sum(a.counted for a in answers))
    return [kind, *map(str, counts), *(say(each, len(answers)) for each in hits)]


def passes(answers: Sequence[Answer]) -> Table:
    """Return the table of single passes: in how many of them a loop was found, which is one too many."""
    columns: dict[str, Better] = {"kind": "key", "passes": "same", "false loops": "any"}
    single = [each for each in answers if each.label is None]
    kinds = sorted({each.kind for each in single})
    groups = [*((kind, [a for a in single if a.kind == kind]) for kind in kinds), ("all", single)]
    rows = [[kind, str(len(some)), f"{sum(a.loops > 0 for a in some)}, {false(some)}"] for kind, some in groups]
    return Table("Single passes", "No iteration repeats in them.", columns, rows)


def false(answers: Sequence[Answer]) -> str:
    """Return the share of false loops."""
    return say(sum(a.loops > 0 for a in answers), len(answers))


def missed(answers: Sequence[Answer]) -> list[str]:
    """Return which floors and ceilings are missed by more than luck explains."""
    judged, single = ([a for a in answers if (a.label is None) is alone] for alone in (False, True))
    shares = {
        "right or acceptable": (sum(a.right or a.acceptable for a in judged), len(judged)),
        "wrong at ≥ 0.8": (sum(a.wrong and a.confidence >= SURE for a in judged), len(judged)),
        "false loops": (sum(a.loops > 0 for a in single), len(single)),
    }
    return list(compare(shares, FLOORS, CEILINGS))


def chance(misses: int, number: int, share: float) -> float:
    """Return how likely this many misses or more are where each of `number` is one with the chance `share`."""
    fewer = sum(math.comb(number, k) * share**k * (1 - share) ** (number - k) for k in range(misses))
    return max(0.0, 1 - fewer)


def compare(
    shares: Mapping[str, tuple[int, int]], floors: Mapping[str, float], ceilings: Mapping[str, float]
) -> Iterable[str]:
    """Yield a line per share that luck cannot explain; what was not measured misses nothing."""
    for name, limit in {**floors, **ceilings}.items():
        hits, number = shares[name]
        above = name in ceilings
        misses, most = (hits, limit) if above else (number - hits, 1 - limit)
        if number and chance(misses, number, most) < LUCK:
            bound = "at most" if above else "at least"
            yield f"{name}: {say(hits, number)}, and {bound} {100 * limit:g} % is asked for"
