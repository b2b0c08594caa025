"""The history: what was saved comes back, once, whether it is hot, sealed, or between the two."""

from __future__ import annotations

import sqlite3
import stat
import threading
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from deepprof.live.service.history import Checkpoint, JobSummary, RetentionResult, StoredSession
from deepprof.live.service.history.sealed import list_sealed
from deepprof.live.service.journal import JournalPlace
from deepprof.live.service.views import HISTORY
from tests.deepprof.live.service.history.building import (
    HOUR,
    Clock,
    begin,
    checkpoint,
    iterations,
    opened,
    read_all,
    seal_all,
)


def test_empty_history_has_nothing(tmp_path: Path) -> None:
    with opened(tmp_path / "store") as history:
        page, after = history.iterations("job")
        assert (page.height, after) == (0, "")
        assert page.columns == ["rank", *HISTORY]
        assert (history.restore(), history.jobs(), history.farthest) == ([], [], None)
        assert (seal_all(history), history.forget("job"), history.load_text("x")) == (0, 0, None)
        assert history.retain(0, 0, 2**62) == RetentionResult(0, 0, 0)
        history.checkpoint([])


def test_session_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    with opened(tmp_path) as history:
        assert begin(history) == 1
    with opened(tmp_path) as history:
        assert history.restore() == [
            StoredSession(1, "job", 0, "a", b"hello", 5, None, b"", closed=False, settled=False)
        ]
        history.checkpoint([checkpoint(1, 0, at=9)])
    with opened(tmp_path) as history:
        (stored,) = history.restore()
        assert (stored.position, stored.state, history.farthest) == (
            JournalPlace(1, 9, 0),
            b"state 9",
            JournalPlace(1, 9, 0),
        )


