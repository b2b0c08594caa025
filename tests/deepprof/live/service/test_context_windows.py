"""Trees of windows: merging loses nothing but time, and beyond a limit nothing but names."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.collectors.context_nodes import AMOUNT_LIMIT, order_by_depth
from deepprof.live.service import context_windows as module
from deepprof.live.service.context_windows import (
    AMOUNTS,
    DAY_NS,
    HOUR_NS,
    MINUTE_NS,
    OF_DEVICES,
    TREE,
    ContextWindow,
    MergedWindows,
    merge_hours,
    merge_trees,
    merge_windows,
)
from tests.deepprof.live.service.context_making import START, made_tree, paths_of, totals_of

PARENTS = st.integers(1, 9).flatmap(lambda count: st.tuples(*(st.integers(-1, i - 1) for i in range(count))))
VALUES = st.tuples(*[st.integers(0, 9)] * 4)


def tree_of(parents: tuple[int, ...], amounts: dict[int, tuple[int, ...]]) -> pl.DataFrame:
    """Return a tree as it is stored; amounts are by the number of a context in the order of its making."""
    nodes = order_by_depth(made_tree(parents))
    rows = [
        {
            **row,
            "name": f"name {row['name_id']}",
            **dict(zip(AMOUNTS, amounts.get(row["name_id"], [0] * 4), strict=True)),
        }
        for row in nodes.iter_rows(named=True)
    ]
    return pl.DataFrame([{column: row[column] for column in TREE} for row in rows], schema=TREE)


@st.composite
def trees(draw: st.DrawFn) -> list[pl.DataFrame]:
    """Return trees of which each has the beginning of one large tree, or another one."""
    whole = draw(PARENTS)
    found = []
    for _ in range(draw(st.integers(1, 4))):
        parents = whole[: draw(st.integers(1, len(whole)))] if draw(st.booleans()) else draw(PARENTS)
        found.append(tree_of(parents, draw(st.dictionaries(st.integers(0, 8), VALUES, max_size=5))))
    return found


@given(trees(), st.integers(1, 30))
def test_merged_trees_have_what_all_have_together(parts: list[pl.DataFrame], most: int) -> None:
    merged, folded = merge_trees(parts, most)
    paths = {context: path for part in parts for context, path in paths_of(part).items()}
    assert paths_of(merged).items() <= paths.items()
    contexts = list(dict.fromkeys(context for part in parts for context in part["context"]))
    assert merged["context"].to_list() == contexts[:most]
    wanted, above = totals_of(parts), {path: context for context, path in paths.items()}
    lost = 0
    for context in contexts[most:]:
        path, lost = paths[context], lost + wanted[context, "count"]
        while path and above[path] not in contexts[:most]:
            path = path[:-1]
        for amount in AMOUNTS:
            value = wanted.pop((context, amount), 0)
            if path and amount in OF_DEVICES:
                wanted[above[path], amount] += value
    assert totals_of([merged]) == +wanted
    assert folded == lost


def test_amounts_stay_at_their_limit() -> None:
    tree = tree_of((-1, 0), {0: (1, AMOUNT_LIMIT - 1, 3, 4), 1: (0, 0, 0, AMOUNT_LIMIT - 1)})
    merged, _ = merge_trees([tree, tree, tree])
    assert merged["host_ns"].to_list() == [AMOUNT_LIMIT, 0]
    assert merged["count"].to_list() == [3, 0]
    assert merge_trees([merged, merged], 1)[0]["device_ns"].to_list() == [AMOUNT_LIMIT]


def test_the_first_word_on_a_context_holds() -> None:
    """Two ranks, or a sender that is, may give one hash two places: it stays a tree."""
    tree = tree_of((-1, 0, 1), {2: (1, 1, 1, 1)})
    other = tree.with_columns(parent=pl.Series([0, 0, 0], dtype=pl.UInt64), name=pl.lit("other"))
    merged, _ = merge_trees([tree, other])
    assert merged.drop(AMOUNTS).equals(tree.drop(AMOUNTS))
    assert merged["count"].to_list() == [0, 0, 2]


@given(st.lists(st.tuples(st.integers(0, 300), trees()), max_size=5))
def test_hours_have_what_their_minutes_had(drawn: list[tuple[int, list[pl.DataFrame]]]) -> None:
    windows = [
        ContextWindow(START + minute * MINUTE_NS, MINUTE_NS, part, folded=1)
        for minute, parts in drawn
        for part in parts
    ]
    hours = list(merge_hours(windows))
    assert [hour.start_ns for hour in hours] == sorted({window.start_ns // HOUR_NS * HOUR_NS for window in windows})
    assert sum(hour.folded for hour in hours) == len(windows)
    assert totals_of([hour.tree for hour in hours]) == totals_of([window.tree for window in windows])


@pytest.mark.parametrize("pending", [0, 100_000])
@pytest.mark.parametrize("most_rows", [1, 12, 10_000])
@given(drawn=st.lists(st.tuples(st.integers(0, 3000), trees()), max_size=6))
def test_an_answer_is_bounded_by_longer_windows(
    most_rows: int, pending: int, drawn: list[tuple[int, list[pl.DataFrame]]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PENDING_ROWS", pending)
        merged = MergedWindows(most_nodes=1000, most_rows=most_rows)
        for minute, parts in drawn:
            for part in parts:
                merged.add(ContextWindow(START + minute * MINUTE_NS, MINUTE_NS, part))
        nodes, sums = merged.finish()
    paths_of(nodes)
    everything = [part for _, parts in drawn for part in parts]
    if nodes.height == pl.concat([tree_of((-1,), {})[:0], *everything])["context"].n_unique():
        assert totals_of([sums]) == totals_of(everything)
        assert merged.folded == 0
    assert merged.step_ns in module.STEPS_NS
    assert sums.select("time_ns", "context").is_duplicated().sum() == 0
    assert sums["time_ns"].is_sorted()
    assert (sums["time_ns"] % merged.step_ns == 0).all()
    if most_rows == 10_000:
        assert merged.step_ns == MINUTE_NS
    assert sums.height <= most_rows


def test_an_answer_is_bounded_by_the_contexts_that_came_first() -> None:
    first = tree_of((-1, 0), {0: (1, 50, 0, 0), 1: (2, 30, 1, 7)})
    later = tree_of((-1, 0, 1, -1), {2: (3, 20, 5, 9), 3: (4, 4, 4, 4)})
    merged = MergedWindows(most_nodes=2, most_rows=100)
    merged.add(ContextWindow(START, MINUTE_NS, first))
    merged.add(ContextWindow(START + MINUTE_NS, MINUTE_NS, later))
    nodes, sums = merged.finish()
    assert nodes["name"].to_list() == ["name 0", "name 1"]
    assert merged.folded == 3 + 4
    assert sums.drop("context", "window_ns").rows() == [
        (START, 1, 50, 0, 0),
        (START, 2, 30, 1, 7),
        (START + MINUTE_NS, 0, 0, 5, 9),  # what launched was below name 1
    ]


def test_an_answer_is_bounded_where_windows_are_years_apart() -> None:
    """A sender may state any time: no length of windows puts them together."""
    merged = MergedWindows(most_nodes=100, most_rows=40)
    chain = tree_of(tuple(range(-1, 8)), {8: (1, 1, 1, 1)})
    for year in range(20):
        merged.add(ContextWindow(START + year * 400 * DAY_NS, MINUTE_NS, chain))
    nodes, sums = merged.finish()
    paths_of(nodes)
    assert sums.height <= 40
    assert (merged.folded, sums["device_ns"].sum(), nodes.height) == (20, 20, 2)


def test_many_windows_of_contexts_of_their_own_are_folded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It took a tree of all contexts for every window: minutes, for as many as one answer spans."""
    folds, find = list[int](), module._find_kept

    def count(nodes: pl.DataFrame, most: int) -> npt.NDArray[np.int64]:
        folds.append(most)
        return find(nodes, most)

    monkeypatch.setattr(module, "_find_kept", count)
    merged = MergedWindows(most_nodes=50, most_rows=1000)
    for minute in range(200):
        own = tree_of((-1,), {0: (1, 1, 1, 1)}).with_columns(context=pl.lit(minute + 1, pl.UInt64))
        merged.add(ContextWindow(START + minute * MINUTE_NS, MINUTE_NS, own))
    nodes, sums = merged.finish()
    assert (nodes.height, sums.height, merged.folded, len(folds)) == (50, 50, 150, 1)


def test_what_is_folded_is_counted_up_to_the_limit() -> None:
    """Beyond 64 bits neither the store nor a message takes it, and a checkpoint is of many ranks."""
    tree = tree_of((-1, -1, -1), dict.fromkeys(range(3), (AMOUNT_LIMIT, 0, 0, 0)))
    merged, folded = merge_trees([tree] * 9, 1)
    assert folded == AMOUNT_LIMIT
    windows = [ContextWindow(START, MINUTE_NS, merged, folded)] * 9
    assert merge_windows(windows, START, MINUTE_NS).folded == AMOUNT_LIMIT
    answer = MergedWindows(10, 10)
    for window in windows:
        answer.add(window)
    answer.finish()
    assert answer.folded == AMOUNT_LIMIT


def test_nothing_is_an_answer() -> None:
    nodes, sums = MergedWindows(10, 10).finish()
    assert (nodes.height, sums.height, nodes.columns) == (0, 0, list(TREE)[:5])
    assert Counter() == totals_of([sums])
