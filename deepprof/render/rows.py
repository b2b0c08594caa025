"""Rows with a label and right-aligned values, on any width: labels are cut, or on a narrow page have their own line."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from msgspec import Struct

from deepprof.render.plain import CUT, shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deepprof.render.page import TextPage

GAP = 2
INDENT = 2
MAX_LABEL_CHARS = 72  # of a label on a wide page
MIN_LABEL_CHARS = 24  # with less than this a name is hard to recognise: the values go below it
ARROW = " → "
ROUNDS = 3  # of cutting labels that look alike: those of one group may come to look like those of another
KEPT, LEAD = 4, 3  # characters kept at the start of a label, and before its difference from another


class TextRow(Struct, frozen=True):
    """A label and its values; `became` is what the label turned into, shown after an arrow, "" for nothing."""

    label: str
    values: tuple[str, ...]
    style: str = ""
    became: str = ""


def draw_rows(
    page: TextPage,
    header: Sequence[str],
    rows: Sequence[TextRow],
    *,
    indent: int = INDENT,
    min_label_chars: int = MIN_LABEL_CHARS,
) -> None:
    """Draw the rows under the header of their values, `indent` columns in.

    Where fewer than `min_label_chars` are left for longer labels, values go below them.
    """
    cells = [tuple(map(page.show, row.values)) for row in rows]
    widths = _measure_columns(page, header, rows)
    longest = max(len(_label(page, row, MAX_LABEL_CHARS)) for row in rows)
    free = page.width - indent - sum(width + GAP for width in widths)
    beside = free >= min(min_label_chars, longest)
    room = min(free, longest) if beside else page.width - indent
    heads = _align(header, widths)
    page.draw((" " * room + heads if beside else heads[GAP:]).rstrip(), "dim", indent)
    for row, name, values in zip(rows, _cut_labels(page, rows, room), cells, strict=True):
        numbers = _align(values, widths)
        if beside:
            page.draw(f"{name:<{room}}{numbers}".rstrip(), row.style, indent)
        else:
            page.draw(name, row.style, indent)
            page.draw(numbers[GAP:].rstrip(), row.style, indent)


def _measure_columns(page: TextPage, header: Sequence[str], rows: Sequence[TextRow]) -> list[int]:
    cells = [tuple(map(page.show, row.values)) for row in rows]
    return [max(map(len, column)) for column in zip(header, *cells, strict=True)]


def fit_columns(page: TextPage, header: Sequence[str], rows: Sequence[TextRow], *, indent: int = INDENT) -> int:
    """Return how many of the columns fit on the page side by side, without a label; at least one."""
    ends = accumulate(width + GAP for width in _measure_columns(page, header, rows))
    return max(1, sum(end - GAP <= page.width - indent for end in ends))


def _cut_labels(page: TextPage, rows: Sequence[TextRow], room: int) -> list[str]:
    """Return the rows' labels in `room` columns; different ones that would look alike keep the part that differs."""
    plain = iter(cut_names([page.show(row.label) for row in rows if not row.became], room))
    return [_label(page, row, room) if row.became else next(plain) for row in rows]


def cut_names(names: Sequence[str], room: int) -> list[str]:
    """Return names in `room` characters; different ones that would look alike keep the part that differs."""
    cut = [shorten(name, room) for name in names]
    numbers = range(len(names))
    for _ in range(ROUNDS):
        for alike in _find_alike(numbers, names, cut):
            _cut_apart(alike, names, cut, room)
    for alike in _find_alike(numbers, names, cut):
        for place, number in enumerate(alike, 1):
            cut[number] = cut[number][: room - len(f"~{place}")] + f"~{place}"
    return cut


def _find_alike(numbers: Sequence[int], names: Sequence[str], cut: Sequence[str]) -> list[list[int]]:
    """Return the groups of rows with one text but several names."""
    texts: dict[str, list[int]] = {}
    for number in numbers:
        texts.setdefault(cut[number], []).append(number)
    return [alike for alike in texts.values() if len({names[number] for number in alike}) > 1]


def _cut_apart(alike: Sequence[int], names: Sequence[str], cut: list[str], room: int) -> None:
    """Cut the names of some rows so that the first place where they differ stays, and their ends."""
    first = _count_common([names[number] for number in alike])
    for number in alike:
        name = names[number]
        cut[number] = _shorten_around(name, first, room) if len(name) > room else name
    for still in _find_alike(alike, names, cut):
        if len(still) < len(alike):
            _cut_apart(still, names, cut, room)


def _shorten_around(text: str, first: int, room: int) -> str:
    """Return `text` in `room` columns, with the part from `first` on, its end, and as much of its start as fits."""
    tail = shorten(text[max(0, first - LEAD) :], max(0, room - len(CUT) - KEPT))
    return text[: room - len(CUT) - len(tail)] + CUT + tail


def _count_common(texts: Sequence[str]) -> int:
    return next((at for at, letters in enumerate(zip(*texts, strict=False)) if len(set(letters)) > 1), 0)


def _label(page: TextPage, row: TextRow, room: int) -> str:
    """Return a row's label in `room` columns; of two sides each gets half, or what the other one leaves."""
    old, new, arrow = page.show(row.label), page.show(row.became), page.show(ARROW)
    if not new:
        return shorten(old, room)
    share = room - len(arrow)
    first = min(len(old), max(share // 2, share - len(new)))
    return shorten(old, first) + arrow + shorten(new, share - first)


def _align(values: Sequence[str], widths: Sequence[int]) -> str:
    return "".join(" " * GAP + value.rjust(width) for value, width in zip(values, widths, strict=True))
