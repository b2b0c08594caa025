"""Contexts: a sound set of nodes is a tree, whatever order their hashes have; what is none is refused."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.collectors.context_nodes import (
    AMOUNT_LIMIT,
    CONTEXT_KINDS,
    MOST_DEPTH,
    find_fault,
    hash_context,
    select_needed,
)
from deepprof.collectors.trace import CONTEXT_NODES, CONTEXT_SUMS, Accounting, Trace, empty_table
from tests.tables import table

Parents = dict[int, int]


def nodes_of(parents: Parents) -> pl.DataFrame:
    rows: list[dict[str, object]] = [
        {"context": context, "parent": parent, "kind": CONTEXT_KINDS[context % 3], "name_id": 0, "line": 1}
        for context, parent in parents.items()
    ]
    return table(rows, CONTEXT_NODES)


def sums_of(*contexts: int, **other: object) -> pl.DataFrame:
    row: dict[str, object] = {"time_ns": 1, "window_ns": 2, "count": 3, "host_ns": 4, "device_count": 0, "device_ns": 0}
    return table([row | {"context": context} | other for context in contexts], CONTEXT_SUMS)


NO_SUMS = empty_table(CONTEXT_SUMS)


def path_of(parents: Parents, context: int) -> list[int] | None:
    """Return the contexts from one up to the root, None where there is no such path."""
    path = list[int]()
    while context:
        if context not in parents or context in path:
            return None
        path.append(context)
        context = parents[context]
    return path


@given(st.dictionaries(st.integers(1, 12), st.integers(0, 12), max_size=9), st.lists(st.integers(1, 12), max_size=4))
def test_what_is_a_tree_and_what_a_row_needs(parents: Parents, used: list[int]) -> None:
    nodes, sums = nodes_of(parents), sums_of(*used)
    paths = {context: path_of(parents, context) for context in parents}
    sound = None not in paths.values() and set(used) <= parents.keys()
    assert (find_fault(nodes, sums) == "") == sound
    if sound:
        needed = {each for context in used for each in paths[context] or ()}
        assert select_needed(nodes, sums["context"])["context"].to_list() == sorted(needed)


@pytest.mark.parametrize("depth", [1, MOST_DEPTH - 1, MOST_DEPTH, MOST_DEPTH + 1, 3 * MOST_DEPTH])
def test_a_path_has_a_greatest_depth(depth: int) -> None:
    """Hashes come in any order: here a caller's is the higher one."""
    nodes = nodes_of({context: context + 1 if context < depth else 0 for context in range(1, depth + 1)})
    assert bool(find_fault(nodes, NO_SUMS)) == (depth > MOST_DEPTH)


@pytest.mark.parametrize(
    ("nodes", "sums", "words"),
    [
        (nodes_of({1: 2, 2: 3, 3: 1}), NO_SUMS, "a path of more"),
        (nodes_of({1: 1}), NO_SUMS, "a path of more"),
        (nodes_of({0: 0}), NO_SUMS, "the root"),
        (pl.concat([nodes_of({5: 0}), nodes_of({5: 0})]), NO_SUMS, "twice"),
        (nodes_of({5: 0})[::-1].vstack(nodes_of({4: 0})), NO_SUMS, "not sorted"),
        (nodes_of({5: 4}), NO_SUMS, "without its parent"),
        (nodes_of({}), sums_of(3), "sums of a context"),
        (nodes_of({5: 0}), sums_of(6), "sums of a context"),
        (nodes_of({5: 0}), sums_of(5, count=AMOUNT_LIMIT), "count below 0"),
        (nodes_of({5: 0}), sums_of(*[5] * 4, host_ns=AMOUNT_LIMIT // 4), "host_ns below 0"),
        (nodes_of({5: 0}), sums_of(5, host_ns=-1), "host_ns below 0"),
        (nodes_of({5: 0}), sums_of(5, window_ns=-1), "window_ns below 0"),
        (nodes_of({5: 0}), sums_of(5, device_count=None), "nulls"),
        (nodes_of({5: 0}).with_columns(kind=pl.lit(None, CONTEXT_NODES["kind"])), NO_SUMS, "nulls"),
    ],
)
def test_what_is_no_tree_is_named(nodes: pl.DataFrame, sums: pl.DataFrame, words: str) -> None:
    assert words in find_fault(nodes, sums)
    names = pl.Series(["main"])
    count = Accounting(sums.height, sums.height)
    with pytest.raises(ValueError, match=r"context_nodes"):
        Trace(path="", format="", names=names, accounting=count, context_nodes=nodes, context_sums=sums)


def test_a_hash_is_that_of_the_whole_path() -> None:
    """Fixed: batches of different releases, and those on disk, must agree."""
    step = hash_context(0, 0, "train.py(3): step", 12)
    assert step == 0x9ECA_0F1A_DD58_DA82
    others = [(1, 0, "train.py(3): step", 12), (0, 1, "train.py(3): step", 12), (0, 0, "train.py(3): stop", 12)]
    assert len({step, hash_context(0, 0, "train.py(3): step", 13), *(hash_context(*each) for each in others)}) == 5
