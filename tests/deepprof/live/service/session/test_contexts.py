"""A session's minutes of calling contexts: exact however they are cut and saved, bounded, and emitted once."""

from __future__ import annotations

import random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.live.service.context_windows import MINUTE_NS, ContextWindow
from deepprof.live.service.session import RankSession, SessionLimits, contexts
from deepprof.live.wire import CheckedRecords
from tests.deepprof.live.service.context_making import (
    SECOND,
    START,
    batch_tables,
    made_tree,
    paths_of,
    totals_of,
    window_rows,
)

NODES = made_tree([-1, 0, 1, 1, 0, 4, -1])
CONTEXTS = NODES["context"].to_list()
NAMES = tuple(f"name {number}" for number in range(NODES.height))
Sums = list[tuple[int, int, int]]  # second, number of a context, count


def batches_of(sums: Sums, cuts: list[int]) -> list[CheckedRecords]:
    """Sums in batches that end at these places."""
    rows = [window_rows(START + second * SECOND, {CONTEXTS[c]: (n, 2 * n, 3 * n, 5 * n)})[0] for second, c, n in sums]
    found, first = [], 0
    for end in [*sorted(cuts), len(rows)]:
        tables = batch_tables(NODES, rows[first:end])
        tables = {name: table for name, table in tables.items() if table.height}
        names = NAMES if not found else ()
        found.append(CheckedRecords(first, end - first, tables, names, 0 if not found else len(NAMES), 0))
        first = end
    return found


def play(batches: list[CheckedRecords], *, restore: bool, advance: bool, most: int = 100) -> list[ContextWindow]:
    """Return the windows that a session gives out, which may be saved and restored after each batch."""
    session = RankSession(SessionLimits(contexts=most))
    given: list[ContextWindow] = []
    for batch in batches:
        session.take(batch)
        if advance:
            given += session.advance().contexts
        if restore:
            session = RankSession.restore(session.save())
    session.end()
    return given + list(session.advance().contexts)


@st.composite
def cut_sums(draw: st.DrawFn) -> tuple[Sums, list[int]]:
    """Return sums in the order of time, and where batches end."""
    rows = st.tuples(st.integers(0, 500), st.integers(0, len(CONTEXTS) - 1), st.integers(1, 9))
    sums = sorted(draw(st.lists(rows, max_size=25)), key=lambda row: row[0])
    return sums, draw(st.lists(st.integers(0, len(sums)), max_size=4))


@given(cut_sums(), st.booleans(), st.booleans(), st.sampled_from([2, 100]), st.sampled_from([1, 1 << 14]))
def test_minutes_are_those_of_the_records_however_they_come(
    drawn: tuple[Sums, list[int]], restore: bool, advance: bool, most: int, waiting: int
) -> None:
    sums, cuts = drawn
    whole = play(batches_of(sums, []), restore=False, advance=False, most=most)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contexts, "PART_ROWS", waiting)
        found = play(batches_of(sums, cuts), restore=restore, advance=advance, most=most)
    assert [window.start_ns for window in found] == [window.start_ns for window in whole]
    assert [window.start_ns for window in found] == sorted({START + second // 60 * MINUTE_NS for second, _, _ in sums})
    for window in found:
        names = paths_of(window.tree)
        assert all(len(path) <= 3 for path in names.values())
        assert window.tree.height <= most
    assert [window.folded for window in found] == [window.folded for window in whole]
    if most == 100:
        rows = [table["context_sums"] for table in (batch.tables for batch in batches_of(sums, [])) if table]
        assert totals_of(window.tree for window in found) == totals_of(rows)
        assert [totals_of([window.tree]) for window in found] == [totals_of([window.tree]) for window in whole]
        assert all(window.folded == 0 for window in found)


def test_a_minute_waits_for_what_is_late_and_no_longer() -> None:
    session = RankSession()
    sums = [(0, 1, 1), (61, 1, 1), (59, 1, 2)]
    for batch in batches_of(sums, [1, 2]):
        session.take(batch)
        assert session.advance().contexts == ()
    assert [window.tree["count"].sum() for window in session.look_at_contexts()] == [3, 1]
    late = batches_of([*sums, (181, 1, 1), (5, 1, 4), (181 + 3601, 1, 1), (61, 1, 7)], [3, 4, 5, 6])
    session.take(late[1])  # three minutes on
    assert [(w.start_ns, w.tree["count"].sum()) for w in session.advance().contexts] == [
        (START, 3),
        (START + MINUTE_NS, 1),
    ]
    session.take(late[2])  # of a minute that was emitted: again, on its own
    assert [(w.start_ns, w.tree["count"].sum()) for w in session.advance().contexts] == [(START, 4)]
    session.take(late[3])
    session.take(late[4])  # more than an hour late
    assert session.dropped == {"late": 1}
    assert session.dropped_kinds == {"late": {"context_sums": 1}}


def test_a_table_of_sums_may_be_empty() -> None:
    session = RankSession()
    tables = batch_tables(NODES, [])
    session.take(CheckedRecords(0, 0, tables, NAMES, 0, 0))
    session.end()
    assert session.advance().contexts == ()


def test_a_batch_has_only_so_many_minutes() -> None:
    """Else one message could make the store write a window per row."""
    session = RankSession()
    minutes = contexts.MOST_MINUTES + 44
    (batch,) = batches_of([(60 * minute, 0, 1) for minute in range(minutes)], [])
    session.take(batch)
    session.end()
    given = session.advance().contexts
    assert len(given) + session.dropped["late"] == minutes
    assert len(given) <= contexts.MOST_MINUTES


def test_a_batch_makes_only_so_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path may be long: a sum at its end, in each of many minutes, would be many trees of a small message."""
    monkeypatch.setattr(contexts, "MOST_TREE_ROWS", 10)
    session = RankSession()
    (batch,) = batches_of([(60 * minute, 3, 1) for minute in range(9)], [])  # a path of three each
    session.take(batch)
    session.end()
    given = session.advance().contexts
    assert [window.start_ns for window in given] == [START + minute * MINUTE_NS for minute in (6, 7, 8)]
    assert session.dropped == {"late": 6}


def test_contexts_beyond_the_limit_are_in_those_above_them() -> None:
    chance = random.Random(5)
    sums = sorted((chance.randrange(60), chance.randrange(7), 1) for _ in range(300))
    (window,) = play(batches_of(sums, [50, 100, 250]), restore=True, advance=True, most=3)
    rows = pl.concat(batch.tables["context_sums"] for batch in batches_of(sums, []))
    kept = window.tree["context"]
    own = rows.filter(rows["context"].is_in(kept.implode()))
    assert window.folded == rows["count"].sum() - own["count"].sum() > 0
    assert window.tree["count"].sum() == own["count"].sum()
    of_others = {*CONTEXTS} - {*kept}
    roots = {row[0] for row in NODES.select("context", "parent").iter_rows() if row[1] == 0}
    lost = rows.filter(rows["context"].is_in(list(of_others & roots)))["device_ns"].sum()
    assert window.tree["device_ns"].sum() == rows["device_ns"].sum() - lost


def test_what_a_session_holds_does_not_grow_with_time() -> None:
    session, sizes = RankSession(), []
    for minute in range(60):
        sums = [(60 * minute + second, context, 1) for second in range(0, 60, 5) for context in range(7)]
        (batch,) = batches_of(sums, [])
        names = NAMES if minute == 0 else ()
        session.take(CheckedRecords(0, batch.count, batch.tables, names, 0 if names else len(NAMES), 0))
        session.advance()
        sizes.append(session.nbytes)
    assert max(sizes[30:]) <= max(sizes[:5])
