"""The scanner of Kineto events under the sanitizers: a driver with nearly JSON, and the importer's tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deepprof.collectors.importers.kineto import native as kineto_native
from tests.fuzz.building import ROOT, build, needs_sanitizers, runtime

pytestmark = needs_sanitizers

SOURCES = Path(kineto_native.__file__).resolve().parent
DRIVER = Path(__file__).with_name("kineto_driver.c")
INPUTS = 40_000  # some two seconds


@pytest.mark.parametrize("seed", [1, 2])
def test_text_that_is_nearly_json_is_read_alike_whole_and_in_pieces(tmp_path: Path, seed: int) -> None:
    driver = build(tmp_path / "driver", DRIVER, "-Wall", "-Wextra", "-Werror", "-I", str(SOURCES), "-lm")
    command = [driver, str(seed), str(INPUTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr[-3000:]


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("json_text.h", "if (end - p < 6)", "if (end - p < 2)"),
        ("text_ids.h", "if (t->used + n > t->room)", "if (0)"),
        ("text_ids.h", "if (t->count == t->capacity)", "if (0)"),
        ("scan.c", "texts_end(&s->names);", ""),
        ("scan.c", "texts_end(&s->json);", ""),
        ("scan.c", "used > JSON_LIMIT ?", "used > 2 * JSON_LIMIT ?"),
        ("scan.c", "if (*count == capacity)", "if (*count == capacity + 1)"),
    ],
)
def test_the_driver_notices_a_fault(tmp_path: Path, name: str, old: str, new: str) -> None:
    for path in (*SOURCES.glob("*.[ch]"), DRIVER):
        text = path.read_text()
        (tmp_path / path.name).write_text(text.replace(old, new) if path.name == name else text)
    assert (tmp_path / name).read_text() != (SOURCES / name).read_text()
    broken = build(tmp_path / "driver", tmp_path / "kineto_driver.c", "-w", "-lm")
    assert subprocess.run([broken, "1", "20000"], capture_output=True, check=False).returncode != 0


@pytest.mark.parametrize("name", ["test_kineto_batches.py", "test_kineto_files.py"])
def test_the_tests_of_the_importer_pass(tmp_path: Path, name: str) -> None:
    """In a their own process, which loads the sanitizers first; leaks of Python itself are not counted."""
    library = build(tmp_path / "library.so", SOURCES / "scan.c", "-shared", "-fPIC", "-lm")
    environment = {"LD_PRELOAD": runtime(), "ASAN_OPTIONS": "detect_leaks=0", "DEEPPROF_TEST_SCANNER": str(library)}
    plugins = ["-p", "tests.fuzz.sanitized_library", "-p", "no:xdist", "-p", "no:cacheprovider"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        *plugins,
        "-m",
        "not traces",
        "-k",
        "not memory",
        f"tests/collectors/{name}",
    ]
    done = subprocess.run(
        command,
        env=os.environ | environment | {"PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert " passed" in done.stdout
