"""The page on adding a format is true: the package it shows is built, installed apart, and found by a fresh process."""

from __future__ import annotations

import functools
import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from deepprof.collectors.importers import BUILTINS, importers
from tests.once import make_once
from tests.plugin_packages import deepprof_with, install_package
from tests.widening import slow_unless

PAGE = Path(__file__).resolve().parents[1] / "docs" / "formats.md"
FILES = re.compile(r"^```\w+\n# (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
KERNELS = 8


def line(at: int) -> str:
    """Return kernel `at` of a job whose iterations are eight kernels and a pause."""
    start = 10 * at + 15 * (at // KERNELS)
    return f"{start}.5\t8.25\t7\tkernel_{at % KERNELS}\n"


JOB = "gpulog 1\n# made by hand\n" + "".join(map(line, range(20 * KERNELS))) + "no\tnumbers\t7\there\n"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory into which the package of the page is installed, as its own distribution."""
    files = dict(FILES.findall(PAGE.read_text()))
    assert set(files) == {"pyproject.toml", "deepprof_gpulog.py"}
    return make_once(tmp_path_factory, "gpulog", functools.partial(install_package, files)) / "target"


@pytest.mark.parametrize("packed", slow_unless(bool, [False, True]))
def test_a_fresh_process_reads_the_format_of_the_page(installed: Path, tmp_path: Path, packed: bool) -> None:
    path = tmp_path / ("job.gpulog.gz" if packed else "job.gpulog")
    path.write_bytes(gzip.compress(JOB.encode()) if packed else JOB.encode())
    done = deepprof_with(installed, "diagnose", path, "--format", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["trace"]["format"] == "gpulog"
    assert report["trace"]["accounting"]["dropped"] == {"metadata": 1, "invalid-time": 1}
    assert report["trace"]["accounting"]["read"] == 20 * KERNELS + 2
    (loop,) = report["loops"]
    assert loop["period"] == KERNELS


def test_its_errors_are_one_line(installed: Path, tmp_path: Path) -> None:
    path = tmp_path / "job.gpulog"
    path.write_text(JOB[:-5])
    done = deepprof_with(installed, "diagnose", path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "breaks off inside its last line; copy it again" in done.stderr


def test_without_the_package_the_format_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "job.gpulog"
    path.write_text(JOB)
    done = subprocess.run([sys.executable, "-m", "deepprof", "diagnose", path], capture_output=True, check=False)
    assert done.returncode == 2


def test_the_example_is_short() -> None:
    module = dict(FILES.findall(PAGE.read_text()))["deepprof_gpulog.py"]
    assert sum(bool(text.strip()) for text in module.splitlines()) <= 45


def test_every_format_that_is_read_is_on_the_page() -> None:
    named = set(re.findall(r"^\| [^|`]*`([a-z-]+)`[^|]*\| ", PAGE.read_text(), re.MULTILINE))
    own = [importer for importer in importers() if type(importer).__module__.startswith("deepprof.")]
    assert len(own) == len(BUILTINS)
    assert named == {importer.name for importer in own}
