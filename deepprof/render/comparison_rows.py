"""What the tables of a comparison share: their columns, what is too small for a row, and how many are not shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepprof.plurals import counted
from deepprof.render.units import format_difference, format_duration

if TYPE_CHECKING:
    from deepprof.render.page import TextPage

SMALL = 0.01  # of the iteration: less is not worth its own row
MARKS = {
    "kept": " ",
    "replaced": "~",
    "added": "+",
    "removed": "-",
    "changed": " ",
    "both": " ",
    "new": "+",
    "gone": "-",
}
HEADER = ("A", "B", "difference")


def cells(a_ns: int, b_ns: int) -> tuple[str, str, str]:
    """Return the cells of two times and their difference."""
    return format_duration(a_ns), format_duration(b_ns), format_difference(b_ns - a_ns)


def print_hidden(hidden: int, page: TextPage) -> None:
    """Print how many rows are not shown."""
    if hidden > 0:
        page.line(f"and {counted(hidden, 'more row')}; --top shows more", "dim", indent=2)
