"""Tables as Markdown, read back again, and compared: a row must not get worse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Better = Literal["key", "more", "fewer", "same", "about", "any"]
"""What a column is to a reader who compares: `key` names the row, `about` is a count that may differ by one."""

TOLERANCE = 0.005  # of what should be more


@dataclass(frozen=True)
class Table:
    """A section: its title, what it shows, its columns, and its rows of as many cells."""

    title: str
    note: str
    columns: dict[str, Better]
    rows: list[list[str]]

    def markdown(self) -> str:
        """Return the section."""
        lines = [f"## {self.title}\n", f"{self.note}\n", line(list(self.columns)), "|" + " --- |" * len(self.columns)]
        return "\n".join([*lines, *map(line, self.rows)]) + "\n"

    def by_key(self) -> dict[tuple[str, ...], list[str]]:
        """Return the rows by the cells that name them."""
        keys = [i for i, better in enumerate(self.columns.values()) if better == "key"]
        return {tuple(row[i] for i in keys): row for row in self.rows}


def line(cells: list[str]) -> str:
    """Return one line of a table."""
    return "| " + " | ".join(cells) + " |"


def read_rows(document: str, title: str) -> list[list[str]]:
    """Return the rows of the table under a title, without its head."""
    section = document.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = [text.strip("| ").split(" | ") for text in section.splitlines() if text.startswith("|")]
    return lines[2:]


def worse(now: Table, document: str) -> Iterator[str]:
    """Yield what got worse since the document was written."""
    before = Table(now.title, now.note, now.columns, read_rows(document, now.title)).by_key()
    after = now.by_key()
    if set(before) != set(after):
        yield f"{now.title}: other rows: {sorted(set(before) ^ set(after))}"
    for key in before.keys() & after.keys():
        for column, old, new in zip(now.columns.items(), before[key], after[key], strict=True):
            if is_worse(column[1], old, new):
                yield f"{now.title}, {', '.join(key)}: {column[0]} was {old} and is {new}"


def is_worse(better: Better, old: str, new: str) -> bool:
    """Return whether a cell is worse than it was; a figure where there was none is not."""
    if better in ("key", "any") or old == new:
        return False
    if better == "same" or "-" in (old, new):
        return better == "same" or new == "-"
    change = float(new) - float(old)
    return {"more": change < -TOLERANCE, "fewer": change > 0, "about": abs(change) > 1}[better]
