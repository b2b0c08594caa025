"""Sections: runs of tiny or equal boxes as one box, so that a person sees a few dozen at a time (Hotline, section 4).

Boxes that can be grouped are siblings: children of one box on one side, in the order of time. All of them are side by
side in one array, in which every level (what a person sees at once) is a section. A round divides all levels that are
too wide at once; sections that are too wide themselves are the levels of the next round.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.metrics.annotation.boxes import BOXES, RECORDED_KINDS
from deepprof.metrics.contexts.frames import number_distinct
from deepprof.metrics.contexts.paths import add_up, measure_depths
from deepprof.metrics.contexts.stacks import expand

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

REGROUPINGS = 6  # rounds that search for runs; then levels are only cut, so that no input makes a level a box deep


class _SiblingBoxes(Struct, frozen=True, eq=False):
    """All boxes that have a parent, siblings side by side; `title` is a number, `row` that of the box."""

    row: Int64s
    title: Int64s
    start: Int64s
    end: Int64s
    busy: Int64s
    events: Int64s

    @property
    def length(self) -> Int64s:
        """How long each box is, in nanoseconds."""
        return self.end - self.start


class _BoxStretches(Struct, frozen=True, eq=False):
    """Stretches of siblings: the place of the `first`, how many, the box around them, and how long it is."""

    first: Int64s
    count: Int64s
    owner: Int64s
    length: Int64s

    def __getitem__(self, wanted: Bools) -> _BoxStretches:
        return _BoxStretches(self.first[wanted], self.count[wanted], self.owner[wanted], self.length[wanted])

    def places(self) -> Int64s:
        """Return the places of all siblings in them, section after section."""
        return expand(self.first, self.first + self.count)


def count_annotations(boxes: pl.DataFrame) -> int:
    """Return how many of the boxes (`BOXES`) are annotations: iterations, stages, layers, sections.

    What was recorded (operators, kernels, calls) is what they represent, and does not count; a section within a section
    neither: it is a page of the outer one.
    """
    kind = boxes["kind"].cast(pl.String)
    pages = (kind == "section") & (kind.gather(boxes["parent"]) == "section").fill_null(value=False)
    return int((~kind.is_in(RECORDED_KINDS) & ~pages).sum())


def group_sections(boxes: pl.DataFrame, tiny_ratio: float = 0.05, most: int = 24) -> pl.DataFrame:
    """Return the boxes (`BOXES`) with sections, so that no box has more than `most` children on one side.

    Where there are more, neighbours become one section that are each shorter than `tiny_ratio` of the box around
    them, or that are called the same and are not all tiny. A level that is all one such run, or has too many runs, is
    cut into nearly equal numbers. All boxes stay; `busy_ns` and `events` of a section are the sums of its children.
    Boxes without a parent are never grouped. Takes O(n log n); raises `ValueError` if `most` is less than 2.
    """
    if most < 2:
        raise ValueError(f"most={most}: sections of less than 2 boxes group nothing")
    siblings, titles, levels = _read_siblings(boxes)
    found: list[pl.DataFrame] = []
    parent = boxes["parent"].cast(pl.Int64).fill_null(-1).to_numpy().copy()
    levels, number = levels[levels.count > most], boxes.height
    while len(levels.first):
        ratio = tiny_ratio if len(found) < REGROUPINGS else None
        sections = _find_sections(siblings, levels, ratio, most)
        numbers = number + np.arange(len(sections.first))
        parent[siblings.row[sections.places()]] = np.repeat(numbers, sections.count)
        found.append(
            _describe(siblings, titles, sections).with_columns(side=boxes["side"].gather(siblings.row[sections.first]))
        )
        number += len(numbers)
        length = (found[-1]["end_ns"] - found[-1]["start_ns"]).to_numpy()
        levels = _BoxStretches(sections.first, sections.count, numbers, length)[sections.count > most]
    return _insert(boxes, parent, pl.concat(found)) if found else boxes


def _read_siblings(boxes: pl.DataFrame) -> tuple[_SiblingBoxes, pl.Series, _BoxStretches]:
    """Return siblings in their order, the titles by number, and the levels that they make."""
    numbers, titles = number_distinct(boxes.select(pl.col("title").fill_null("")))
    whole = boxes.with_columns(row=pl.int_range(pl.len()), title=numbers, side=pl.col("side").to_physical())
    ordered = whole.filter(pl.col("parent").is_not_null()).sort("parent", "side", maintain_order=True)
    parent, side, *columns = (
        ordered[name].cast(pl.Int64).to_numpy()
        for name in ("parent", "side", "row", "title", "start_ns", "end_ns", "busy_ns", "events")
    )
    fresh = np.append(True, (parent[1:] != parent[:-1]) | (side[1:] != side[:-1]))[: len(parent)]
    first = np.flatnonzero(fresh)
    around = parent[first]
    lengths = (boxes["end_ns"] - boxes["start_ns"]).to_numpy()
    levels = _BoxStretches(first, np.diff(first, append=len(parent)), around, lengths[around])
    return _SiblingBoxes(*columns), titles["title"], levels


def _find_sections(siblings: _SiblingBoxes, levels: _BoxStretches, ratio: float | None, most: int) -> _BoxStretches:
    """Return the sections of levels, each of two boxes or more; without a `ratio` levels are only cut."""
    places = levels.places()
    starts = np.cumsum(levels.count) - levels.count
    level = np.repeat(np.arange(len(starts)), levels.count)
    begins = np.ones(len(places), np.bool_)
    if ratio is not None:
        tiny = siblings.length[places] < ratio * levels.length[level]
        begins = _begin_runs(siblings.title[places], tiny, starts)
        runs = np.add.reduceat(begins, starts, dtype=np.int64)
        begins |= (runs == 1)[level]  # one section of all would help no one
    begins = _begin_parts(begins, starts, level, most)
    first = np.flatnonzero(begins)
    owner, count = level[first], np.diff(first, append=len(places))
    return _BoxStretches(places[first], count, levels.owner[owner], levels.length[owner])[count > 1]


def _begin_runs(title: Int64s, tiny: Bools, starts: Int64s) -> Bools:
    """Return which boxes begin a run, of levels that begin at `starts`; a box that is in none is one of its own.

    Boxes of one title of which one is not tiny are a run, before neighbours that are all tiny are.
    """
    fresh = np.zeros(len(title), np.bool_)
    fresh[starts] = True
    same = np.append(False, title[1:] == title[:-1]) & ~fresh
    equal = np.flatnonzero(~same)
    alike = np.logical_or.reduceat(~tiny, equal)[np.cumsum(~same) - 1]
    small = tiny & ~alike
    both = small & np.append(False, small[:-1]) & ~fresh
    begins: Bools = ~(both | (same & alike))
    return begins


def _begin_parts(begins: Bools, starts: Int64s, level: Int64s, most: int) -> Bools:
    """Return which runs begin a part, up to `most` in every level; a level of no more runs has each as a part."""
    number = np.cumsum(begins)
    number = number - number[starts][level]
    runs = np.add.reduceat(begins, starts, dtype=np.int64)
    parts = np.where(runs > most, np.minimum(most, -(-runs // most)), runs)
    part = number * parts[level] // runs[level]
    return np.append(True, part[1:] != part[:-1])  # wide levels have several parts: none begins with the last one's


def _describe(siblings: _SiblingBoxes, titles: pl.Series, sections: _BoxStretches) -> pl.DataFrame:
    """Return the sections as rows of `BOXES`, without number, depth and side."""
    places, begins = sections.places(), np.cumsum(sections.count) - sections.count
    columns = {
        "row": siblings.row[sections.first],
        "parent": sections.owner,
        "start_ns": np.minimum.reduceat(siblings.start[places], begins),
        "end_ns": np.maximum.reduceat(siblings.end[places], begins),
        "busy_ns": np.add.reduceat(siblings.busy[places], begins),
        "events": np.add.reduceat(siblings.events[places], begins),
    }
    kind = pl.lit("section", BOXES["kind"])
    return pl.DataFrame(columns).with_columns(_title(siblings, titles, sections), kind=kind)


def _title(siblings: _SiblingBoxes, titles: pl.Series, sections: _BoxStretches) -> pl.Series:
    """Return what each section is called: by the title that has most of its time, or most boxes where none has any."""
    places, begins = sections.places(), np.cumsum(sections.count) - sections.count
    section = np.repeat(np.arange(len(begins)), sections.count)
    busy = siblings.busy[places]
    weight = np.where((np.add.reduceat(busy, begins) > 0)[section], busy, 1)
    rows = {"section": section, "place": places, "number": siblings.title[places], "weight": weight}
    grouped = pl.DataFrame(rows).group_by("section", "number").agg(pl.sum("weight"), pl.min("place"), boxes=pl.len())
    ordered = grouped.sort("section", "weight", "place", descending=[False, True, False])
    share = pl.first("weight") / pl.sum("weight")
    found = ordered.group_by("section", maintain_order=True).agg(
        pl.first("number"), pl.sum("boxes"), share=share, others=pl.len() - 1
    )
    return found.with_columns(title=titles.gather(found["number"])).select(_write_title()).to_series()


def _write_title() -> pl.Expr:
    """Return a title of `title`, its `share`, how many `others` there are, and `boxes` in all."""
    percent = (100 * pl.col("share") + 0.5).floor().cast(pl.Int64).cast(pl.String)
    share = pl.when(pl.col("share") >= 0.995).then(pl.lit("> 99")).when(pl.col("share") < 0.005).then(pl.lit("< 1"))
    others = pl.format("{} other{}", "others", pl.when(pl.col("others") == 1).then(pl.lit("")).otherwise(pl.lit("s")))
    equal = pl.format("{} × {}", "title", "boxes")
    mixed = pl.format("{} ({} %) and {}", "title", share.otherwise(percent), others)
    return pl.when(pl.col("others") == 0).then(equal).otherwise(mixed).alias("title")


def _insert(boxes: pl.DataFrame, parent: Int64s, sections: pl.DataFrame) -> pl.DataFrame:
    """Return boxes and sections in one table; `parent` numbers of sections follow those of boxes."""
    first = np.append(np.arange(boxes.height), sections["row"].to_numpy())
    parent = np.append(parent, sections["parent"].to_numpy())
    depth = measure_depths(parent)
    place = place_in_preorder(parent, depth, first)
    rows = sections.drop("row", "parent").cast({name: BOXES[name] for name in ("busy_ns", "events", "title")})
    order = np.argsort(place)
    around = np.where(parent >= 0, place[parent], -1)[order]
    numbers = pl.DataFrame({"box": np.arange(len(order)), "parent": around, "depth": depth[order]})
    known = numbers.with_columns(pl.col("parent").replace(-1, None)).cast(
        {name: BOXES[name] for name in numbers.columns}
    )
    return pl.concat([boxes, rows], how="diagonal")[order].with_columns(known.get_columns())


def place_in_preorder(parent: Int64s, depth: Int64s, first: Int64s) -> Int64s:
    """Return the row of every box where parents come before their children, and siblings in the order of `first`."""
    size = add_up(np.ones(len(parent), np.int64), parent, depth)
    order = np.lexsort((first, parent))
    before = np.cumsum(size[order]) - size[order]
    fresh = np.append(True, np.diff(parent[order]) != 0)
    place = np.empty(len(parent), np.int64)
    place[order] = before - before[np.flatnonzero(fresh)][np.cumsum(fresh) - 1]
    place += parent >= 0  # the box around comes first
    jump = parent.copy()
    while (inner := np.flatnonzero(jump >= 0)).size:  # twice as far each time
        place[inner] += place[jump[inner]]
        jump[inner] = jump[jump[inner]]
    return place
