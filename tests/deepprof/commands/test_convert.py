"""`deepprof convert`, and `deepprof diagnose` of what it wrote: the same report, to the byte."""

import io
import json
import os
import re
import shutil
from pathlib import Path

import pytest

import deepprof
from deepprof.commands import main, progress
from deepprof.commands.arguments import parse_time
from deepprof.simulation import simulate, write
from tests import manifest
from tests.widening import first_of_each


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    for rank in range(2):
        write(simulate("healthy", iterations=6, seed=rank), folder / f"rank{rank}.json.gz")
    return folder


@pytest.fixture
def store(ranks, tmp_path, capsys):
    target = tmp_path / "job.deepprof"
    assert main(["convert", str(ranks), "-o", str(target)]) == 0
    capsys.readouterr()
    return target


def complaint(capsys, *argv):
    """The one line that a command which cannot be carried out states."""
    assert main(list(argv)) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("deepprof: ")
    assert "Traceback" not in err
    return err


def report(capsys, *argv):
    assert main(["diagnose", "--format", "json", *map(str, argv)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_it_says_what_it_wrote_and_what_it_dropped(ranks, tmp_path, capsys):
    assert main(["convert", str(ranks), "-o", f"{tmp_path}/job.deepprof"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    counts = [trace.accounting for trace in deepprof.read_job(ranks)]
    read, kept = (sum(getattr(count, name) for count in counts) for name in ("read", "kept"))
    reasons = {reason: sum(count.dropped.get(reason, 0) for count in counts) for reason in counts[0].dropped}
    assert f"job.deepprof: 2 ranks, {kept:,} of {read:,} records kept, dropped: " in err
    assert all(f"{reason} {count:,}" in err for reason, count in reasons.items())
    assert re.search(r"; \d+\.\d MB\n$", err)


def test_it_says_what_lies_beside_the_traces_and_is_not_in_the_store(tmp_path, capsys):
    write(simulate("healthy", iterations=3), tmp_path / "rank0.json.gz")
    (tmp_path / "rank1.json.gz").write_bytes(b"\x1f\x8bnothing")
    assert main(["convert", str(tmp_path), "-o", f"{tmp_path}/job.deepprof"]) == 0
    note, line = capsys.readouterr().err.splitlines()
    assert note.startswith(f"note: not read in {tmp_path}: rank1.json.gz (")
    assert "job.deepprof: 1 rank, " in line


def test_the_report_is_the_same_to_the_byte(ranks, store, capsys):
    assert report(capsys, store) == report(capsys, ranks)
    assert report(capsys, store / "rank=1") == report(capsys, ranks / "rank1.json.gz")
    span = ["--from", "2ms", "--to", "60ms"]
    part = report(capsys, store, *span)
    assert part == report(capsys, ranks, *span)
    assert json.loads(part)["trace"]["accounting"]["dropped"]["out-of-range"] > 0


@pytest.mark.traces
@pytest.mark.parametrize("row", first_of_each("format", manifest.rows()))
def test_the_report_of_a_real_trace_is_the_same_to_the_byte(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], row: dict[str, str]
) -> None:
    path, target = str(manifest.path_of(row)), str(tmp_path / "job.deepprof")
    try:
        deepprof.read(path)
    except deepprof.TraceError:
        assert main(["convert", path, "-o", target]) == 2
        assert list(tmp_path.iterdir()) == []
        return
    assert main(["convert", path, "-o", target]) == 0
    capsys.readouterr()
    assert report(capsys, target) == report(capsys, path)


@pytest.mark.traces
def test_two_ranks_of_a_real_job(traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [
        str(traces / f"{name}.json.gz") for name in ("hta-filter-r1/sampled_rank-1", "hta-timeline/sampled_rank-0")
    ]
    assert main(["convert", *paths, "-o", f"{tmp_path}/job.deepprof", "--jobs", "2"]) == 0
    said = capsys.readouterr().err
    assert "2 ranks" in said
    assert sorted(path.name for path in (tmp_path / "job.deepprof").glob("rank=*")) == ["rank=0", "rank=1"]
    assert report(capsys, f"{tmp_path}/job.deepprof") == report(capsys, *paths)
    assert [trace.rank for trace in deepprof.read_job(paths)] == [0, 1]


def test_a_table_whose_columns_are_named(tmp_path, capsys):
    rows = "".join(f"{10 * i},{10 * i + 4},k{i % 3}\n" for i in range(60))
    (tmp_path / "own.csv").write_text("Begin,Finish,What\n" + rows)
    named = ["--columns", "start=Begin,end=Finish,name=What,unit=us"]
    assert main(["convert", f"{tmp_path}/own.csv", "-o", f"{tmp_path}/job.deepprof", *named]) == 0
    capsys.readouterr()
    assert report(capsys, f"{tmp_path}/job.deepprof") == report(capsys, f"{tmp_path}/own.csv", *named)


def test_a_store_is_replaced_whole(ranks, store, capsys):
    assert main(["convert", str(ranks / "rank1.json.gz"), "-o", str(store)]) == 0
    assert sorted(path.name for path in store.iterdir()) == ["deepprof.json", "rank=0"]
    assert main(["convert", str(store), "-o", str(store)]) == 0  # of itself
    assert deepprof.open_store(store).read().path.endswith("rank1.json.gz")
    assert [path.name for path in store.parent.iterdir()] == [store.name]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["convert"], "PATH"),
        (["convert", "x"], "-o"),
        (["convert", "x", "-o", ""], "-o names no directory"),
        (["convert", "x", "-o", "-"], "-o names no directory"),
        (["convert", "x", "-o", "/dev/stdout/x"], "-o"),
        (["convert", "x", "-o", "y", "--jobs", "0"], "'0' is not a number of processes from 1 to 64"),
        (["convert", "x", "-o", "y", "--jobs", "many"], "is not a number of processes"),
        (["convert", "x", "-o", "y", "--format", "zip"], "unrecognized arguments"),
        (["diagnose", "x", "--jobs", "65"], "from 1 to 64"),
        (["diagnose", "x", "--from", "2.5"], "'2.5' is not a time with its unit"),
        (["diagnose", "x", "--to", "-1s"], "--to"),
        (["diagnose", "x", "--to", "9" * 5000 + "s"], "is not a time"),
        (["diagnose", "x", "--from", "2s", "--to", "1s"], "holds nothing"),
        (["diagnose", "x", "--to", "0s"], "holds nothing"),
    ],
    ids=lambda value: None if isinstance(value, str) else " ".join(value)[:40],
)
def test_wrong_usage_is_one_line_and_exit_2(capsys, argv, words):
    said = complaint(capsys, *argv)
    assert words in said
    assert len(said) < 350


def test_input_that_cannot_be_read_leaves_nothing(capsys, tmp_path):
    text, empty, target = tmp_path / "notes.txt", tmp_path / "empty", tmp_path / "job.deepprof"
    text.write_text("no trace")
    empty.mkdir()
    for path in (text, empty, tmp_path / "absent"):
        assert str(path) in complaint(capsys, "convert", str(path), "-o", str(target))
    assert not target.exists()
    assert len(list(tmp_path.iterdir())) == 2


def test_a_broken_rank_leaves_the_old_store_as_it_was(capsys, ranks, store, tmp_path):
    bad = tmp_path / "bad.json.gz"
    bad.write_bytes((ranks / "rank0.json.gz").read_bytes()[:3000])
    before = report(capsys, store)
    assert "or leave it out" in complaint(capsys, "convert", str(ranks), str(bad), "-o", str(store))
    assert report(capsys, store) == before


def test_a_target_that_is_no_store_is_told_before_any_work(capsys, ranks, tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "notes.txt").write_text("mine")
    for name, words in (("file", "is a file"), ("dir", "notes.txt"), ("absent/job", "there is no directory")):
        assert words in complaint(capsys, "convert", "never looked at", "-o", f"{tmp_path}/{name}")
    assert (tmp_path / "file").read_text() == (tmp_path / "dir" / "notes.txt").read_text() == "mine"


def test_a_place_where_nothing_can_be_written(capsys, ranks, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "not writable" in complaint(capsys, "convert", str(ranks), "-o", f"{tmp_path}/job")
    monkeypatch.setattr(os, "access", lambda *_: True)
    assert "/proc" in complaint(capsys, "convert", str(ranks), "-o", "/proc/job.deepprof")


def test_a_pipe_is_no_place_for_a_store(capsys, ranks, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/null"):
        assert "is a file" in complaint(capsys, "convert", str(ranks), "-o", str(path))


def test_a_full_disk_is_a_line(capsys, ranks, tmp_path, monkeypatch):
    def fill(*_):
        raise OSError(28, "No space left on device", "names.parquet")

    monkeypatch.setattr("deepprof.collectors.store.rank.write_table", fill)
    assert "No space left" in complaint(capsys, "convert", str(ranks), "-o", f"{tmp_path}/job.deepprof")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_store_is_a_line(capsys, store):
    shutil.rmtree(store / "rank=1")
    assert "no folder of a rank" in complaint(capsys, "diagnose", str(store))
    (store / "deepprof.json").write_text('{"schema": "deepprof.store/9"}')
    assert "update DeepProf" in complaint(capsys, "diagnose", str(store))


def test_a_range_beyond_the_trace_is_a_line(capsys, ranks, store):
    for path in (ranks, store):
        for beyond in ("9min", "999999999999min"):
            assert "no device event" in complaint(capsys, "diagnose", str(path), "--from", beyond)


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("2.5s", 2_500_000_000),
        ("300ms", 300_000_000),
        ("1us", 1000),
        ("7ns", 7),
        ("2min", 120 * 10**9),
        ("0s", 0),
        ("0.0000000019s", 1),
        ("1.000000000001s", 10**9),
    ],
)
def test_times_are_exact(text, nanoseconds):
    assert parse_time(text) == nanoseconds


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


def test_a_terminal_sees_a_bar_for_several_traces_and_none_for_one(ranks, monkeypatch):
    shown = {}
    for name, path in (("one", ranks / "rank0.json.gz"), ("two", ranks)):
        screen = Terminal()
        monkeypatch.setattr("sys.stderr", screen)
        monkeypatch.setenv("TERM", "xterm")
        with progress.reading() as watch:
            deepprof.job.read_job(path, watch=watch)
        shown[name] = screen.getvalue()
    assert "2 of 2 traces" in shown["two"]
    assert "reading" in shown["one"]
    assert "of 1" not in shown["one"]


def test_nobody_who_does_not_watch_sees_a_bar():
    with progress.reading() as watch:
        assert watch is None
