"""Where the time goes, as a table with bars: for an iteration, or for a whole device where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepprof.render.units import format_duration, format_ratio
from deepprof.render.wording import GPU_PARTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deepprof.render.page import TextPage

__all__ = ["print_breakdown"]

SMALL = 0.005  # of the time: smaller parts share a line
OTHERS = "other parts"
WIDEST = 30  # columns of a bar
AROUND = 17  # columns: the indent, the share, and what separates them
BAR, ASCII_BAR = "█", "#"


def print_breakdown(
    title: str, parts_ns: Mapping[str, float], page: TextPage, words: Mapping[str, str] = GPU_PARTS
) -> None:
    """Print the parts of a time, the largest first, with bars where the page is wide enough, else in sentences.

    `words` are the names of the parts.
    """
    whole = sum(parts_ns.values())
    if whole <= 0:
        return
    rows = choose_rows(parts_ns, whole, words)
    label, number = max(len(name) for name, _ in rows), max(len(format_duration(ns)) for _, ns in rows)
    page.skip()
    page.line(title, "dim", indent=2)
    room = page.width - label - number - AROUND
    for name, ns in rows:
        if room < 0:
            page.line(f"{name}: {format_duration(ns)}, {format_ratio(ns / whole)}", indent=4, hang=2)
            continue
        text = f"{name:<{label}}  {format_duration(ns):>{number}}  {format_ratio(ns / whole):>7}"
        width = round(min(WIDEST, max(0, room)) * ns / whole)
        page.draw(f"{text}  {(ASCII_BAR if page.ascii else BAR) * width}".rstrip(), indent=4)


def choose_rows(parts_ns: Mapping[str, float], whole: float, words: Mapping[str, str]) -> list[tuple[str, float]]:
    """Return the named parts, the largest first, small ones as one."""
    ordered = sorted(parts_ns.items(), key=lambda part: -part[1])
    large = [(words[name], ns) for name, ns in ordered if ns >= SMALL * whole]
    rest = whole - sum(ns for _, ns in large)
    return [*large, (OTHERS, rest)] if round(rest) > 0 else large
