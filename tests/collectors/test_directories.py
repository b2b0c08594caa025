"""What a directory of traces contains next to them: read once, or named with the reason."""

import json
import os
import zipfile

import pytest

from deepprof import job
from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.directories import list_traces
from deepprof.collectors.importers.nsys.export import REPORT_MAGIC

from .nsys_database import KERNEL as NSYS_KERNEL
from .nsys_database import build

KERNEL = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1.0, "dur": 2.0}


def write(path):
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [KERNEL]}))
    return path


def pack(path, *files):
    with zipfile.ZipFile(path, "w") as archive:
        for file in files:
            archive.write(file, file.name)
            file.unlink()
    return path


def test_a_report_beside_its_export_is_left(tmp_path):
    export = build(tmp_path / "run.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=[NSYS_KERNEL])
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(REPORT_MAGIC)
    os.utime(report, (0, 0))
    found = list_traces(tmp_path)
    assert found.traces == [export]
    assert found.notes == ("the export of run.nsys-rep was read, the report beside it was left",)
    (trace,) = job.read_job(tmp_path)
    assert found.notes[0] in trace.notes
    os.utime(export, (0, 0))
    os.utime(report, (9, 9))
    assert "newer than its export: export it again" in list_traces(tmp_path).notes[0]


def test_a_report_named_beside_its_export_is_left(tmp_path):
    export = build(tmp_path / "run.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=[NSYS_KERNEL])
    report, other = tmp_path / "run.nsys-rep", tmp_path / "other.nsys-rep"
    report.write_bytes(REPORT_MAGIC)
    other.write_bytes(REPORT_MAGIC)
    found = job.find_files([report, export, other])
    assert found.paths == [export, other]
    assert found.notes == list_traces(tmp_path).notes
    assert job.find_files(str(tmp_path / "run.*")).paths == [export]
    assert job.find_files([report]).paths == [report]


def test_a_report_that_cannot_be_read_names_its_export(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(REPORT_MAGIC)
    with pytest.raises(TraceError, match="where nsys is installed, run"):
        job.read_job(report)
    (tmp_path / "run.sqlite").touch()
    with pytest.raises(TraceError, match=r"name its export, .*run\.sqlite"):
        job.read_job(report)


def test_a_report_whose_export_is_another_file_is_read(tmp_path):
    build(tmp_path / "run.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=[NSYS_KERNEL])
    (tmp_path / "other.nsys-rep").write_bytes(REPORT_MAGIC)
    assert [path.name for path in list_traces(tmp_path).traces] == ["other.nsys-rep", "run.sqlite"]


def test_what_is_not_read_is_named_with_the_reason(tmp_path):
    write(tmp_path / "rank0.json")
    (tmp_path / "README.md").write_text("# About these traces\n")
    (tmp_path / "broken.json.gz").write_bytes(b"\x1f\x8bnothing")
    (tmp_path / "gone.json").symlink_to(tmp_path / "absent")
    (tmp_path / "notes.txt").write_text("later\n")
    (note,) = list_traces(tmp_path).notes
    assert note.startswith(f"not read in {tmp_path}: broken.json.gz (is ")
    assert note.endswith(
        "gone.json (a link that leads nowhere), README.md (looks like text of an unknown kind), and 1 more"
    )


def test_a_directory_of_nothing_but_broken_files_says_why(tmp_path):
    (tmp_path / "rank0.json.gz").write_bytes(b"\x1f\x8bnothing")
    with pytest.raises(TraceError, match=r"holds no trace; not read in .*: rank0\.json\.gz \(is "):
        list_traces(tmp_path)


def test_a_folder_that_cannot_be_listed_is_named(tmp_path, monkeypatch):
    own = write(tmp_path / "rank0.json")
    (tmp_path / "secret").mkdir()
    iterdir = type(tmp_path).iterdir

    def refuse(path):
        if path.name == "secret":
            raise PermissionError(13, "Permission denied")
        return iterdir(path)

    monkeypatch.setattr(type(tmp_path), "iterdir", refuse)
    found = list_traces(tmp_path)
    assert found.traces == [own]
    assert found.notes == (f"not read in {tmp_path}: secret (cannot be listed: Permission denied)",)
    with pytest.raises(TraceError, match="cannot be listed"):
        list_traces(tmp_path / "secret")


def test_a_directory_of_one_archive_is_that_archive(tmp_path):
    archive = pack(tmp_path / "job.zip", write(tmp_path / "rank0.json"), write(tmp_path / "rank1.json"))
    (tmp_path / "README.md").write_text("# About these traces\n")
    assert list_traces(tmp_path).traces == [archive]
    traces = job.read_job(tmp_path)
    assert [trace.path for trace in traces] == [f"{archive}:rank0.json", f"{archive}:rank1.json"]
    assert "README.md" in traces[0].notes[0]


def test_several_archives_are_named_by_who_wants_them(tmp_path):
    for number in (2, 10):
        pack(tmp_path / f"job{number}.zip", write(tmp_path / "rank0.json"))
    with pytest.raises(TraceError) as caught:
        list_traces(tmp_path)
    assert caught.value.problem == "holds no trace but 2 archives"
    assert caught.value.advice.endswith(f"`deepprof diagnose {tmp_path}/job2.zip {tmp_path}/job10.zip`")


def test_an_archive_beside_traces_is_left(tmp_path):
    pack(tmp_path / "job.zip", write(tmp_path / "rank0.json"))
    own = write(tmp_path / "rank0.json")
    found = list_traces(tmp_path)
    assert found.traces == [own]
    assert found.notes == (f"not read in {tmp_path}: job.zip (an archive beside traces, named by itself it is read)",)


def test_a_directory_of_links_to_traces_is_a_job(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "job").mkdir()
    for rank in (10, 2):
        target = write(tmp_path / "data" / f"{rank}.json")
        (tmp_path / "job" / f"rank{rank}.json").symlink_to(target)
    (tmp_path / "job" / "more").symlink_to(tmp_path / "data")
    (tmp_path / "job" / "up").symlink_to(tmp_path / "job")
    (tmp_path / "job" / "pipe").symlink_to("/dev/zero")
    found = list_traces(tmp_path / "job")
    assert [path.name for path in found.traces] == ["rank2.json", "rank10.json"]
    assert "more (a link to a directory, which is not followed)" in found.notes[0]
    assert "pipe (no regular file)" in found.notes[0]
    assert [trace.rank for trace in job.read_job(tmp_path / "job")] == [2, 10]


def test_the_manifest_of_a_store_is_no_stranger(tmp_path):
    from deepprof.job.conversion import convert

    for rank in range(2):
        write(tmp_path / f"rank{rank}.json")
    convert([tmp_path / "rank0.json", tmp_path / "rank1.json"], tmp_path / "job.deepprof")
    assert list_traces(tmp_path).notes == ()
