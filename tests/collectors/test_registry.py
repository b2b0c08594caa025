import gzip
import json
import sqlite3

import polars as pl
import pytest

from deepprof.collectors import importers
from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers import directories
from deepprof.collectors.importers.directories import list_traces
from deepprof.collectors.trace import Accounting, Trace

KERNEL = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1.0, "dur": 2.0}


def write(path, document, compressed=False):
    content = json.dumps(document).encode()
    path.write_bytes(gzip.compress(content) if compressed else content)
    return path


@pytest.fixture
def trace():
    return {"schemaVersion": 1, "traceEvents": [KERNEL]}


def test_every_builtin_is_an_importer():
    loaded = importers.importers()
    assert [importer.name for importer in loaded[:2]] == ["kineto", "nsys"]
    assert all(isinstance(importer, importers.Importer) and importer.suffixes for importer in loaded)


def test_content_decides_and_not_the_name(tmp_path, trace):
    for name, compressed in (("a.json", False), ("b.sqlite", True), ("c", False)):
        found = importers.read(str(write(tmp_path / name, trace, compressed)))
        assert (found.format, found.device_events.height) == ("kineto", 1)


@pytest.mark.parametrize(
    ("content", "looks"),
    [
        (b"", "has zero bytes"),
        (gzip.compress(b"", mtime=0), "has zero bytes"),
        (b'{"name": "package", "schemaVersion": 2}', "JSON of something else"),
        (b"[1, 2]", "JSON of something else"),
        (b'{"traceEvents": [{"ph": "X", "name": "x", "ts": 1}]}', "Chrome trace without PyTorch's categories"),
        (b"PK\x03\x04rest", "zip archive"),
        (b"\x7fELF\x00\x01", "binary file of an unknown kind"),
        (bytes(range(128, 256)), "binary file of an unknown kind"),
        ("# Über — ⚙\n".encode(), "text of an unknown kind"),
        ("ü".encode() * 40_000 + b"x", "text of an unknown kind"),
        (b"a,b\n1,2\n", "text of an unknown kind"),
    ],
)
def test_what_is_not_recognised_is_described(tmp_path, content, looks):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=looks) as caught:
        importers.read(path)
    assert str(caught.value).endswith("`deepprof --formats` lists what is read")
    assert len(str(caught.value)) < 250
    assert "\n" not in str(caught.value)


def test_another_database_is_described(tmp_path):
    with sqlite3.connect(tmp_path / "other.sqlite") as database:
        database.execute("CREATE TABLE bookmarks (url TEXT)")
    database.close()
    with pytest.raises(TraceError, match="SQLite database of something else"):
        importers.read(tmp_path / "other.sqlite")


def test_a_missing_file_and_a_directory_are_trace_errors(tmp_path):
    with pytest.raises(TraceError, match="no such file"):
        importers.read(tmp_path / "absent.json")
    with pytest.raises(TraceError, match=r"is a directory; name a trace file in it, or .* deepprof\.read_job$"):
        importers.read(tmp_path)


def test_traces_of_a_directory(tmp_path, trace):
    (tmp_path / "sub" / "deep" / "deeper" / "deepest").mkdir(parents=True)
    (tmp_path / ".hidden").mkdir()
    expected = [write(tmp_path / name, trace) for name in ("rank1.json", "rank2.json", "sub/deep/rank0.json")]
    for name in ("sub/deep/deeper/deepest/rank9.json", ".hidden/rank8.json", ".rank7.json"):
        write(tmp_path / name, trace)
    write(tmp_path / "settings.json", {"debug": True})
    (tmp_path / "broken.json.gz").write_bytes(b"\x1f\x8bnothing")
    assert list_traces(tmp_path).traces == sorted(expected)
    assert list_traces(tmp_path / "sub" / "deep").traces == [
        tmp_path / "sub/deep/deeper/deepest/rank9.json",
        tmp_path / "sub/deep/rank0.json",
    ]


