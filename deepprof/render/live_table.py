"""A table of plain lines for a terminal: columns that fit side by side, the least important left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

Row = TypeVar("Row")
Line = tuple[str, str]
"""A line and its style."""

GAP = 2
INDENT = 2


class LiveColumn(Struct, Generic[Row], frozen=True):
    """A column; where the width is too small, the highest `rank` is left out first. Words align left, figures right."""

    title: str
    rank: int
    show: Callable[[Row], str]
    left: bool = False

    def pad(self, text: str, width: int) -> str:
        """Return `text` in `width` columns."""
        return text.ljust(width) if self.left else text.rjust(width)


def draw_table(
    rows: Sequence[Row], columns: Sequence[LiveColumn[Row]], width: int, style_of: Callable[[Row], str]
) -> Iterator[Line]:
    """Yield a heading and the rows under it; nothing for no rows."""
    if not rows:
        return
    shown = _fit_columns(rows, columns, width - INDENT)
    cells = [[column.show(row) for column in shown] for row in rows]
    titles = [column.title for column in shown]
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    for texts, style in [(titles, "dim"), *zip(cells, map(style_of, rows), strict=True)]:
        padded = (column.pad(text, size) for column, text, size in zip(shown, texts, widths, strict=True))
        yield (" " * INDENT + (" " * GAP).join(padded)).rstrip(), style


def _fit_columns(rows: Sequence[Row], columns: Sequence[LiveColumn[Row]], width: int) -> list[LiveColumn[Row]]:
    """Return the columns that fit side by side; the first ones stay whatever the width."""
    left = list(columns)
    sizes = {column.title: max(len(column.title), *(len(column.show(row)) for row in rows)) for column in left}
    while _measure(left, sizes) > width and any(column.rank for column in left):
        left.remove(max(left, key=lambda column: column.rank))
    return left


def _measure(columns: Sequence[LiveColumn[Row]], sizes: dict[str, int]) -> int:
    """Return how wide a table of `columns` is."""
    return sum(sizes[column.title] for column in columns) + GAP * (len(columns) - 1)


def cut(text: str, width: int) -> str:
    """Return `text` cut to `width` columns; names chosen by others may make it longer."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"
