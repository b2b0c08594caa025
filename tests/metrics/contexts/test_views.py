"""Trees seen from the threads and from what ran, against paths that are written out."""

from __future__ import annotations

from collections import Counter

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from deepprof.metrics.contexts.frames import KIND
from deepprof.metrics.contexts.views import FlameTree, look_down, look_up

TREES = st.lists(st.tuples(st.integers(0, 12), st.sampled_from("abc"), st.integers(0, 3)), max_size=12)
Path = tuple[str, ...]


def table(tree: list[tuple[int, str, int]]) -> tuple[pl.DataFrame, pl.Series, dict[Path, int]]:
    """Return contexts, what each took itself, and that by path, which is not unique."""
    parents: list[int | None] = [None, *(min(parent, row) for row, (parent, _, _) in enumerate(tree))]
    names, own = ["all", *(name for _, name, _ in tree)], [0, *(amount for _, _, amount in tree)]
    paths = list[Path]()
    for parent, name in zip(parents, names, strict=True):
        paths.append((*(() if parent is None else paths[parent]), name))
    columns = {"parent": parents, "depth": [len(path) - 1 for path in paths], "kind": ["python"] * len(names)}
    texts = {"name": names, "file": [None] * len(names), "line": [None] * len(names)}
    kinds = {"parent": pl.UInt32, "kind": KIND, "file": pl.String, "line": pl.UInt32}
    taken = Counter[Path]()
    for path, amount in zip(paths, own, strict=True):
        taken[path] += amount
    return pl.DataFrame(columns | texts, schema_overrides=kinds), pl.Series(own), taken


def read(tree: FlameTree) -> Counter[Path]:
    """Return what each path of a tree took, with all within; parents are before their children."""
    found, paths = Counter[Path](), list[Path]()
    for row, (name, parent) in enumerate(zip(tree.frames["name"], tree.parent.tolist(), strict=True)):
        assert parent < row or row == 0
        paths.append((*(paths[parent] if row else ()), name))
        found[paths[-1]] += int(tree.value[row])
    return found


@given(TREES)
def test_from_the_threads_down(tree: list[tuple[int, str, int]]) -> None:
    contexts, own, taken = table(tree)
    expected = Counter[Path]()
    for path, amount in taken.items():
        expected.update({path[:length]: amount for length in range(1, len(path) + 1)})
    assert +read(look_down(contexts, own)) == +expected


@given(TREES)
def test_from_what_ran_up(tree: list[tuple[int, str, int]]) -> None:
    contexts, own, taken = table(tree)
    expected = Counter[Path]({("all",): int(own.sum())})
    for path, amount in taken.items():
        callers = path[:0:-1]  # without the first, which is around all
        expected.update({("all", *callers[:length]): amount for length in range(1, len(callers) + 1)})
    found = look_up(contexts, own)
    assert +read(found) == +expected
    assert len(found) == len(+expected) or not own.sum()  # each path once


def test_what_the_first_context_took_itself_is_in_the_whole_alone() -> None:
    contexts, _, _ = table([(0, "a", 0)])
    assert look_up(contexts, pl.Series([5, 2])).value.tolist() == [7, 2]
    assert look_down(contexts, pl.Series([5, 2])).value.tolist() == [7, 2]
