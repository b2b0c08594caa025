"""The history's folder after a crash, on a full disk, with foreign or damaged things in it."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from deepprof.live.service.folder import StoreError
from deepprof.live.service.history import History
from deepprof.live.service.history.sealed import list_sealed
from tests.deepprof.live.service.history.building import (
    begin,
    checkpoint,
    opened,
    read_all,
    seal_all,
)


def test_leftovers_of_a_crash_are_removed(tmp_path: Path) -> None:
    with opened(tmp_path) as history:
        history.checkpoint([checkpoint(begin(history), 1, 2)])
        seal_all(history)
    sealed = tmp_path / "sealed"
    (sealed / f"{2:012d}.parquet.tmp").write_bytes(b"half")
    (sealed / f"{2:012d}.parquet").write_bytes((sealed / f"{1:012d}.parquet").read_bytes())
    (sealed / f"{9:012d}.parquet").write_bytes(b"whose?")
    (sealed / "notes.txt").write_text("mine")
    with opened(tmp_path) as history:
        assert sorted(path.name for path in sealed.iterdir()) == [
            f"{1:012d}.parquet",
            f"{9:012d}.parquet",
            "notes.txt",
        ]
        assert read_all(history) == [(0, 1), (0, 2)]


def test_lost_database_is_not_made_anew_over_sealed_files(tmp_path: Path) -> None:
    with opened(tmp_path) as history:
        history.checkpoint([checkpoint(begin(history), 1)])
        seal_all(history)
    (tmp_path / "history.db").unlink()
    for _ in range(2):
        with pytest.raises(
            StoreError, match="is missing or empty, but the store has sealed files; run `deepprof fsck --repair`"
        ):
            History.open(tmp_path)
    assert list_sealed(tmp_path / "sealed") == [1]


def test_full_disk_saves_nothing_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    with opened(tmp_path) as history:
        session = begin(history)
        history.checkpoint([checkpoint(session, 1)])
        (pages,) = history._db.execute("PRAGMA page_count").fetchone()
        history._db.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(OSError, match="No space left") as caught:
            history.checkpoint([checkpoint(session, 2), checkpoint(session, *range(3, 3000))])
        assert caught.value.errno == errno.ENOSPC
        assert read_all(history) == [(0, 1)]
        history._db.execute("PRAGMA max_page_count = 1000000")

        def refuse(*_: Any) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", refuse)
            with pytest.raises(OSError, match="No space left"):
                seal_all(history)
        assert list((tmp_path / "sealed").iterdir()) == []
        history.checkpoint([checkpoint(session, 2)])
        assert seal_all(history) == 1
        assert read_all(history) == [(0, 1), (0, 2)]


def test_lost_and_damaged_files_are_one_line(tmp_path: Path) -> None:
    with opened(tmp_path) as history:
        history.checkpoint([checkpoint(begin(history), 1)])
        seal_all(history)
        path = tmp_path / "sealed" / f"{1:012d}.parquet"
        content = path.read_bytes()
        for damaged in (b"", content[:-9], b"PAR1" * 50, content[:40] + bytes(200) + content[240:]):
            path.write_bytes(damaged)
            with pytest.raises(StoreError, match=r"^[^\n]*000001\.parquet: is a damaged Parquet file [^\n]*$"):
                history.iterations("job")
        pl.DataFrame({"x": [1]}).write_parquet(path)
        with pytest.raises(StoreError, match="has other columns"):
            history.iterations("job")
        path.unlink()
        with pytest.raises(StoreError, match="lacks a file that its ledger lists"):
            history.iterations("job")


@pytest.mark.parametrize("name", ["history.db", "history.db-wal", "history.db-shm", "history.db-journal", "sealed"])
@pytest.mark.parametrize("kind", ["link", "other", "pipe"])
def test_nothing_is_written_through_links_or_into_foreign_things(tmp_path: Path, name: str, kind: str) -> None:
    store, outside = tmp_path / "store", tmp_path / "outside"
    store.mkdir()
    outside.mkdir() if name == "sealed" else outside.write_bytes(b"precious")
    path = store / name
    if kind == "link":
        path.symlink_to(outside)
    elif kind == "pipe":
        os.mkfifo(path)
    elif name == "sealed":
        path.write_bytes(b"")
    else:
        path.mkdir()
    with pytest.raises(StoreError, match=r"^[^\n]*: is (a link|something else) where the store has a [^\n]*$"):
        History.open(store)
    assert (list(outside.iterdir()) == []) if name == "sealed" else (outside.read_bytes() == b"precious")


@pytest.mark.parametrize("content", [b"random bytes " * 100, b"SQLite format 3\0" + b"\x10\0\1\1" + bytes(4000)])
def test_files_that_are_no_database_are_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "history.db").write_bytes(content)
    with pytest.raises(StoreError, match=r"^[^\n]*history\.db: [^\n]*$"):
        History.open(tmp_path)
    assert (tmp_path / "history.db").read_bytes() == content


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("PRAGMA application_id = 7", "is a database, but no history of DeepProf"),
        ("PRAGMA user_version = 3", "is of version 3; this DeepProf reads 2; update DeepProf"),
        ("PRAGMA user_version = 0", "has other tables"),
        ("CREATE TABLE more (x)", "has other tables"),
        ("CREATE TRIGGER t AFTER INSERT ON texts BEGIN DELETE FROM sessions; END", "has other tables"),
        ("DROP TABLE texts", "has other tables"),
    ],
)
def test_other_databases_are_refused(tmp_path: Path, statement: str, problem: str) -> None:
    with opened(tmp_path):
        pass
    db = sqlite3.connect(tmp_path / "history.db", isolation_level=None)
    db.execute(statement)
    db.close()
    with pytest.raises(StoreError, match=problem):
        History.open(tmp_path)


def test_empty_file_is_a_new_history(tmp_path: Path) -> None:
    (tmp_path / "history.db").touch()
    with opened(tmp_path) as history:
        assert begin(history) == 1


def test_database_held_by_another_program_may_be_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepprof.live.service.history.schema.BUSY_S", 0.0)
    with opened(tmp_path) as history:
        session = begin(history)
        other = sqlite3.connect(tmp_path / "history.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(OSError, match="busy"):
            history.checkpoint([checkpoint(session, 1)])
        assert read_all(history) == []
        other.execute("ROLLBACK")
        other.close()
        history.checkpoint([checkpoint(session, 1)])
        assert read_all(history) == [(0, 1)]


def test_values_of_other_types_are_one_line(tmp_path: Path) -> None:
    with opened(tmp_path) as history:
        history.checkpoint([checkpoint(begin(history), 1)])
        history._db.execute("UPDATE iterations SET kernels = 'many'")
        with pytest.raises(StoreError, match="no numbers"):
            history.iterations("job")
        history._db.execute("UPDATE sessions SET at_offset = 'x'")
        with pytest.raises(StoreError, match="other types"):
            history.restore()