def test_iterations_come_back_exactly(tmp_path: Path) -> None:
    given = pl.concat([iterations(*range(7)), iterations(2**62 // 1000, device=3)])
    with opened(tmp_path) as history:
        session = begin(history, rank=4)
        history.checkpoint([Checkpoint(session, JournalPlace(1, 1, 0), b"", given)])
        for _ in range(2):
            page, after = history.iterations("job")
            assert_frame_equal(page, given.select(pl.lit(4, pl.Int64()).alias("rank"), pl.all()))
            assert after == ""
            seal_all(history)


def test_new_collector_closes_the_former(tmp_path: Path) -> None:
    with opened(tmp_path) as history:
        first, other, second = begin(history), begin(history, rank=1), begin(history, collector="b")
        history.checkpoint([checkpoint(first, 1)])
        assert (first, other, second) == (1, 2, 3)
        assert [(one.session, one.closed) for one in history.restore()] == [(1, True), (2, False), (3, False)]
        history.close_session(first)
        assert [one.session for one in history.restore()] == [2, 3]
        assert read_all(history) == []  # of the latest session alone
        history.checkpoint([checkpoint(second, 2)])
        assert read_all(history) == [(0, 2)]


def test_session_numbers_are_never_used_again(tmp_path: Path) -> None:
    with opened(tmp_path) as history:
        begin(history)
        history.forget("job")
    with opened(tmp_path) as history:
        assert begin(history) == 2


@pytest.mark.parametrize("limit", [1, 2, 5, 100])
def test_pages_have_each_row_once_while_sealing_goes_on(tmp_path: Path, limit: int) -> None:
    with opened(tmp_path) as history:
        sessions = [begin(history, rank=rank) for rank in range(3)]
        for number in range(4):
            history.checkpoint([checkpoint(session, 2 * number, 2 * number + 1) for session in sessions])
            if number == 1:
                seal_all(history)
        found, after = [], ""
        while True:
            page, after = history.iterations("job", after=after, limit=limit)
            found += page.select("rank", "index").rows()
            seal_all(history)
            if not after:
                break
        assert found == [(rank, number) for rank in range(3) for number in range(8)]


def test_rank_and_device_are_chosen(tmp_path: Path) -> None:
    with opened(tmp_path) as history:
        sessions = [begin(history, rank=rank) for rank in range(3)]
        for device in (0, 1):
            history.checkpoint([checkpoint(session, device, device + 10, device=device) for session in sessions])
            seal_all(history)
        history.checkpoint([checkpoint(sessions[1], 50, device=0)])
        assert read_all(history, rank=1, limit=1) == [(1, 0), (1, 10), (1, 1), (1, 11), (1, 50)]
        assert read_all(history, device=1, limit=1) == [(rank, n) for rank in range(3) for n in (1, 11)]
        assert read_all(history, rank=1, device=0) == [(1, 0), (1, 10), (1, 50)]
        assert read_all(history, rank=9) == read_all(history, "other") == []


@pytest.mark.parametrize("token", ["x", "1", "0.1", "-1.2", "1.2.3", "1.9223372036854775807", "9" * 40 + ".1", "1.\n"])
def test_tokens_that_were_never_given_are_refused(tmp_path: Path, token: str) -> None:
    with opened(tmp_path) as history, pytest.raises(ValueError, match="no page token"):
        history.iterations("job", after=token)


def test_pages_have_at_least_a_row(tmp_path: Path) -> None:
    with opened(tmp_path) as history, pytest.raises(ValueError, match="at least one"):
        history.iterations("job", limit=0)


def test_other_columns_are_refused_and_nothing_saved(tmp_path: Path) -> None:
    with opened(tmp_path) as history:
        session = begin(history)
        wrong = Checkpoint(session, JournalPlace(1, 1, 0), b"", iterations(1).drop("loop"))
        with pytest.raises(ValueError, match="HISTORY"):
            history.checkpoint([checkpoint(session, 1), wrong])
        with pytest.raises(ValueError, match="HISTORY"):
            history.settle(session, iterations(1).with_columns(pl.col("index").cast(pl.Int32)))
        assert read_all(history) == []


@pytest.mark.parametrize("sealed", [True, False])
def test_settling_replaces_every_row(tmp_path: Path, sealed: bool) -> None:
    with opened(tmp_path) as history:
        first, second = begin(history), begin(history, rank=1)
        history.checkpoint([checkpoint(first, 1, 2, 3), checkpoint(second, 4)])
        if sealed:
            seal_all(history)
        history.settle(first, iterations(7, 8))
        assert read_all(history) == [(0, 7), (0, 8), (1, 4)]
        assert [one.settled for one in history.restore()] == [True, False]
        assert history.jobs()[0].iterations == 3
        seal_all(history)
        history.settle(first, iterations())
        assert read_all(history) == [(1, 4)]


def test_forgetting_a_job_leaves_the_others(tmp_path: Path) -> None:
    with opened(tmp_path) as history:
        first, other = begin(history), begin(history, "other")
        history.checkpoint([checkpoint(first, 1)])
        seal_all(history)
        history.checkpoint([checkpoint(first, 2), checkpoint(other, 3)])
        history.save_text("report", "...", job="job")
        assert history.forget("job") == 1
        assert list_sealed(tmp_path / "sealed") == []  # all of its rows were the job's
        history.checkpoint([checkpoint(first, 9)])  # came too late
        history.settle(first, iterations(9))
        assert (read_all(history), read_all(history, "other")) == ([], [(0, 3)])
        assert ([one.job for one in history.restore()], history.load_text("report")) == (["other"], None)


def test_jobs_are_summed_up(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path, clock) as history:
        sessions = [history.begin("old", rank, "a", b"", 7 + rank) for rank in range(2)]
        history.begin("new", 0, "a", b"", 100)
        history.begin("old", 0, "b", b"", 50)
        history.checkpoint([checkpoint(sessions[1], 1, 2, 3)])
        assert history.jobs() == [JobSummary("new", 1, 1, 100, 100, 0), JobSummary("old", 2, 2, 7, clock.now, 3)]


def test_texts(tmp_path: Path) -> None:
    with opened(tmp_path) as history:
        for key, value in (("a/1", "x"), ("a/2", "é\0"), ("b/1", "z"), ("a/1", "y")):
            history.save_text(key, value)
        assert history.list_texts("a/") == {"a/1": "y", "a/2": "é\0"}
        history.delete_text("a/1")
        assert (history.load_text("a/1"), history.load_text("a/2")) == (None, "é\0")


def test_few_rows_wait_and_old_ones_are_sealed(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path, clock) as history:
        session = begin(history)
        start = clock.now
        for number in range(3):
            history.checkpoint([checkpoint(session, number)])
            clock.now += HOUR
        assert history.seal(start + HOUR - 1) == 0  # the oldest is old enough, but not an hour more
        assert history.seal(start + HOUR) == 1  # two rows were given until then
        assert history.seal(start + HOUR) == 0
        assert count_hot(tmp_path) == 1
        assert history.seal(0, hot_rows=1) == 0
        assert history.seal(0, hot_rows=0, window_ns=-(2**62)) == 1
        assert read_all(history) == [(0, 0), (0, 1), (0, 2)]


def count_hot(folder: Path) -> int:
    with sqlite3.connect(folder / "history.db") as db:
        found = db.execute("SELECT count(*) FROM iterations").fetchone()[0]
    db.close()
    return int(found)


def test_large_windows_are_cut_into_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepprof.live.service.history.history.WINDOW_ROWS", 10)
    with opened(tmp_path) as history:
        session = begin(history)
        history.checkpoint([checkpoint(session, *range(35))])
        assert seal_all(history) == 4
        assert read_all(history, limit=7) == [(0, number) for number in range(35)]


def test_retention_by_age(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path, clock) as history:
        session = begin(history)
        for number in range(4):
            history.checkpoint([checkpoint(session, number)])
            if number < 2:
                seal_all(history)
            clock.now += HOUR
        assert history.retain(3 * HOUR, 1 << 40, clock.now) == RetentionResult(1, 0, 0)
        assert read_all(history) == [(0, 1), (0, 2), (0, 3)]
        assert history.retain(2 * HOUR - 1, 1 << 40, clock.now) == RetentionResult(1, 1, 0)
        assert read_all(history) == [(0, 3)]
        assert list_sealed(tmp_path / "sealed") == []
        assert history.retain(0, 1 << 40, clock.now + HOUR) == RetentionResult(0, 1, 0)
        assert [one.session for one in history.restore()] == [session]  # open: it may go on


def test_retention_forgets_closed_sessions_without_rows(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path, clock) as history:
        first, _ = begin(history), begin(history, collector="b")
        history.checkpoint([checkpoint(first, 1)])
        history.save_text("report", "...", job="job")
        assert history.retain(HOUR, 1 << 40, clock.now) == RetentionResult(0, 0, 0)
        clock.now += HOUR + 1
        assert history.retain(HOUR, 1 << 40, clock.now) == RetentionResult(0, 1, 1)
        assert [one.session for one in history.restore()] == [2]
        assert history.load_text("report") == "..."  # the job has another session
        history.close_session(2)
        history.retain(0, 1 << 40, clock.now)
        assert (history.jobs(), history.load_text("report")) == ([], None)


def test_replaced_rows_free_their_file(tmp_path: Path) -> None:
    with opened(tmp_path) as history:
        session = begin(history)
        history.checkpoint([checkpoint(session, 1)])
        seal_all(history)
        history.settle(session, iterations(2))
        assert history.retain(2**62, 1 << 40, 2**62) == RetentionResult(0, 0, 0)
        assert list_sealed(tmp_path / "sealed") == []
        assert read_all(history) == [(0, 2)]


def test_disk_stays_within_the_bound(tmp_path: Path) -> None:
    clock, most = Clock(), 400_000
    peak = 0
    with opened(tmp_path, clock) as history:
        session = begin(history)
        for number in range(60):
            rows = iterations(*range(number * 500, number * 500 + 500))
            history.checkpoint([Checkpoint(session, JournalPlace(1, number, 0), b"s" * 1000, rows)])
            if number % 3 == 0:
                history.seal(clock.now, window_ns=0)
            history.retain(2**60, most, clock.now)
            files = [path for path in tmp_path.rglob("*") if path.suffix in {".db", ".parquet"}]
            peak = max(peak, sum(path.stat().st_size for path in files))
            clock.now += HOUR
        found = read_all(history, limit=50_000)
    assert peak <= most + 500 * 200  # and what came since the last call
    assert 100 < len(found) < 29_000
    assert found == [(0, number) for number in range(30_000)][-len(found) :]


def test_files_are_for_the_owner_alone(tmp_path: Path) -> None:
    with opened(tmp_path / "store") as history:
        history.checkpoint([checkpoint(begin(history), 1)])
        seal_all(history)
        found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "store").rglob("*")}
    assert found.pop("sealed") == 0o700
    assert set(found.values()) == {0o600}
    assert {"history.db", "history.db-wal", f"{1:012d}.parquet"} <= set(found)


def test_reading_goes_on_while_writing(tmp_path: Path) -> None:
    with opened(tmp_path) as history:
        sessions = [begin(history, rank=rank) for rank in range(3)]
        problems: list[BaseException] = []

        def read() -> None:
            try:
                for _ in range(20):
                    found = read_all(history, limit=10)
                    for rank in range(3):
                        mine = [number for one, number in found if one == rank]
                        assert mine == list(range(len(mine)))
            except BaseException as error:
                problems.append(error)

        readers = [threading.Thread(target=read) for _ in range(2)]
        for reader in readers:
            reader.start()
        for number in range(40):
            history.checkpoint([checkpoint(session, number) for session in sessions])
            if number % 5 == 0:
                seal_all(history)
        for reader in readers:
            reader.join()
        assert problems == []
