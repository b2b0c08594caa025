"""Shares of answers that are right, and the floors below which `make kernels` fails."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from benchmarks.kernel_names.answers import Answer

__all__ = ["Row", "compare_files", "rate", "rate_literally", "rate_sure"]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the result: shares by names and by time, and the floors that they must reach (0: none)."""

    what: str
    names: float
    time: float
    names_floor: float = 0.0
    time_floor: float = 0.0

    @property
    def fails(self) -> bool:
        """Whether a share is below its floor."""
        return self.names < self.names_floor or self.time < self.time_floor

    def write(self) -> str:
        """Return the line as a row of a table."""
        cells = (_write(self.names, self.names_floor), _write(self.time, self.time_floor))
        return f"| {self.what} | {' | '.join(cells)} |{' below the floor' if self.fails else ''}"


def _write(share: float, floor: float) -> str:
    return f"{100 * share:.2f} %" + (f" (≥ {100 * floor:.0f})" if floor else "")


def rate(what: str, answers: Iterable[Answer], category: tuple[float, float], typed: tuple[float, float]) -> list[Row]:
    """Return the rows for answers: category, then precision and unit of products, with their floors."""
    given = list(answers)
    rows = [Row(f"{what}: category", *_share(given, lambda each: each.category), *category)]
    products = [each for each in given if each.typed is not None]
    return [*rows, Row(f"{what}: precision and unit of products", *_share(products, lambda each: each.typed), *typed)]


def rate_literally(answers: Iterable[Answer]) -> Row:
    """Return the row for categories that are the labels', where these are of names alone; it has no floor."""
    return Row(
        "with operators: category, as names alone are labelled", *_share(list(answers), lambda each: each.literal)
    )


def _share(answers: list[Answer], right: Callable[[Answer], bool | None]) -> tuple[float, float]:
    """Return the share of right answers by names and by time."""
    names, time_ns = (sum(getattr(each, name) for each in answers) for name in ("names", "time_ns"))
    good = [each for each in answers if right(each)]
    return (
        sum(each.names for each in good) / names if names else 1.0,
        sum(each.time_ns for each in good) / time_ns if time_ns else 1.0,
    )


def compare_files(what: str, answers: Iterable[Answer], floors: tuple[float, float]) -> Row:
    """Return the row with the medians over files of the shares of right categories."""
    shares = [_share(own, lambda each: each.category) for own in group_files(answers).values()]
    return Row(what, *(statistics.median(column) for column in zip(*shares, strict=True)), *floors)


def group_files(answers: Iterable[Answer]) -> dict[str, list[Answer]]:
    """Return the answers by file."""
    files = defaultdict(list)
    for answer in answers:
        files[answer.file].append(answer)
    return files


def rate_sure(answers: Iterable[Answer]) -> tuple[Row, list[str]]:
    """Return how much of what the labels are sure of DeepProf is sure of, and the names of which it is wrongly sure."""
    given = list(answers)
    wrong = [each.label.name for each in given if each.sure and not (each.category and each.typed is not False)]
    known = [each for each in given if each.label.sure]
    return Row("sure, of what the labels are sure of", *_share(known, lambda each: each.sure), 0.8), wrong
