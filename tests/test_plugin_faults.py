"""A plug-in that raises is named in one line and skipped: report and exit code are as without it."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import pytest

import deepprof
from deepprof import simulation
from deepprof.collectors import importers, plugins
from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers import FencedImporter
from deepprof.collectors.importers.kineto import Kineto
from deepprof.collectors.plugins import PlugIn, PlugInWarning
from deepprof.commands import main
from deepprof.diagnosis.engine import diagnose_loop, fence_rule
from deepprof.diagnosis.finding import Finding
from tests.once import make_once
from tests.plugin_packages import deepprof_with, install_package
from tests.tables import make_trace

PROJECT = """
[build-system]
requires = ["setuptools>=61"]
build-backend = "setuptools.build_meta"

[project]
name = "deepprof-faulty"
version = "1.0"

[project.entry-points."deepprof.importers"]
absent = "faulty:Absent"
asking = "faulty:Asking"
broken = "faulty_import:Broken"
reading = "faulty:Reading"
strange = "faulty:Strange"

[project.entry-points."deepprof.rules"]
empty = "faulty:returns_nothing"
good = "faulty:good"
late = "faulty:raises_late"
numbers = "faulty:numbers"
raising = "faulty:raises"

[tool.setuptools]
py-modules = ["faulty", "faulty_import"]
"""
MODULE = """
import sys

import numpy

from deepprof.diagnosis.finding import Finding


class Asking:
    name = "asking"
    suffixes = (".asking",)

    def accepts(self, head, path):
        raise ValueError(f"two\\nlines about {path}")

    def read(self, path, *, details=False, shapes=True):
        raise AssertionError


class Reading(Asking):
    name = "reading"

    def accepts(self, head, path):
        return head.startswith(b"reading")

    def covers(self, path):
        raise OSError(5, "no covers", str(path))

    def read(self, path, *, details=False, shapes=True):
        return {}["key"]


class Strange:
    name = "strange"


def finding(**changes):
    given = dict(rule="theirs", severity="info", title="t", summary="s", evidence={}, advice="a", confidence=0.5)
    return Finding(**given | changes)


def good(loop, trace):
    yield finding(rule="good", headroom_ns_per_iteration=numpy.int64(5), evidence={"mean": numpy.float64(1.5)})


def raises(loop, trace):
    raise SystemExit("end")


def raises_late(loop, trace):
    yield finding()
    raise RuntimeError("late")


def returns_nothing(loop, trace):
    pass


def numbers(loop, trace):
    yield finding(evidence={"n": numpy.zeros(3)})
"""
END = "; uninstall or report it to its author"
LOADING = {
    "absent": r"raised AttributeError: module 'faulty' has no attribute 'Absent'",
    "broken": r"raised ZeroDivisionError: division by zero",
    "strange": r"raised TypeError: this is no importer; one has name, suffixes, accepts and read",
}
RULES = {
    "empty": r"raised TypeError: 'NoneType' object is not iterable",
    "late": r"raised RuntimeError: late",
    "numbers": r"raised TypeError: ndarray in a finding, which holds numbers and texts",
    "raising": r"raised SystemExit: end",
}
ASKING = {"asking": r"raised ValueError: two lines about \S+"}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the faulty package."""
    files = {"pyproject.toml": PROJECT, "faulty.py": MODULE, "faulty_import.py": "1 / 0\n"}
    return make_once(tmp_path_factory, "faulty", functools.partial(install_package, files)) / "target"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory of two ranks, and of a file that no importer of ours accepts."""
    folder = tmp_path_factory.mktemp("job")
    simulation.write_ranks(simulation.simulate_ranks("straggler", ranks=2, iterations=12), folder)
    (folder / "notes.txt").write_text("nothing")
    return folder


def check_lines(stderr: str, expected: dict[str, str]) -> None:
    """Check that each faulty plug-in is named in one line, and nothing else is stated."""
    lines = sorted(stderr.splitlines())
    assert len(lines) == len(expected), stderr
    for line, (name, said) in zip(lines, sorted(expected.items()), strict=True):
        assert re.fullmatch(rf"deepprof: warning: plug-in {name} of deepprof-faulty {said}{END}", line), line


@pytest.fixture(scope="module")
def without(job: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the report without plug-ins, which is the same from any number of processes."""
    file = tmp_path_factory.mktemp("without") / "report.json"
    assert main(["diagnose", str(job), "--format", "json", "--all", "--jobs", "1", "-o", str(file)]) == 0
    return json.loads(file.read_text())


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_the_report_is_as_without_them(installed: Path, job: Path, without: Any, jobs: str) -> None:
    done = deepprof_with(installed, "diagnose", job, "--format", "json", "--all", "--jobs", jobs)
    assert done.returncode == 0, done.stderr
    check_lines(done.stderr, LOADING | ASKING | RULES)
    report = json.loads(done.stdout)
    theirs = [finding for finding in report["findings"] if finding["rule"] == "good"]
    assert len(theirs) == len(report["loops"]) == 2  # one that works is not skipped with the others
    assert theirs[0]["evidence"] == {"mean": 1.5}
    report["findings"] = [finding for finding in report["findings"] if finding["rule"] != "good"]
    assert report == without


