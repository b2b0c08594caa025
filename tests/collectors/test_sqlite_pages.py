"""Integers read straight from the pages are what SQLite gives, or are refused; in a file of any kind."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.sqlite import sqlite_pages
from deepprof.collectors.importers.sqlite.sqlite_database import SqliteDatabase, open_database
from deepprof.collectors.importers.sqlite.sqlite_pages import PageFile, StoredColumn, UnsuitableTableError
from tests.fuzz.building import build, needs_sanitizers, runtime
from tests.manifest import path_of, rows

needs_library = pytest.mark.skipif(sqlite_pages.library() is None, reason="no compiled library here")
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")
SOURCE = Path(sqlite_pages.__file__).with_suffix(".c")
ROOT = Path(__file__).resolve().parents[2]

VALUES = st.one_of(
    st.none(),
    st.sampled_from([0, 1, -1, 127, 128, -128, -129, 32767, -32769, 2**23, -(2**23) - 1, 2**31, 2**47, -(2**47) - 1]),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=20),
    st.binary(max_size=600),
)


def write(path: Path, *script: str, page_size: int = 4096, records: object = ()) -> Path:
    """Write a database with the statements of `script`; the last one is run for each of `records`, if there are any."""
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA page_size = {page_size}")
        *first, last = script
        for statement in first:
            connection.execute(statement)
        connection.executemany(last, records) if records else connection.execute(last)
        connection.commit()
    return path


def both(path: Path, table: str = "t") -> tuple[object, object]:
    """Return the integers of all columns of `table` from the pages, or "refused", and from SQLite."""
    with open_database(path) as database:
        names = list(database.columns(table))
        ways = SqliteDatabase._from_pages, SqliteDatabase._from_rows
        pages, sqlite = (outcome(way, database, table, names) for way in ways)
        return pages, sqlite


def outcome(read, database: SqliteDatabase, table: str, names: list[str]) -> object:
    try:
        return {name: values.to_list() for name, values in read(database, table, names).items()}
    except UnsuitableTableError:
        return "refused"
    except TraceError:
        return "damaged"


@needs_library
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    records=st.lists(st.tuples(VALUES, VALUES, VALUES), min_size=1, max_size=60),
    copies=st.sampled_from([1, 1, 20]),
    page_size=st.sampled_from([512, 1024, 4096, 65536]),
)
def test_any_values_are_read_as_sqlite_reads_them(tmp_path, records, copies, page_size):
    script = "CREATE TABLE t (a INTEGER NOT NULL DEFAULT 7, b, c TEXT)", "INSERT OR IGNORE INTO t VALUES (?, ?, ?)"
    path = write(tmp_path / "a.sqlite", *script, page_size=page_size, records=records * copies)
    pages, sqlite = both(path)
    if pages == "refused":  # a value that begins on one page and ends on another
        assert any(isinstance(value, bytes) and len(value) > 100 for record in records for value in record)
    else:
        assert pages == sqlite


UNUSUAL = {
    "the rowid": ("CREATE TABLE t (a INTEGER PRIMARY KEY, b)", True),
    "the rowid among others": ("CREATE TABLE t (b, a INTEGER NOT NULL, PRIMARY KEY (a))", True),
    "a key that is none": ("CREATE TABLE t (a INTEGER PRIMARY KEY DESC, b)", True),
    "an INT key": ("CREATE TABLE t (a INT PRIMARY KEY, b)", True),
    "two keys": ("CREATE TABLE t (a INTEGER, b INTEGER, PRIMARY KEY (a, b))", True),
    "a stored computed column": ("CREATE TABLE t (x AS (a * 2) STORED, a INTEGER, b)", True),
    "a computed column": ("CREATE TABLE t (x AS (a * 2) VIRTUAL, a INTEGER, b)", True),
    "a table that is an index": ("CREATE TABLE t (a INTEGER PRIMARY KEY, b) WITHOUT ROWID", False),
    "a column of floats": ("CREATE TABLE t (a INTEGER, b DOUBLE PRECISION)", False),
}


@needs_library
@pytest.mark.parametrize(("table", "is_read"), UNUSUAL.values(), ids=UNUSUAL)
def test_unusual_tables_are_read_alike_or_refused(tmp_path, table, is_read):
    records = [(at, at % 7) for at in range(-500, 500)]
    pages, sqlite = both(write(tmp_path / "a.sqlite", table, "INSERT INTO t (a, b) VALUES (?, ?)", records=records))
    assert (pages == sqlite) if is_read else (pages == "refused")
    assert sorted(sqlite["a"]) == [at for at, _ in records]


@needs_library
@pytest.mark.parametrize(
    ("column", "is_read"), [("b", True), ("b INTEGER DEFAULT 5", False), ("b DEFAULT NULL", False)]
)
def test_a_column_added_later_is_null_in_older_rows_or_left_to_sqlite(tmp_path, column, is_read):
    added = f"ALTER TABLE t ADD COLUMN {column}"
    path = write(tmp_path / "a.sqlite", "CREATE TABLE t (a)", "INSERT INTO t VALUES (1)", added)
    pages, sqlite = both(path)
    assert (pages == sqlite) if is_read else (pages == "refused")
    assert sqlite["b"] == ([5] if "5" in column else [None])


@needs_library
def test_pages_out_of_order_keep_their_rows_in_order(tmp_path):
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        for table in ("t", "u"):
            connection.execute(f"CREATE TABLE {table} (a, b)")
        for start in range(0, 5000, 100):
            for table in ("t", "u"):
                connection.executemany(
                    f"INSERT INTO {table} VALUES (?, ?)", [(n, n * 3) for n in range(start, start + 100)]
                )
        connection.execute("DELETE FROM t WHERE a % 5 = 0")
        connection.executemany("INSERT INTO t (rowid, a) VALUES (?, ?)", [(n, -n) for n in range(1, 5000, 50)])
        connection.commit()
    for table in ("t", "u"):
        pages, sqlite = both(path, table)
        assert pages == sqlite
    assert len(sqlite["a"]) == 5000


@needs_library
@pytest.mark.parametrize("page_size", [512, 65536])
def test_an_empty_table_and_pages_of_every_size(tmp_path, page_size):
    path = write(tmp_path / "a.sqlite", "CREATE TABLE t (a, b)", page_size=page_size)
    assert both(path) == ({"a": [], "b": []}, {"a": [], "b": []})


@needs_library
@pytest.mark.traces
@pytest.mark.parametrize("row", rows("nsys-sqlite", "rpd", "nvprof-sqlite"))
def test_every_table_of_real_files_is_read_as_sqlite_reads_it(row, traces):
    with open_database(path_of(row)) as database:
        names = sorted(database.tables)
        found = {name: both(database.path, name) for name in names if database.columns(name)}
    assert all(pages in ("refused", sqlite) for pages, sqlite in found.values())
    events = [name for name in names if "CUPTI_ACTIVITY_KIND" in name or name in ("rocpd_op", "NVTX_EVENTS")]
    read = [found[name][0] for name in events if not name.startswith("NVTX")]
    assert "refused" not in read or row["format"] == "nvprof-sqlite"


def damage(content: bytes, rng: random.Random) -> bytes:
    """Return `content` with bytes changed behind the first page, often where pages keep their structure."""
    page_size = int.from_bytes(content[16:18], "big")
    broken = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 20))):
        page = rng.randrange(1, len(content) // page_size) * page_size
        at = page + (rng.randrange(16) if rng.random() < 0.5 else rng.randrange(page_size))
        broken[at] = rng.choice((0, 1, 5, 10, 13, 127, 128, 255, rng.randrange(256)))
    return bytes(broken)


def survive(path: Path, seed: int, count: int) -> tuple[int, int]:
    """Damage the database `path` `count` times; return how often the pages were read and how often refused."""
    content, rng, read, refused = path.read_bytes(), random.Random(seed), 0, 0
    for _ in range(count):
        path.write_bytes(damage(content, rng))
        pages, sqlite = both(path)
        assert pages == "refused" or sqlite in (pages, "damaged")
        read, refused = read + (pages != "refused"), refused + (pages == "refused")
    return read, refused


def sample(path: Path) -> Path:
    """Write a table on a few dozen small pages under two levels of others."""
    rng = random.Random(5)
    values = [None, 1, -5, 300, 2**40, -(2**62), 1.5, "text", b"bytes"]
    records = [tuple(rng.choice(values) for _ in range(4)) for _ in range(900)]
    script = "CREATE TABLE t (a INTEGER, b, c, d)", "INSERT INTO t VALUES (?, ?, ?, ?)"
    return write(path, *script, page_size=512, records=records)


@needs_library
@pytest.mark.parametrize("seed", range(3))
def test_damage_is_refused_or_read_as_sqlite_reads_it(tmp_path, seed):
    read, refused = survive(sample(tmp_path / "a.sqlite"), seed, 150)
    assert read > 10
    assert refused > 10


@needs_library
def test_a_tree_in_circles_and_a_file_cut_short_are_refused(tmp_path):
    path = sample(tmp_path / "a.sqlite")
    whole = path.read_bytes()
    assert whole[512] == sqlite_pages.INTERIOR  # the table's root is page 2
    path.write_bytes(whole[: 512 + 8] + (2).to_bytes(4, "big") + whole[512 + 12 :])
    assert both(path) == ("refused", "damaged")
    path.write_bytes(whole[: len(whole) // 2])  # which SQLite does not open at all
    with path.open("rb", buffering=0) as file, pytest.raises(UnsuitableTableError, match="more pages than there are"):
        sqlite_pages.read_integers(PageFile.of(file), 2, [StoredColumn(0)])


@needs_compiler
def test_the_source_compiles_without_warnings(tmp_path):
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, "-o", tmp_path / "library.so", SOURCE], check=True)


@pytest.fixture
def fresh_library():
    sqlite_pages.library.cache_clear()
    yield
    sqlite_pages.library.cache_clear()


def test_without_the_library_sqlite_answers(tmp_path, monkeypatch, fresh_library):
    monkeypatch.setenv("DEEPPROF_NATIVE", "0")
    path = write(tmp_path / "a.sqlite", "CREATE TABLE t (a, b)", "INSERT INTO t VALUES (1, 'x')")
    assert both(path)[0] == "refused"
    with open_database(path) as database:
        assert database.integers("t", {"a": None, "b": None, "c": 3}).rows() == [(1, None, 3)]


@needs_compiler
def test_a_library_of_another_version_counts_as_absent(tmp_path, monkeypatch):
    path = tmp_path / "library.so"
    subprocess.run(["cc", "-std=c11", "-shared", "-fPIC", "-o", path, SOURCE], check=True)
    assert sqlite_pages.load(path) is not None
    monkeypatch.setattr(sqlite_pages, "VERSION", sqlite_pages.VERSION + 1)
    assert sqlite_pages.load(path) is None


def test_a_file_that_is_no_library_counts_as_absent(tmp_path):
    (tmp_path / "library.so").write_bytes(b"no library")
    assert sqlite_pages.load(tmp_path / "library.so") is None


SANITIZED = """
import sys
from pathlib import Path
from deepprof.collectors.importers.sqlite import sqlite_pages
found = sqlite_pages.load(Path(sys.argv[1]))
assert found is not None
sqlite_pages.library = lambda: found
from tests.collectors.test_sqlite_pages import sample, survive
print(*survive(sample(Path(sys.argv[2])), 11, 400))
"""


@needs_sanitizers
def test_damaged_pages_lead_nowhere_outside_of_them(tmp_path):
    """In its own process, which loads the sanitizers first; leaks of Python itself are not counted."""
    library = build(tmp_path / "library.so", SOURCE, "-shared", "-fPIC")
    environment = {"LD_PRELOAD": runtime(), "ASAN_OPTIONS": "detect_leaks=0", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", SANITIZED, library, tmp_path / "a.sqlite"]
    done = subprocess.run(command, env=os.environ | environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    read, refused = map(int, done.stdout.split())
    assert min(read, refused) > 20
