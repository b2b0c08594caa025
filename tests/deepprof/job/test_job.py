from pathlib import Path

import pytest

from deepprof import job
from deepprof.collectors import importers
from deepprof.collectors.errors import TraceError, UsageError
from deepprof.collectors.importers import directories
from tests.deepprof.builders import build_trace


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Three files, and an importer that takes every one of them as a trace without a rank."""
    for name in ("a.json", "b.json", "[c].json"):
        (tmp_path / name).write_text("{}")
    monkeypatch.setattr(importers, "read", lambda path, **_: build_trace(str(path), rank=None))
    monkeypatch.setattr(
        directories, "list_traces", lambda path: directories.DirectoryListing(sorted(Path(path).iterdir()))
    )
    return tmp_path


def names(paths):
    return [path.name for path in paths]


def test_files_directories_and_globs(files):
    assert names(job.find_paths([f"{files}/b.json", f"{files}/a.json"])) == ["b.json", "a.json"]
    assert names(job.find_paths([f"{files}/?.json"])) == ["a.json", "b.json"]
    assert names(job.find_paths([str(files)])) == ["[c].json", "a.json", "b.json"]


def test_a_file_that_looks_like_a_glob_is_a_file(files):
    assert names(job.find_paths([f"{files}/[c].json"])) == ["[c].json"]


def test_a_file_named_twice_is_read_once(files):
    assert names(job.find_paths([f"{files}/a.json", f"{files}/../{files.name}/a.json", str(files)])) == [
        "a.json",
        "[c].json",
        "b.json",
    ]


def test_a_glob_without_a_match_and_no_path_at_all(files):
    with pytest.raises(TraceError, match="no file matches"):
        job.find_paths([f"{files}/*.sqlite"])
    with pytest.raises(UsageError):
        job.read_job([])


def test_a_single_path_need_not_stand_in_a_list(files):
    assert names(job.find_paths(f"{files}/a.json")) == ["a.json"]
    assert names(job.find_paths(files / "a.json")) == ["a.json"]
    assert names(job.find_paths([files / "a.json"])) == ["a.json"]


def test_standard_input_is_said_to_be_none():
    with pytest.raises(UsageError, match="standard input"):
        job.find_paths(["-"])


@pytest.mark.parametrize("path", ["a\0b", "a" * 5000, "a\0*"])
def test_a_path_that_no_system_takes(path):
    with pytest.raises(TraceError):
        job.read_job([path])


@pytest.mark.parametrize("paths", ["", [""], ["x", ""], []])
def test_an_empty_path_is_not_the_current_directory(paths):
    with pytest.raises(UsageError, match="name"):
        job.find_paths(paths)


def test_a_loop_of_links_is_no_traceback(files):
    (files / "loop").symlink_to("loop")
    assert names(job.find_paths([f"{files}/loop"])) == ["loop"]


def test_one_bad_file_among_several_may_be_left_out(files, monkeypatch):
    def refuse(path, **_):
        raise TraceError(path, "is cut off", "record it again")

    monkeypatch.setattr(importers, "read", refuse)
    with pytest.raises(TraceError, match=r"record it again, or leave it out$") as caught:
        job.read_job([str(files)])
    assert caught.value.path.endswith("[c].json")
    with pytest.raises(TraceError, match=r"record it again$"):
        job.read_job([f"{files}/a.json"])


def test_one_trace_is_rank_0_without_a_word(files):
    (trace,) = job.read_job([f"{files}/a.json"])
    assert (trace.rank, trace.notes) == (0, ())


def test_traces_without_a_rank_get_one_and_a_note(files):
    traces = job.read_job([str(files)])
    assert [trace.rank for trace in traces] == [0, 1, 2]
    assert traces[0].notes[0] == "[c].json names no rank; it is counted as rank 0"
    assert "clocks differ is not measured" in traces[0].notes[1]


def test_clashing_ranks_get_the_next_free_numbers():
    ranks = [(3, "a"), (0, "b"), (3, "c"), (None, "d"), (1, "e")]
    numbered = job.number_ranks(build_trace(path, rank=rank) for rank, path in ranks)
    assert [(trace.rank, trace.path) for trace in numbered] == [(0, "b"), (1, "e"), (2, "c"), (3, "a"), (4, "d")]
    assert [bool(trace.notes) for trace in numbered] == [False, False, True, False, True]
    assert "rank 3, which another file has" in numbered[2].notes[0]


def test_what_lies_beside_traces_is_a_note_on_the_first_rank(files, monkeypatch):
    listing = directories.DirectoryListing(sorted(files.iterdir()), ("not read: x",))
    monkeypatch.setattr(directories, "list_traces", lambda path: listing)
    traces = job.read_job([str(files), str(files)])
    assert [trace.notes.count("not read: x") for trace in traces] == [1, 0, 0]
    assert traces[0].notes[0] == "not read: x"
