"""Raw Nsight Systems reports, through an `nsys` that the test puts on PATH."""

from __future__ import annotations

import os
import shlex
import sqlite3
import sys
import tempfile
from pathlib import Path

import pytest

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.nsys import Nsys
from deepprof.collectors.importers.nsys import export as nsys_export

MAGIC = b"NVIDIA Tegra Profiler Report 2025@5"


@pytest.fixture
def report(tmp_path) -> Path:
    path = tmp_path / "my report.nsys-rep"
    path.write_bytes(MAGIC + b"\0" * 100)
    return path


@pytest.fixture
def database(tmp_path) -> Path:
    path = tmp_path / "prepared.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE StringIds (id, value)")
    connection.execute("INSERT INTO StringIds VALUES (1, 'gemm')")
    connection.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, demangledName)")
    connection.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2, 0, 7, 1)")
    connection.commit()
    connection.close()
    return path


@pytest.fixture
def scratch(tmp_path, monkeypatch) -> Path:
    """Where temporary directories go, so that the test sees what is left."""
    path = tmp_path / "scratch"
    path.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    return path


@pytest.fixture
def nsys(tmp_path, monkeypatch):
    """Put an `nsys` on PATH whose body is the given Python code; `argv` is what it was called with."""

    def install(code: str) -> None:
        directory = tmp_path / "bin"
        directory.mkdir()
        script = directory / "nsys"
        script.write_text(f"#!{sys.executable}\nimport shutil, sys, time\nargv = sys.argv[1:]\n{code}\n")
        script.chmod(0o755)
        monkeypatch.setenv("PATH", str(directory), prepend=os.pathsep)

    return install


@pytest.fixture
def no_nsys(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))


def test_a_report_is_exported_and_read(report, database, scratch, nsys, tmp_path):
    nsys(
        f"assert argv[:4] == ['export', '--type', 'sqlite', '--output'], argv\n"
        f"assert argv[5:] == ['--force-overwrite', 'true', {str(report)!r}], argv\n"
        f"shutil.copy({str(database)!r}, argv[4])"
    )
    trace = Nsys().read(report)
    assert (trace.path, trace.format) == (str(report), "nsys")
    assert list(trace.names) == ["gemm"]
    assert list(scratch.iterdir()) == []


def test_without_nsys_the_advice_is_the_command(report, no_nsys):
    with pytest.raises(TraceError, match="no `nsys` on PATH") as caught:
        Nsys().read(report)
    command = caught.value.advice.split("`")[1]
    made = str(report.with_suffix(".sqlite"))
    assert shlex.split(command) == ["nsys", "export", "--type", "sqlite", "--output", made, str(report)]


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("sys.stderr.write('Processing\\nThe report is of a newer version.\\n\\n'); sys.exit(3)", "of a newer version"),
        ("print('out of disk'); sys.exit(1)", "`nsys` said: out of disk"),
        ("sys.exit(7)", "exit status 7"),
        ("pass", "wrote nothing"),
        ("open(argv[4], 'w').write('no database')", "damaged or no SQLite database"),
    ],
)
def test_what_nsys_says_is_quoted(report, scratch, nsys, code, problem):
    nsys(code)
    with pytest.raises(TraceError, match=problem) as caught:
        Nsys().read(report)
    assert caught.value.path == str(report)
    assert "\n" not in str(caught.value)
    assert list(scratch.iterdir()) == []


def test_an_export_that_never_ends_is_stopped(report, scratch, nsys, monkeypatch):
    monkeypatch.setattr(nsys_export, "TIMEOUT_S", 0.5)
    nsys("time.sleep(60)")
    with pytest.raises(TraceError, match="took more than"):
        Nsys().read(report)
    assert list(scratch.iterdir()) == []


def test_an_nsys_that_cannot_run_is_one_line(report, scratch, nsys, tmp_path):
    nsys("pass")
    (tmp_path / "bin" / "nsys").write_bytes(b"\x7fELF nonsense")
    with pytest.raises(TraceError, match="could not be exported"):
        Nsys().read(report)


def test_a_name_that_looks_like_an_option_is_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = nsys_export.export_command("nsys", Path("--help.nsys-rep"), Path("out.sqlite"))
    assert command[-1] == str(tmp_path / "--help.nsys-rep")


@pytest.mark.parametrize("name", ["a.nsys-rep", "a.qdrep", "a.bin"])
def test_reports_are_accepted_by_their_first_bytes(tmp_path, name):
    assert Nsys().accepts(MAGIC, tmp_path / name)


@pytest.mark.traces
def test_real_reports_are_recognised(no_nsys, traces):
    reports = sorted((traces / "jaxtb-nsysrep").glob("*.nsys-rep"))
    assert len(reports) == 2
    for path in reports:
        assert Nsys().accepts(path.read_bytes()[: 64 * 1024], path)
        with pytest.raises(TraceError, match="raw Nsight Systems report"):
            Nsys().read(path)
