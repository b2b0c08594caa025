"""The C core under the sanitizers: the miner's own tests against it, and its own driver with random bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.building import CORE, ROOT, build, needs_sanitizers, runtime

pytestmark = needs_sanitizers

TESTED = ["test_matching.py", "test_matcher_state.py", "test_spans.py", "test_suffix_tree.py"]
INPUTS = 40_000  # some six seconds


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    flags = ["-Wall", "-Wextra", "-Werror"]
    return build(tmp_path_factory.mktemp("fuzz") / "driver", Path(__file__).with_name("driver.c"), *flags)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("fuzz") / "library.so", CORE / "native.c", "-shared", "-fPIC")


@pytest.mark.widens(2)
@pytest.mark.parametrize("seed", [1, 2])
def test_random_bytes_get_right_answers_and_leak_nothing(driver: Path, seed: int) -> None:
    options = {"ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1"}
    command = [driver, str(seed), str(INPUTS)]
    done = subprocess.run(command, env=os.environ | options, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr[-3000:]


def test_the_driver_reads_what_a_fuzzer_wrote(driver: Path, tmp_path: Path) -> None:
    """An input kept from a fuzzer is a test: nothing to use up, all zeros, all ones."""
    inputs = [tmp_path / "empty", tmp_path / "zeros", tmp_path / "ones"]
    for path, data in zip(inputs, (b"", bytes(700), b"\xff" * 700), strict=True):
        path.write_bytes(data)
    done = subprocess.run([driver, *inputs], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_driver_notices_a_fault(tmp_path: Path) -> None:
    """One step too far in the core, and a leak, must not go unseen."""
    for name, old, new in (
        ("matcher.h", "start > least && phase > 0", "phase > 0"),
        ("native.c", "free(m->keys);", ""),
    ):
        folder = tmp_path / name
        folder.mkdir()
        for path in (*CORE.glob("*.[ch]"), *Path(__file__).parent.glob("*.[ch]")):
            text = path.read_text()
            (folder / path.name).write_text(text.replace(old, new) if path.name == name else text)
        assert new in (folder / name).read_text()
        assert old not in (folder / name).read_text()
        broken = build(folder / "driver", folder / "driver.c", "-w")
        assert subprocess.run([broken, "1", "2000"], capture_output=True, check=False).returncode != 0


@pytest.mark.parametrize("name", TESTED)
def test_the_tests_of_the_miner_pass(library: Path, name: str) -> None:
    """In a their own process, which loads the sanitizers first; leaks of Python itself are not counted."""
    environment = {"LD_PRELOAD": runtime(), "ASAN_OPTIONS": "detect_leaks=0", "DEEPPROF_TEST_LIBRARY": str(library)}
    plugins = ["-p", "tests.fuzz.sanitized_library", "-p", "no:xdist", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "-k", "native"]
    done = subprocess.run(
        [*command, f"tests/mining/{name}"],
        env=os.environ | environment | {"PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert " passed" in done.stdout
