"""Columns of SQLite tables, and databases that must not be opened by themselves."""

from __future__ import annotations

import shutil
import sqlite3

import polars as pl
import pytest

from deepprof.collectors import importers
from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.sqlite.sqlite_database import VALUE_NBYTES, open_database
from tests.collectors.nsys_database import KERNEL, build, read, rows


def test_constant_and_varying_columns_are_read_alike(tmp_path):
    content = [{"a": 1, "b": None, "c": at, "d": None if at % 2 else at, "e": "text"} for at in range(1000)]
    with open_database(build(tmp_path / "a.sqlite", t=content)) as database:
        found = database.integers("t", {**dict.fromkeys("abcde"), "missing": 4})
        constant = database.integers("t", {"a": None, "missing": 4})
        absent = database.integers("none", {"a": 1})
    expected = pl.DataFrame(content).with_columns(pl.lit(None, pl.Int64).alias(c) for c in "be")
    assert found.equals(expected.with_columns(missing=pl.lit(4, pl.Int64)))
    assert constant.unique().rows() == [(1, 4)]
    assert constant.height == 1000
    assert absent.schema == {"a": pl.Int64()}
    assert absent.height == 0


def test_an_index_does_not_reorder_texts_and_numbers(tmp_path):
    path = build(tmp_path / "a.sqlite", t=[{"a": at, "b": f"{99 - at:02}"} for at in range(100)])
    connection = sqlite3.connect(path)
    connection.execute("CREATE INDEX i ON t (b)")
    connection.commit()
    connection.close()
    with open_database(path) as database:
        numbers, texts = database.integers("t", {"a": None})["a"], database.texts("t", "b")
    assert [(n, int(t)) for n, t in zip(numbers, texts, strict=True)] == [(at, 99 - at) for at in range(100)]


def test_pages_in_a_log_are_not_left_out(tmp_path):
    path, moved = tmp_path / "a.sqlite", tmp_path / "b.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end)")
    connection.commit()
    shutil.copy(path, moved)
    shutil.copy(f"{path}-wal", f"{moved}-wal")
    (tmp_path / "link.sqlite").symlink_to(path)
    for asked in (path, moved, tmp_path / "link.sqlite"):
        with pytest.raises(TraceError, match=r"has uncommitted pages beside it \([ab].sqlite-wal\); close the program"):
            read(asked)
        if "link" not in asked.name:
            with pytest.raises(TraceError, match="has uncommitted pages"):
                importers.read(asked)
    connection.close()
    assert importers.read(path).format == "nsys"


@pytest.mark.parametrize(("journal", "hot"), [(b"", False), (bytes(512), False), (b"\xd9\xd5\x05\xf9 rest", True)])
def test_a_journal_counts_while_it_is_hot(tmp_path, journal, hot):
    path = build(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=rows(KERNEL, {}))
    (tmp_path / "a.sqlite-journal").write_bytes(journal)
    if hot:
        with pytest.raises(TraceError, match=r"uncommitted pages beside it \(a.sqlite-journal"):
            read(path)
    else:
        assert read(path).device_events.height == 1


@pytest.mark.parametrize("filler", ["zeroblob(?)", "CAST(zeroblob(?) AS TEXT)"])
def test_a_value_larger_than_any_that_a_profiler_writes_is_not_read(tmp_path, filler):
    path = build(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=rows(KERNEL, {}))
    connection = sqlite3.connect(path)
    connection.execute(f"UPDATE StringIds SET value = {filler}", (VALUE_NBYTES + 1,))
    connection.commit()
    connection.close()
    with pytest.raises(TraceError, match="holds a text or blob of more than 64 MiB"):
        read(path)
    with open_database(path) as database, pytest.raises(TraceError, match="give a file written by a profiler"):
        database.texts("StringIds", "value")


def test_texts_larger_together_than_their_file_end_at_once(tmp_path):
    """Damaged rows may share their pages: what they hold together is counted row by row."""
    path = build(tmp_path / "a.sqlite", t=[{"a": "x" * 100_000} for _ in range(20)])
    with open_database(path) as database:
        database.size //= 10
        fetched = iter(database._values("SELECT a FROM t"))
        with pytest.raises(TraceError, match="more text than its size allows"):
            assert [len(next(fetched)) for _ in range(20)] == []