def test_links_to_files_are_followed_and_links_to_directories_are_not(tmp_path, trace):
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    target = write(outside / "secret.json", trace)
    (inside / "link.json").symlink_to(target)
    (inside / "folder").symlink_to(outside)
    own = write(inside / "own.json", trace)
    (inside / "alias.json").symlink_to(own)
    assert list_traces(inside).traces == [inside / "alias.json", inside / "link.json", own]


def test_a_directory_without_traces_says_so(tmp_path):
    (tmp_path / "readme").write_text("nothing here")
    with pytest.raises(TraceError, match="holds no trace"):
        list_traces(tmp_path)
    with pytest.raises(TraceError, match="cannot be listed: No such file"):
        list_traces(tmp_path / "absent")
    with pytest.raises(TraceError, match="cannot be listed: Not a directory"):
        list_traces(tmp_path / "readme")


def test_a_directory_is_bounded(tmp_path, trace, monkeypatch):
    monkeypatch.setattr(directories, "ENTRIES", 3)
    for index in range(3):
        write(tmp_path / f"{index}.json", trace)
    assert len(list_traces(tmp_path).traces) == 3
    write(tmp_path / "3.json", trace)
    with pytest.raises(TraceError, match="more than 3 entries"):
        list_traces(tmp_path)


def test_a_message_is_printable_whatever_it_quotes(tmp_path):
    path = tmp_path / "a\x1b[31m\udcff\u202e.json"
    error = TraceError(path, "said \x1b]0;title\x07\r\nmore", "look é 漢 again")
    assert str(error).isprintable()
    assert str(error).endswith(r"a\x1b[31m\udcff\u202e.json: said \x1b]0;title\x07\r\nmore; look é 漢 again")
    assert error.path == str(path)


def test_a_database_s_own_words_are_printable(tmp_path):
    path = tmp_path / "a.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end)")
        database.execute("CREATE TABLE StringIds (id, value)")
    database.close()
    path.write_bytes(path.read_bytes().replace(b"(id, value)", b"(id,\x1b[31mX"))
    with pytest.raises(TraceError) as caught:
        importers.read(path)
    assert str(caught.value).isprintable()


def test_links_in_circles_are_passed_over(tmp_path, trace):
    own = write(tmp_path / "own.json", trace)
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert list_traces(tmp_path).traces == [own]
    with pytest.raises(TraceError, match="cannot be listed"):
        list_traces(tmp_path / "a")


def test_what_an_importer_covers_is_not_read_twice(tmp_path, trace, monkeypatch):
    class Pairs:
        name, suffixes = "pairs", (".a",)

        def accepts(self, head, path):
            return path.suffix in {".a", ".b"}

        def read(self, path, *, details=False, shapes=True):
            raise NotImplementedError

        def covers(self, path):
            return [path.with_suffix(".b")] if path.suffix == ".a" else []

    monkeypatch.setattr(importers, "each_importer", lambda: (Pairs(),))
    for name in ("one.a", "one.b", "two.b"):
        (tmp_path / name).write_text("x")
    assert list_traces(tmp_path).traces == [tmp_path / "one.a", tmp_path / "two.b"]


def test_a_directory_may_be_a_trace(tmp_path, monkeypatch):
    class Folder:
        name, suffixes = "folder", ()

        def accepts(self, head, path):
            return not head and (path / "manifest").exists()

        def read(self, path, *, details=False, shapes=True):
            names = pl.Series([], dtype=pl.String)
            return Trace(path=path.name, format="folder", names=names, accounting=Accounting(0, 0))

    monkeypatch.setattr(importers, "each_importer", lambda: (Folder(),))
    (tmp_path / "job" / "part").mkdir(parents=True)
    (tmp_path / "job" / "manifest").touch()
    assert list_traces(tmp_path).traces == list_traces(tmp_path / "job").traces == [tmp_path / "job"]
    assert importers.read(tmp_path / "job").path == "job"


def test_a_name_that_no_system_takes_is_a_trace_error(tmp_path):
    with pytest.raises(TraceError, match="name too long"):
        importers.read(tmp_path / ("x" * 5000))
