"""Rows with a label and right-aligned values, on any width: the label is cut, and on a narrow page stands alone."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from deepprof.render.plain import shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deepprof.render.page import Page

__all__ = ["Row", "draw_rows", "fit_columns"]

GAP = 2
INDENT = 2
LONGEST = 72  # of a label on a wide page
SHORTEST = 24  # with less than this a name says little: the values go below it
ARROW = " → "


@dataclass(frozen=True, slots=True)
class Row:
    """A label and its values; `became` is what the label turned into, behind an arrow, "" for nothing."""

    label: str
    values: tuple[str, ...]
    style: str = ""
    became: str = ""


def draw_rows(page: Page, header: Sequence[str], rows: Sequence[Row], *, indent: int = INDENT) -> None:
    """Draw the rows under the header of their values, `indent` columns in."""
    cells = [tuple(map(page.show, row.values)) for row in rows]
    widths = measure_columns(page, header, rows)
    longest = max(len(label(page, row, LONGEST)) for row in rows)
    free = page.width - indent - sum(width + GAP for width in widths)
    beside = free >= min(SHORTEST, longest)
    room = min(free, longest) if beside else page.width - indent
    page.draw(" " * room + align(header, widths) if beside else align(header, widths)[GAP:], "dim", indent)
    for row, values in zip(rows, cells, strict=True):
        name, numbers = label(page, row, room), align(values, widths)
        if beside:
            page.draw(f"{name:<{room}}{numbers}", row.style, indent)
        else:
            page.draw(name, row.style, indent)
            page.draw(numbers[GAP:], row.style, indent)


def measure_columns(page: Page, header: Sequence[str], rows: Sequence[Row]) -> list[int]:
    """Return how wide each column of values is."""
    cells = [tuple(map(page.show, row.values)) for row in rows]
    return [max(map(len, column)) for column in zip(header, *cells, strict=True)]


def fit_columns(page: Page, header: Sequence[str], rows: Sequence[Row], *, indent: int = INDENT) -> int:
    """Return how many of the columns fit on the page side by side, without a label; at least one."""
    ends = accumulate(width + GAP for width in measure_columns(page, header, rows))
    return max(1, sum(end - GAP <= page.width - indent for end in ends))


def label(page: Page, row: Row, room: int) -> str:
    """Return a row's label in `room` columns; of two sides each gets half, or what the other one leaves."""
    old, new, arrow = page.show(row.label), page.show(row.became), page.show(ARROW)
    if not new:
        return shorten(old, room)
    share = room - len(arrow)
    first = min(len(old), max(share // 2, share - len(new)))
    return shorten(old, first) + arrow + shorten(new, share - first)


def align(values: Sequence[str], widths: Sequence[int]) -> str:
    """Return the values in their columns."""
    return "".join(" " * GAP + value.rjust(width) for value, width in zip(values, widths, strict=True))
