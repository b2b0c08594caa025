"""Contexts by their path, against a search along each path."""

from __future__ import annotations

from fnmatch import fnmatchcase

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.metrics.contexts.selection import select_contexts

PARENTS = (None, 0, 1, 2, 2, 0, 5, 6)
NAMES = ("all", "thread 1", "step", "Linear_0", "Linear_1", "thread 2", "step", "aten::mm")


def table(parents: list[int | None], names: list[str]) -> pl.DataFrame:
    depths = list[int]()
    for parent in parents:
        depths.append(0 if parent is None else depths[parent] + 1)
    columns = {"context": range(len(names)), "parent": parents, "depth": depths, "name": names}
    return pl.DataFrame(columns, schema_overrides={"parent": pl.UInt32})


@pytest.mark.parametrize(
    ("pattern", "contexts"),
    [
        ("step", [2, 6]),
        ("Linear_*", [3, 4]),
        ("thread 1 > step > Linear_?", [3, 4]),
        ("thread 2 > ** > aten::mm", [7]),
        ("step > **", [2, 3, 4, 6, 7]),
        ("all > step", []),
        ("**", list(range(8))),
        ("linear_0", []),
        ("", []),
        ("[", []),
    ],
)
def test_a_pattern_leads_to_contexts(pattern: str, contexts: list[int]) -> None:
    assert select_contexts(table([*PARENTS], [*NAMES]), pattern)["context"].to_list() == contexts


def leads(path: list[str], steps: list[str]) -> bool:
    """Whether the last steps of a path are those of a pattern."""
    if not steps:
        return True
    if steps[-1] == "**":
        return any(leads(path[:end], steps[:-1]) for end in range(1, len(path) + 1))
    return bool(path) and fnmatchcase(path[-1], steps[-1]) and leads_on(path[:-1], steps[:-1])


def leads_on(path: list[str], steps: list[str]) -> bool:
    return not steps or (bool(path) and leads(path, steps))


TREES = st.lists(st.tuples(st.integers(0, 12), st.sampled_from("abc")), max_size=12)
PATTERNS = st.lists(st.sampled_from(["a", "b", "*", "**"]), min_size=1, max_size=4)


@given(TREES, PATTERNS)
def test_any_pattern_in_any_tree(tree: list[tuple[int, str]], steps: list[str]) -> None:
    parents: list[int | None] = [None, *(min(parent, row) for row, (parent, _) in enumerate(tree))]
    names = ["all", *(name for _, name in tree)]
    paths = list[list[str]]()
    for parent, name in zip(parents, names, strict=True):
        paths.append([*(() if parent is None else paths[parent]), name])
    found = select_contexts(table(parents, names), " > ".join(steps))
    assert found["context"].to_list() == [row for row, path in enumerate(paths) if leads(path, steps)]


def test_an_empty_table_has_none() -> None:
    assert select_contexts(table([], []), "a").is_empty()
