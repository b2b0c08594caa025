"""Windows of calling contexts in the history: saved with the state, exact after merging, bounded, checked."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from deepprof.live.service.context_windows import HOUR_NS, MINUTE_NS, ContextWindow
from deepprof.live.service.folder import StoreError
from deepprof.live.service.fsck import check_store
from deepprof.live.service.history import Checkpoint, History, context_rows
from deepprof.live.service.history.schema import SCHEMA
from deepprof.live.service.history.values import WaitingWindow
from deepprof.live.service.journal import JournalPlace
from tests.deepprof.live.service.context_making import START, Totals, totals_of
from tests.deepprof.live.service.history.building import Clock, iterations, opened
from tests.deepprof.live.service.test_context_windows import tree_of

ALWAYS = (-(2**62), 2**62)
TREE = tree_of((-1, 0, 1), {0: (1, 9, 0, 0), 2: (2, 5, 3, 4)})


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with opened(tmp_path) as found:
        yield found


def window(minute: int, tree: pl.DataFrame = TREE, length_ns: int = MINUTE_NS) -> ContextWindow:
    return ContextWindow(START + minute * MINUTE_NS, length_ns, tree)


def save(history: History, session: int, *windows: ContextWindow, at: int = 1) -> None:
    history.checkpoint([Checkpoint(session, JournalPlace(1, at, 0), b"state", iterations(), windows)])


def begin(history: History, job: str = "job", rank: int = 0) -> int:
    return history.begin(job, rank, "c", b"", 1)


def totals(history: History, job: str = "job", rank: int | None = None) -> Totals:
    return totals_of([history.contexts(job, rank, ALWAYS).sums])


def test_windows_are_saved_with_the_state_or_not_at_all(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    session = begin(history)
    save(history, session, window(0))

    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("the disk is full")

    monkeypatch.setattr("deepprof.live.service.history.history._mark", fail)
    with pytest.raises((OSError, StoreError)):
        history.checkpoint(
            [Checkpoint(session, JournalPlace(1, 9, 0), b"later", iterations(1), (window(1), window(0)))]
        )
    assert totals(history) == totals_of([TREE])
    assert history.restore()[0].state == b"state"


def test_what_comes_late_is_merged_with_its_window(history: History) -> None:
    session = begin(history)
    save(history, session, window(0), window(1), window(0))
    save(history, session, window(0), at=2)
    found = history.contexts("job", 0, (START, START + MINUTE_NS))
    assert (found.windows, found.earliest_ns) == (1, START)
    assert totals_of([found.sums]) == totals_of([TREE] * 3)
    assert totals(history) == totals_of([TREE] * 4)


def test_the_latest_session_of_each_rank_counts(history: History) -> None:
    former, other = begin(history), begin(history, rank=1)
    save(history, former, window(0))
    save(history, other, window(0))
    session = begin(history)
    assert totals(history) == totals_of([TREE])
    save(history, session, window(5), window(6))
    assert totals(history) == totals_of([TREE] * 3)
    assert totals(history, rank=1) == totals_of([TREE])
    assert history.contexts("job", 7, ALWAYS).earliest_ns is None
    assert history.contexts("nobody", None, ALWAYS).sums.is_empty()


def test_windows_that_wait_count_once(history: History) -> None:
    session = begin(history)
    save(history, session, window(0), window(1))
    waiting = [
        WaitingWindow(session, window(1), is_open=True),  # came meanwhile
        WaitingWindow(session, window(2), is_open=True),
        WaitingWindow(session, window(0), is_open=False),  # late, and not saved yet
    ]
    assert totals_of([history.contexts("job", None, ALWAYS, waiting).sums]) == totals_of([TREE] * 4)
    early = history.contexts("job", None, (START, START + MINUTE_NS), waiting)
    assert totals_of([early.sums]) == totals_of([TREE] * 2)


def test_minutes_become_hours_and_lose_their_time_only(history: History) -> None:
    session, other = begin(history), begin(history, rank=1)
    first = -(START // MINUTE_NS) % 60  # the minute in which an hour begins
    for minute in range(first, first + 150):
        save(history, session, window(minute))
    save(history, other, window(first + 5))
    before = totals(history)
    assert history.merge_contexts(START + (first + 125) * MINUTE_NS) == 3
    assert history.merge_contexts(START + (first + 125) * MINUTE_NS) == 0
    found = history.contexts("job", 0, ALWAYS)
    assert found.windows == 2 + 30
    assert found.sums["window_ns"].unique().sort().to_list() == [MINUTE_NS, HOUR_NS]
    assert totals(history) == before
    save(history, session, window(first + 3))  # late, after its hour was merged
    assert history.merge_contexts(START + (first + 125) * MINUTE_NS) == 1
    assert history.contexts("job", 0, ALWAYS).windows == 2 + 30
    assert totals(history) == before + totals_of([TREE])


def test_one_answer_spans_only_so_many_windows(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepprof.live.service.history.history.MOST_WINDOWS", 3)
    session = begin(history)
    save(history, session, *(window(minute) for minute in range(4)))
    with pytest.raises(ValueError, match="4 windows, at most 3: ask for one rank, or a shorter time"):
        history.contexts("job", None, ALWAYS)
    assert history.contexts("job", None, (START, START + 3 * MINUTE_NS)).windows == 3


def test_old_windows_go_and_so_do_the_oldest_where_there_are_too_many(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path, clock) as history:
        session = begin(history)
        for minute in range(20):
            clock.now += MINUTE_NS
            save(history, session, window(minute))
        assert history.retain(10 * MINUTE_NS, 10**9, clock.now).windows == 9
        nbytes = history.kept_nbytes()["job", 0]
        gone = history.retain(10**18, context_rows.SHARE * (nbytes // 2), clock.now).windows
        left = history.contexts("job", None, ALWAYS)
        assert left.windows == 11 - gone == 5
        assert left.sums["time_ns"].min() == START + 15 * MINUTE_NS == left.earliest_ns
        history.close_session(session)
        assert history.retain(10**18, 10**9, clock.now + 1).sessions == 0  # its windows are kept
        assert history.retain(1, 10**9, clock.now + HOUR_NS).windows == 5
        assert history.jobs() == []


def test_a_job_is_forgotten_with_its_windows(history: History) -> None:
    save(history, begin(history), window(0))
    save(history, begin(history, "other"), window(0))
    history.forget("job")
    assert totals(history, "other") == totals_of([TREE])
    with history._looking() as db:
        assert db.execute("SELECT count(*) FROM contexts").fetchone()[0] == 1


def test_a_history_of_the_first_version_gets_the_table(tmp_path: Path) -> None:
    with opened(tmp_path) as history:
        save(history, begin(history))
    downgrade(tmp_path)
    assert len(check_store(tmp_path)) == 1  # it is sound as it is, but has no journal
    with opened(tmp_path) as history:
        save(history, history.restore()[0].session, window(0))
    with opened(tmp_path) as history:
        assert totals(history) == totals_of([TREE])
        assert history.restore()[0].state == b"state"


def downgrade(folder: Path) -> None:
    """Make the history one of version 1."""
    db = sqlite3.connect(folder / "history.db", isolation_level=None)
    db.execute("DROP TABLE contexts")
    db.execute("PRAGMA user_version = 1")
    assert {sql for (sql,) in db.execute("SELECT sql FROM sqlite_master WHERE name NOT LIKE 'sqlite%'")} == set(SCHEMA)
    db.close()


def damage(folder: Path, statement: str) -> None:
    db = sqlite3.connect(folder / "history.db", isolation_level=None)
    db.execute(statement)
    db.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE contexts SET tree = x'00' WHERE start_ns % 2 = 0 AND rowid = 1",
        "UPDATE contexts SET tree = CAST(substr(tree, 1, length(tree) - 3) || x'000102' AS BLOB) WHERE rowid = 1",
        "UPDATE contexts SET tree = 'text' WHERE rowid = 1",
    ],
)
def test_a_damaged_window_is_said_and_repaired(tmp_path: Path, statement: str) -> None:
    with opened(tmp_path) as history:
        session = begin(history)
        first = -(START // MINUTE_NS) % 60
        save(history, session, window(first), window(first + 60))
    damage(tmp_path, statement)
    with opened(tmp_path) as history:
        with pytest.raises(StoreError, match="a window of contexts"):
            history.contexts("job", None, ALWAYS)
        with pytest.raises(StoreError, match="a window of contexts"):
            history.merge_contexts(START + 300 * MINUTE_NS)
        with history._looking() as db:
            assert db.execute("SELECT count(*) FROM contexts WHERE length_ns = ?", (HOUR_NS,)).fetchone()[0] == 1
        save(history, session, window(first + 1), at=3)  # others can still be saved
    problems = check_store(tmp_path, repair=True)
    # The other one: this store has no journal.
    assert [problem.what for problem in problems][:-1] == ["a window of calling contexts is damaged"]
    assert check_store(tmp_path) == []
    with opened(tmp_path) as history:
        assert totals(history) == totals_of([TREE] * 2)


def test_windows_of_no_session_are_found(tmp_path: Path) -> None:
    with opened(tmp_path) as history:
        save(history, begin(history), window(0))
    damage(tmp_path, "UPDATE contexts SET session = 99")
    problem, _ = check_store(tmp_path, repair=True)  # the other one: this store has no journal
    assert "1 windows of contexts of no session" in problem.what
    assert check_store(tmp_path) == []
