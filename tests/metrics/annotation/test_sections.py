"""Sections: examples by hand, and a recursive grouping of lists that must come out the same."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.metrics.annotation.boxes import BOXES
from deepprof.metrics.annotation.sections import REGROUPINGS, count_annotations, group_sections

Node = dict[str, object]


def node(title: str, start: int, end: int, *children: Node, **more: object) -> Node:
    """Return a box and those in it; a box without any is a kernel."""
    inside = {"children": list(children), "kind": "layer" if children else "kernel"}
    sums = {
        "busy": sum(child["busy"] for child in children) if children else end - start,
        "events": sum(child["events"] for child in children) if children else 1,
    }
    return {"title": title, "start": start, "end": end, "side": "device"} | inside | sums | more


def chain(*parts: tuple[str, int], **more: object) -> list[Node]:
    """Return boxes one after the other, each with its title and how long it is."""
    found, now = list[Node](), 0
    for title, length in parts:
        found.append(node(title, now, now + length, **more))
        now += length
    return found


def around(*children: Node, title: str = "all") -> Node:
    return node(title, min(child["start"] for child in children), max(child["end"] for child in children), *children)


def rows_of(nodes: list[Node], parent: int | None = None, depth: int = 0, count: int = 0) -> Iterator[list[object]]:
    """Yield the rows of a table, from number `count` on."""
    for each in nodes:
        facts = [each[name] for name in ("side", "kind", "title", "start", "end", "busy", "events")]
        yield [count, parent, depth, *facts, None, None, None]  # no their own names, no line
        inner = list(rows_of(each["children"], count, depth + 1, count + 1))
        yield from inner
        count += 1 + len(inner)


def table(*nodes: Node) -> pl.DataFrame:
    return pl.DataFrame(list(rows_of(list(nodes))), schema=BOXES, orient="row")


def outline(boxes: pl.DataFrame) -> list[str]:
    """Return titles, each indented by its depth."""
    return ["  " * depth + title for depth, title in boxes.select("depth", "title").iter_rows()]


def group(each: Node, ratio: float, most: int) -> Node:
    """Return a box with sections in it, by recursion over lists."""
    inner = [group(child, ratio, most) for child in each["children"]]
    of_sides = [[child for child in inner if child["side"] == side] for side in ("host", "device")]
    grouped = [divide(side, each["end"] - each["start"], ratio, most, 0) for side in of_sides]
    place = {id(child): number for number, child in enumerate(inner)}
    children = sorted([*grouped[0], *grouped[1]], key=lambda child: place[id(first_in(child))])
    return each | {"children": children}


def first_in(each: Node) -> Node:
    """Return the first box in a section of any depth, or the box itself."""
    return first_in(each["children"][0]) if each["kind"] == "section" else each


def divide(children: list[Node], length: int, ratio: float, most: int, tried: int) -> list[Node]:
    if len(children) <= most:
        return children
    runs = find_runs(children, length, ratio) if tried < REGROUPINGS else [[child] for child in children]
    if len(runs) == 1:
        runs = [[child] for child in children]
    if len(runs) > most:
        runs = cut(runs, min(most, -(-len(runs) // most)))
    return [run[0] if len(run) == 1 else wrap(run, ratio, most, tried + 1) for run in runs]


def find_runs(children: list[Node], length: int, ratio: float) -> list[list[Node]]:
    def is_tiny(child: Node) -> bool:
        return child["end"] - child["start"] < ratio * length

    runs: list[tuple[bool, list[Node]]] = []  # with whether others that are tiny may follow
    for _, equal in groupby(children, key=lambda child: child["title"]):
        same = list(equal)
        if len(same) > 1 and not all(map(is_tiny, same)):
            runs.append((False, same))
            continue
        for child in same:
            if is_tiny(child) and runs and runs[-1][0]:
                runs[-1][1].append(child)
            else:
                runs.append((is_tiny(child), [child]))
    return [run for _, run in runs]


def cut(runs: list[list[Node]], parts: int) -> list[list[Node]]:
    """Return the boxes of runs in nearly equal numbers of runs."""
    numbered = groupby(enumerate(runs), key=lambda pair: pair[0] * parts // len(runs))
    return [[child for _, run in part for child in run] for _, part in numbered]


def wrap(children: list[Node], ratio: float, most: int, tried: int) -> Node:
    """Return a section."""
    whole = around(*children) | {"kind": "section", "title": name(children), "side": children[0]["side"]}
    return whole | {"children": divide(children, whole["end"] - whole["start"], ratio, most, tried)}


def name(children: list[Node]) -> str:
    times = dict[str, int]()
    weighed = any(child["busy"] for child in children)
    for child in children:
        times[child["title"]] = times.get(child["title"], 0) + (child["busy"] if weighed else 1)
    first = max(times, key=lambda title: times[title])  # the first of several
    share = times[first] / sum(times.values())
    percent = "> 99" if share >= 0.995 else "< 1" if share < 0.005 else str(int(100 * share + 0.5))
    others = len(times) - 1
    if not others:
        return f"{first} × {len(children)}"
    return f"{first} ({percent} %) and {others} other{'s' if others > 1 else ''}"


def check(boxes: pl.DataFrame, grouped: pl.DataFrame, most: int) -> None:
    """Check all that contains of any table with sections."""
    assert grouped.schema == BOXES
    rows = grouped.rows(named=True)
    assert [row["box"] for row in rows] == list(range(len(rows)))
    for row in rows:
        parent = None if row["parent"] is None else rows[row["parent"]]
        assert row["depth"] == (0 if parent is None else parent["depth"] + 1)
        assert parent is None or row["parent"] < row["box"]
    for before, after in pairwise(rows):  # what follows a box is its child, or a sibling of what is around it
        assert after["depth"] <= before["depth"] + 1
    children = grouped.filter(pl.col("parent").is_not_null())
    levels = children.group_by("parent", "side").len()
    assert levels.filter(pl.col("len") > most).is_empty()
    sums = children.group_by("parent").agg(
        pl.sum("busy_ns", "events"),
        pl.min("start_ns"),
        pl.max("end_ns"),
        boxes=pl.len(),
        sides=pl.col("side").n_unique(),
    )
    sections = grouped.filter(pl.col("kind") == "section").join(sums, left_on="box", right_on="parent", how="left")
    for column in ("busy_ns", "events", "start_ns", "end_ns"):
        assert sections[column].to_list() == sections[f"{column}_right"].to_list()
    assert (sections["boxes"] > 1).all()
    assert (sections["sides"] == 1).all()
    kept, facts = grouped.filter(pl.col("kind") != "section"), pl.exclude("box", "parent", "depth")
    assert sorted(kept.select(facts).rows()) == sorted(boxes.select(facts).rows())


@st.composite
def trees(draw: st.DrawFn, deep: int = 2) -> Node:
    """Draw a box with others in it, on both sides, in the order of their starts; some use no time."""
    shape = st.tuples(
        st.sampled_from("aab"), st.integers(0, 3) | st.integers(0, 100), st.sampled_from(["host", "device"])
    )
    drawn = draw(st.lists(shape, max_size=40))
    spread = draw(st.sampled_from([1, 2]))  # with 1 they overlap
    children, now = list[Node](), 0
    for title, length, side in drawn:
        if deep and draw(st.integers(0, 9)) == 0:
            children.append(draw(trees(deep - 1)) | {"start": now, "end": now + length, "side": side})
        else:
            children.append(node(title, now, now + length, side=side))
        now += length // 2 * spread
    last = node(draw(st.sampled_from("ab")), now, now + draw(st.integers(0, 100)))
    return around(*children, last) | {"side": draw(st.sampled_from(["host", "device"]))}


@given(st.lists(trees(), max_size=2), st.sampled_from([0.0, 0.02, 0.05, 0.3, 1.0]), st.integers(2, 9))
def test_sections_are_those_that_recursion_finds(nodes: list[Node], ratio: float, most: int) -> None:
    boxes = table(*nodes)
    grouped = group_sections(boxes, ratio, most)
    check(boxes, grouped, most)
    assert grouped.rows() == table(*(group(each, ratio, most) for each in nodes)).rows()
    assert group_sections(grouped, ratio, most).equals(grouped)


def test_neighbours_that_are_tiny_become_a_section_that_is_grouped_by_its_own_length() -> None:
    tiny = chain(*[("a", 3), ("b", 1), ("a", 3)] * 2, ("c", 286))
    assert outline(group_sections(table(around(*tiny)), most=5)) == [
        "all",
        "  a (86 %) and 1 other",
        *("    a", "    b", "    a × 2", "      a", "      a", "    b", "    a"),
        "  c",
    ]


def test_what_is_not_shorter_than_the_ratio_is_not_tiny() -> None:
    boxes = table(around(*chain(("a", 5), ("b", 4), ("c", 4), ("d", 87))))
    assert outline(group_sections(boxes, 0.05, 3))[1:3] == ["  a", "  b (50 %) and 1 other"]
    assert outline(group_sections(boxes, 0.051, 3))[1] == "  a (38 %) and 2 others"


def test_a_level_of_too_many_runs_is_cut_between_them() -> None:
    boxes = table(around(*chain(*[("a", 20), ("b", 1), ("c", 1)] * 4)))
    assert outline(group_sections(boxes, most=6)) == [
        "all",
        *["  a (91 %) and 2 others", *("    a", "    b", "    c") * 2] * 2,
    ]


def test_neighbours_with_one_title_become_a_section_that_keeps_them() -> None:
    boxes = table(around(*chain(("a", 30), ("a", 1), ("a", 30), ("b", 30), ("c", 1))))
    assert outline(group_sections(boxes, most=4)) == ["all", "  a × 3", "    a", "    a", "    a", "  b", "  c"]


def test_boxes_that_are_few_stay() -> None:
    boxes = table(around(*chain(*[("a", 1)] * 24)))
    assert group_sections(boxes).equals(boxes)
    assert group_sections(boxes, most=23).height == boxes.height + 2
    assert group_sections(boxes.clear()).equals(boxes.clear())


def test_boxes_without_one_around_them_are_not_grouped() -> None:
    boxes = table(*chain(*[("a", 1)] * 10))
    assert group_sections(boxes, most=2).equals(boxes)


def test_equal_boxes_are_cut_into_nearly_equal_numbers() -> None:
    grouped = group_sections(table(around(*chain(*[("a", 1)] * 1000))))
    check(table(around(*chain(*[("a", 1)] * 1000))), grouped, 24)
    first = grouped.filter(pl.col("depth") == 1)
    assert first["title"].unique().sort().to_list() == ["a × 41", "a × 42"]
    assert first.height == 24
    assert grouped["depth"].max() == 3


def test_boxes_of_the_other_side_lie_between_those_of_a_section() -> None:
    device, host = chain(*[("k", 1)] * 3), chain(*[("call", 1)] * 2, side="host")
    mixed = [device[0], host[0], device[1], host[1], device[2]]
    assert outline(group_sections(table(around(*mixed)), most=2)) == [
        *("all", "  k × 2", "    k", "    k", "  call", "  call", "  k"),
    ]


@pytest.mark.parametrize(
    ("parts", "title"),
    [
        ([("a", 60), ("b", 40)], "a (60 %) and 1 other"),
        ([("b", 40), ("a", 60)], "a (60 %) and 1 other"),
        ([("a", 60), *[(each, 8) for each in "bcdef"], ("b", 0)], "a (60 %) and 5 others"),
        ([("a", 50), ("b", 50)], "a (50 %) and 1 other"),
        ([("a", 999), ("b", 1)], "a (> 99 %) and 1 other"),
        ([(f"{each}", 1) for each in range(300)], "0 (< 1 %) and 299 others"),
        ([("a", 0), ("b", 0), ("b", 0)], "b (67 %) and 1 other"),
        ([("a", 1)] * 12, "a × 12"),
        ([("", 1), ("", 1)], " × 2"),
    ],
)
def test_a_section_is_called_by_what_most_of_it_is(parts: list[tuple[str, int]], title: str) -> None:
    boxes = table(around(*chain(*parts, ("Y", 100_000), ("Z", 100_000))))
    grouped = group_sections(boxes, most=len(parts) + 1)
    assert grouped.filter(pl.col("kind") == "section")["title"].to_list() == [title]


def test_a_missing_title_is_an_empty_one() -> None:
    boxes = table(around(*chain(*[("a", 1)] * 3))).with_columns(title=pl.lit(None, pl.String))
    assert group_sections(boxes, most=2)["title"].drop_nulls().to_list() == [" × 2"]


def test_other_columns_stay_with_their_boxes() -> None:
    boxes = table(around(*chain(*[("a", 1)] * 3))).with_columns(own=pl.Series([7, 8, 9, 10]))
    assert group_sections(boxes, most=2)["own"].to_list() == [7, None, 8, 9, 10]


def test_no_input_makes_levels_of_one_box_each() -> None:
    # Each is tiny in all that begins before it, and not in all that begins with it.
    peeled = [node(f"{n}", 40 * n, 40 * n + 50_001 - 2 * n) for n in range(2_000)]
    boxes = table(around(*peeled, node("end", 999_999, 1_000_000)))
    grouped = group_sections(boxes, most=4)
    check(boxes, grouped, 4)
    assert grouped.filter(pl.col("depth") == 1)["title"][0] == "0"
    assert REGROUPINGS < grouped["depth"].max() < REGROUPINGS + 8


def test_annotations_are_all_boxes_that_were_not_recorded_but_sections_within_sections() -> None:
    boxes = table(around(around(*chain(*[("a", 1)] * 1000)), node("mm", 0, 1, kind="operator")))
    assert count_annotations(boxes) == 2
    grouped = group_sections(boxes)
    assert (grouped["kind"] == "section").sum() > 24
    assert count_annotations(grouped) == 2 + 24
    assert count_annotations(boxes.clear()) == 0


def test_sections_of_one_box_are_refused() -> None:
    with pytest.raises(ValueError, match="most=1"):
        group_sections(table(), most=1)
