"""A page of plain lines on a rich console: styled, wrapped with a hanging indent, in ASCII where necessary."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rich.text import Text

from deepprof.render.plain import printable, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

NARROWEST = 30
PROSE = 100  # longer lines are hard to read on a wide terminal
GAP = 3  # between columns
MIN_NAME_CHARS = 12  # of a column that is cut to what the others leave
QUANTITY = re.compile(r"(?<=\d) (?=(?:%|h|min|[mµn]?s|[KMGTP]?i?B)(?!\w))")  # the blank in 1.9 % and 12.3 ms
GLUE = "\ue000"  # replaces that blank while a line is wrapped: rich also wraps at a non-breaking one
ASCII = str.maketrans(
    {"µ": "u", "·": "-", "\u2013": "-", "\u00d7": "x", "→": "->", "≥": ">=", "…": "...", "›": ">", "█": "#"}
    | {"✖": "X", "▲": "!", "●": "i"}
)


class TextPage:
    """Prints lines; text is data, never markup, and characters that a terminal would interpret are shown as `?`.

    `width` is the usable width, `ascii` whether the console's encoding has only ASCII.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.width = max(console.width, NARROWEST)
        self.ascii = not console.encoding.lower().startswith("utf")

    def line(self, text: str, style: str = "", *, indent: int = 0, hang: int = 0) -> None:
        """Print `text` as prose, `indent` columns in; where it wraps, `hang` columns further."""
        width = min(self.width, PROSE) - indent - hang
        glued = Text(QUANTITY.sub(GLUE, self.show(text)))
        for row, piece in enumerate(glued.wrap(self.console, width)):
            self.draw(piece.plain.replace(GLUE, " ").rstrip(), style, indent + (hang if row else 0))

    def draw(self, text: str, style: str = "", indent: int = 0) -> None:
        """Print `text` as it is, `indent` columns in; it must fit."""
        row = Text(" " * indent)
        row.append(self.show(text), style)
        self.console.print(row, soft_wrap=True)

    def skip(self) -> None:
        """Print an empty line."""
        self.console.print()

    def table(
        self, rows: Sequence[Mapping[str, str]], *, indent: int = 0, gap: int = GAP, left: str | None = None
    ) -> None:
        """Print rows under their headings, aligned right; columns for which the page is too narrow are left out.

        The column `left` aligns left, and is cut to what the other columns leave.
        """
        cells = {name: [self.show(name), *(self.show(row[name]) for row in rows)] for name in rows[0]}
        columns = _fit_columns(cells, self.width - indent, gap, left)
        widths = {name: max(map(len, column)) for name, column in columns.items()}
        padded = [
            [cell.ljust(widths[name]) if name == left else cell.rjust(widths[name]) for cell in column]
            for name, column in columns.items()
        ]
        for number, row in enumerate(zip(*padded, strict=True)):
            self.draw((" " * gap).join(row).rstrip(), "" if number else "dim", indent)

    def columns(self, cells: Sequence[tuple[str, str]], *, indent: int = 0) -> None:
        """Print labels over their values where the width allows it, otherwise one pair a line."""
        width = sum(max(map(len, pair)) for pair in cells) + GAP * (len(cells) - 1)
        if indent + width <= self.width:
            self.table([dict(cells)], indent=indent)
            return
        longest = max(len(label) for label, _ in cells)
        for label, value in cells:
            self.draw(f"{label:<{longest}}  {value}", "", indent)

    def show(self, text: str) -> str:
        """Return `text` as the console can show it."""
        text = printable(text)
        return text.translate(ASCII).encode("ascii", "replace").decode() if self.ascii else text


def _fit_columns(columns: dict[str, list[str]], room: int, gap: int, left: str | None) -> dict[str, list[str]]:
    """Return the columns that fit side by side, of which `left` is cut to what the others leave."""
    if left is not None:
        others = sum(gap + max(map(len, cells)) for name, cells in columns.items() if name != left)
        columns[left] = [shorten(cell, max(room - others, MIN_NAME_CHARS)) for cell in columns[left]]
    fitting: dict[str, list[str]] = {}
    for name, cells in columns.items():
        width = max(map(len, cells)) + (gap if fitting else 0)
        if width <= room:
            fitting[name] = cells
            room -= width
    return fitting
