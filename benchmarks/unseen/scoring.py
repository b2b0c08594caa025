"""The tables of a block: shares with their 95 % intervals, for every family and kind of recordings and for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.accuracy.tables import Better, Table
from benchmarks.cases.case import SURE
from benchmarks.sealed.scoring import compare, say
from benchmarks.unseen.answering import Answer
from benchmarks.unseen.judging import ACCEPTABLE, PLAINLY_RIGHT, SILENT, VERDICTS, WRONG

__all__ = ["missed", "tables"]

FLOORS = {"plainly right": 0.9, "right or acceptable": 0.98}
CEILINGS = {"wrong at ≥ 0.8": 0.005, "false loops": 3 / 1_800}

COLUMNS: dict[str, Better] = {
    "kind": "key",
    "recordings": "same",
    **dict.fromkeys((PLAINLY_RIGHT, ACCEPTABLE, SILENT, WRONG), "any"),
    "plainly right (95 %)": "any",
    "right or acceptable (95 %)": "any",
    f"wrong at ≥ {SURE}": "any",
    "false loops": "any",
    "inner loops": "any",
    "missed loops": "any",
    "iterations right": "any",
}
NOTE = "Shares with their 95 % intervals (Wilson)."


def tables(answers: Sequence[Answer]) -> list[Table]:
    """Return a table by what was drawn, and one by what the recording is."""
    return [
        make_table("Drawn", answers, lambda each: each.family),
        make_table("Kinds of recordings", answers, lambda each: each.kind),
    ]


def make_table(title: str, answers: Sequence[Answer], key: Callable[[Answer], str]) -> Table:
    """Return a table with a row per group and one for all."""
    groups = dict.fromkeys(key(each) for each in answers)
    rows = [count(group, [each for each in answers if key(each) == group]) for group in groups]
    return Table(title, NOTE, COLUMNS, [*rows, count("all", answers)])


def count(name: str, answers: Sequence[Answer]) -> list[str]:
    """Return the cells of one row."""
    numbers = {verdict: sum(each.verdict == verdict for each in answers) for verdict in VERDICTS}
    sure = sum(each.verdict == WRONG and each.confidence >= SURE for each in answers)
    right = numbers[PLAINLY_RIGHT], numbers[PLAINLY_RIGHT] + numbers[ACCEPTABLE], sure
    shares = [say(hits, len(answers)) for hits in right]
    return [name, str(len(answers)), *map(str, numbers.values()), *shares, *count_loops(answers)]


def count_loops(answers: Sequence[Answer]) -> list[str]:
    """Return the cells about iterations: each count of those where it could happen."""
    without = [each for each in answers if not each.has_loop]
    looped = [each for each in answers if each.has_loop]
    false, inner = sum(each.loops.false for each in without), sum(each.loops.inner for each in looped)
    missed, counted = sum(each.loops.missed for each in looped), sum(each.loops.counted for each in answers)
    pairs = ((false, without), (inner, looped), (missed, looped), (counted, answers))
    return [f"{hits} of {len(some)}" for hits, some in pairs]


def missed(answers: Sequence[Answer]) -> list[str]:
    """Return which floors and ceilings are missed by more than luck explains."""
    number, without = len(answers), [each for each in answers if not each.has_loop]
    shares = {
        "plainly right": (sum(each.verdict == PLAINLY_RIGHT for each in answers), number),
        "right or acceptable": (sum(each.verdict in (PLAINLY_RIGHT, ACCEPTABLE) for each in answers), number),
        "wrong at ≥ 0.8": (sum(each.verdict == WRONG and each.confidence >= SURE for each in answers), number),
        "false loops": (sum(each.loops.false for each in without), len(without)),
    }
    return list(compare(shares, FLOORS, CEILINGS))
