"""The reader of pickles in C under the sanitizers: a driver with instructions at random, and the reader's tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deepprof.collectors.importers.torch_snapshot import unpickling
from tests.fuzz.building import ROOT, build, needs_sanitizers, runtime

pytestmark = needs_sanitizers

SOURCE = Path(unpickling.__file__).resolve().with_name("unpickle.c")
DRIVER = Path(__file__).with_name("unpickle_driver.c")
INPUTS = 200_000  # some two seconds


@pytest.mark.parametrize("seed", [1, 2])
def test_instructions_at_random_stay_within_their_bounds(tmp_path: Path, seed: int) -> None:
    driver = build(tmp_path / "driver", DRIVER, "-Wall", "-Wextra", "-Werror", "-I", str(SOURCE.parent))
    done = subprocess.run([driver, str(seed), str(INPUTS)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr[-3000:]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("*length > (uint64_t)(m->end - m->at) ? TRUNCATED : status", "0 ? TRUNCATED : status"),
        ("if (m->end - m->at < nbytes) return TRUNCATED;\n    *number = 0;", "*number = 0;"),
        ("return place < m->remembered ? push", "return 1 ? push"),
        ("if (first <= floor_of(m) || ", "if ("),
        ("if (out->count >= m->most) return TOO_MANY;", ""),
        ("if ((int64_t)count > m->most - m->listed) return TOO_MANY;", ""),
        ("*run = *slot - 1;", "*run = *slot;"),
    ],
)
def test_the_driver_notices_a_fault(tmp_path: Path, old: str, new: str) -> None:
    text = SOURCE.read_text()
    assert text.count(old) == 1
    (tmp_path / SOURCE.name).write_text(text.replace(old, new))
    (tmp_path / DRIVER.name).write_text(DRIVER.read_text())
    broken = build(tmp_path / "driver", tmp_path / DRIVER.name, "-w")
    assert subprocess.run([broken, "1", "100000"], capture_output=True, check=False).returncode != 0


def test_the_tests_of_the_reader_pass(tmp_path: Path) -> None:
    """In a their own process, which loads the sanitizers first; leaks of Python itself are not counted."""
    library = build(tmp_path / "library.so", SOURCE, "-shared", "-fPIC")
    environment = {"LD_PRELOAD": runtime(), "ASAN_OPTIONS": "detect_leaks=0", "DEEPPROF_TEST_UNPICKLER": str(library)}
    plugins = ["-p", "tests.fuzz.sanitized_library", "-p", "no:xdist", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "tests/collectors/test_pickle_machine.py"]
    environment = os.environ | environment | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert " passed" in done.stdout
