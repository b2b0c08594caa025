"""Runs a coverage-guided fuzzer for a number of runs, as a process whose memory is its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chance import draw_seed
from tests.patience import PATIENCE_S

__all__ = ["run_fuzzer"]

ROOT = Path(__file__).parents[2]
# The fuzzer's limit counts the peak that a process has inherited from the one it was made from, here pytest with all of
# its tests behind it. A shell in between is small, and has to stay to state how it went.
APART = ("sh", "-c", '"$@"; exit $?', "sh")


def run_fuzzer(module: str, folder: Path) -> None:
    """Fuzz 10,000 runs, about ten seconds; a finding fails the test."""
    pytest.importorskip("atheris", reason="atheris has wheels for Linux on x86-64 only")
    limits = [
        "-runs=10000",
        f"-seed={draw_seed(module) % 10**9 + 1}",
        f"-artifact_prefix={folder}/",
    ]
    command = [*APART, sys.executable, "-m", module, str(folder / "corpus"), *limits]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=5 * PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Done " in done.stderr