def test_a_file_that_one_cannot_read_is_unreadable_input(installed: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.reading"
    path.write_text("reading\n")
    done = deepprof_with(installed, "diagnose", path)
    assert (done.returncode, done.stdout) == (2, "")
    *warned, last = done.stderr.splitlines()
    check_lines("\n".join(warned), LOADING | ASKING)
    assert last == f"deepprof: {path}: plug-in reading of deepprof-faulty raised KeyError: 'key'{END}"


def test_a_file_that_nobody_knows_is_refused_as_before(installed: Path, job: Path) -> None:
    done = deepprof_with(installed, "diagnose", job / "notes.txt")
    assert (done.returncode, done.stdout) == (2, "")
    assert "is no trace that DeepProf knows: it looks like text" in done.stderr
    check_lines("\n".join(done.stderr.splitlines()[:-1]), LOADING | ASKING)


def test_formats_and_fail_on(installed: Path, job: Path) -> None:
    formats = deepprof_with(installed, "--formats")
    assert formats.returncode == 0
    assert re.search(r"^reading +\.asking$", formats.stdout, re.MULTILINE)
    assert deepprof_with(installed, "diagnose", job, "--fail-on", "critical").returncode == main(
        ["diagnose", str(job), "--fail-on", "critical", "-o", "/dev/null"]
    )


class FailingImporter:
    """An importer of ours with a bug."""

    name, suffixes = "failing", (".failing",)

    def accepts(self, head: bytes, path: Path) -> bool:
        raise IndexError(str(path))

    def read(self, path: Path, *, details: bool = False, shapes: bool = True) -> Any:
        return path


@pytest.fixture
def plugin() -> PlugIn:
    return PlugIn(plugins.EntryPoint("theirs", "their_module:Theirs", "deepprof.test"))


def test_one_that_fails_at_one_file_reads_others(plugin: PlugIn, tmp_path: Path) -> None:
    kineto = Kineto()
    fenced = FencedImporter(kineto, plugin)
    assert (fenced.name, fenced.suffixes) == (kineto.name, kineto.suffixes)
    fenced.importer = FailingImporter()  # type: ignore[assignment]
    with pytest.warns(PlugInWarning, match=r"plug-in theirs \(their_module:Theirs\) raised IndexError") as caught:
        assert [fenced.accepts(b"", Path(name)) for name in "ab"] == [False, False]
    assert len(caught) == 1  # the first time
    with pytest.raises(
        TraceError, match=r"x: plug-in theirs .* raised TypeError: read returned PosixPath, not a Trace"
    ):
        fenced.read(Path("x"))
    fenced.importer = kineto
    path = tmp_path / "rank0.json"
    simulation.write(simulation.simulate("healthy", iterations=2), path)
    assert fenced.accepts(path.read_bytes()[:65536], path)
    assert fenced.read(path).format == "kineto"
    with pytest.raises(TraceError, match="no such file"):
        fenced.read(tmp_path / "absent.json")


@pytest.mark.parametrize(
    "found",
    [
        {"rule": "theirs"},
        None,
        Finding(rule="theirs", severity="bad", title="", summary="", evidence={}, advice="", confidence=1),  # type: ignore[arg-type]
        Finding(rule="theirs", severity="info", title=None, summary="", evidence={}, advice="", confidence=1),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_reported_is_no_finding(plugin: PlugIn, found: Any) -> None:
    rule = fence_rule(lambda loop, trace: [found], plugin)
    with pytest.warns(PlugInWarning, match=r"raised (TypeError|ValidationError): "):
        assert list(rule(None, make_trace())) == []  # type: ignore[arg-type]


def test_what_is_not_callable_is_no_rule(plugin: PlugIn) -> None:
    with pytest.raises(TypeError, match="str is no rule"):
        fence_rule("theirs", plugin)


def test_our_own_bugs_are_raised(monkeypatch: pytest.MonkeyPatch, job: Path) -> None:
    def failing(*_: object, **__: object) -> Any:
        raise ZeroDivisionError("ours")

    with pytest.raises(ZeroDivisionError, match="ours"):
        diagnose_loop(None, make_trace(), [failing])  # type: ignore[arg-type]
    for method in ("read", "accepts"):
        with monkeypatch.context() as patched:
            patched.setattr(Kineto, method, failing)
            with pytest.raises(ZeroDivisionError, match="ours"):
                deepprof.read(job / "rank0.json.gz")
    monkeypatch.setattr(importers, "each_importer", lambda: (FailingImporter(),))
    with pytest.raises(IndexError):
        deepprof.read(job / "notes.txt")
