"""What the device computes in two runs side by side, for people and as JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from deepprof.metrics.kernels.kind_words import CATEGORY_WORDS, NO_TYPE, PRECISION_WORDS, UNIT_WORDS, describe_kind
from deepprof.render.comparison_rows import HEADER, SMALL, cells
from deepprof.render.rows import ARROW, TextRow, draw_rows
from deepprof.render.units import format_ratio
from deepprof.render.wording import Wording
from deepprof.results.comparison_result import LoopPair, WorkChange, WorkInBoth

if TYPE_CHECKING:
    from deepprof.render.page import TextPage

REPLACED = 0.05  # of the time in the other run: with less a kind is gone, or new


class _WorkRow(msgspec.Struct, frozen=True, kw_only=True):
    """The kernels of one kind in the mean iteration; null: no product, or unknown."""

    category: str
    precision: str | None
    unit: str | None
    a_ns: int
    b_ns: int
    difference_ns: int


class WorkBlock(msgspec.Struct, frozen=True, kw_only=True):
    """What the device computes in both runs."""

    a_matrix_unit_ratio: float | None
    b_matrix_unit_ratio: float | None
    rows: list[_WorkRow]


def describe_work(work: WorkInBoth) -> WorkBlock:
    """Return the block of what the device computes."""
    ratios = [None if each is None else round(each, 6) for each in (work.a_matrix_unit_ratio, work.b_matrix_unit_ratio)]
    return WorkBlock(
        a_matrix_unit_ratio=ratios[0],
        b_matrix_unit_ratio=ratios[1],
        rows=[msgspec.convert(row, _WorkRow, from_attributes=True) for row in work.rows],
    )


class _ShownChange(Struct, frozen=True):
    """A row of the text: what is computed, what became of it ("" for the same), and its time in both runs."""

    label: str
    became: str
    a_ns: int
    b_ns: int

    @property
    def change_ns(self) -> int:
        """How much its time differs, either way."""
        return abs(self.b_ns - self.a_ns)


def print_work(pair: LoopPair, page: TextPage, words: Wording) -> None:
    """Print the kinds whose time changed; all others together, so that the rows add up to the part `compute`."""
    rows = sorted(_list_changes(pair), key=lambda row: -row.change_ns)
    least = SMALL * max(pair.a_mean_ns, pair.b_mean_ns)
    large = [row for row in rows if row.change_ns >= least]
    if not large:
        return
    page.skip()
    page.line(f"What the {'operators compute' if words.on_cpu else 'device computes'}, per mean iteration", "bold")
    shown = [TextRow(row.label, cells(row.a_ns, row.b_ns), became=row.became) for row in large]
    rest = _add_up(rows[len(large) :])
    shown += [TextRow("all other kinds", cells(*rest))] if any(rest) else []
    draw_rows(page, HEADER, [*shown, TextRow("together", cells(*_add_up(rows)), "bold")])
    _print_units(pair.work, page)


def _add_up(rows: Sequence[_ShownChange]) -> tuple[int, int]:
    return sum(row.a_ns for row in rows), sum(row.b_ns for row in rows)


def _print_units(work: WorkInBoth, page: TextPage) -> None:
    """Print the share of products on matrix units, where it changed."""
    a, b = (format_ratio(ratio) for ratio in (work.a_matrix_unit_ratio, work.b_matrix_unit_ratio))
    if a != b:
        page.line(f"matrix units have {a}{ARROW}{b} of the time of products", "dim", indent=2, hang=2)


def _list_changes(pair: LoopPair) -> Iterator[_ShownChange]:
    """Yield the kinds without exposed communication, which is its own part; what was replaced is one row."""
    kinds: dict[str, list[WorkChange]] = defaultdict(list)
    for row in pair.work.rows:
        kinds[row.category].append(row)
    exposed = next((part for part in pair.parts if part.name == "exposed_communication_ns"), None)
    for category, rows in kinds.items():
        if category == "communication" and exposed is not None:
            (row,) = rows
            yield _show(replace(row, a_ns=row.a_ns - exposed.a_ns, b_ns=row.b_ns - exposed.b_ns))
        else:
            yield from _join_replaced(rows)


def _join_replaced(rows: Sequence[WorkChange]) -> Iterator[_ShownChange]:
    """Yield the kinds of a category; where one is gone and another is new, both as one row."""
    gone = [row for row in rows if row.b_ns < REPLACED * row.a_ns]
    new = [row for row in rows if row.a_ns < REPLACED * row.b_ns]
    joined = [gone[0], new[0]] if len(gone) == len(new) == 1 else []
    if joined:
        old, other = _describe_both(*joined)
        yield _ShownChange(old, other, sum(row.a_ns for row in joined), sum(row.b_ns for row in joined))
    yield from (_show(row) for row in rows if row not in joined)


def _show(row: WorkChange) -> _ShownChange:
    return _ShownChange(describe_kind(row.category, row.precision, row.unit), "", row.a_ns, row.b_ns)


def _describe_both(old: WorkChange, new: WorkChange) -> tuple[str, str]:
    """Return what was replaced, and by what: the types of factors, where these are the same the units."""
    if old.precision != new.precision:
        before, after = (PRECISION_WORDS[row.precision] if row.precision else NO_TYPE for row in (old, new))
        return f"{CATEGORY_WORDS[old.category]}, {before}", after
    return describe_kind(old.category, old.precision, old.unit), UNIT_WORDS[new.unit] if new.unit else "units not known"
