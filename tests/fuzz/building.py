"""Builds C sources with the address and undefined behaviour sanitizers, and finds their runtime."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deepprof.mining import native

ROOT = Path(__file__).resolve().parents[2]
CORE = Path(native.__file__).resolve().parent
SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g", "-O1"]

needs_sanitizers = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler with sanitizers"
)


def build(path: Path, source: Path, *flags: str) -> Path:
    """Compile one source to this path; skip where the compiler has no sanitizers."""
    command = ["cc", "-std=c11", *SANITIZED, *flags, "-I", CORE, "-o", path, source]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if (done.returncode and "sanitize" in done.stderr) or "asan" in done.stderr:
        pytest.skip("this compiler has no sanitizers")
    assert done.returncode == 0, done.stderr
    return path


def runtime() -> str:
    """Return the library that a program not built with the sanitizers must load first, or skip."""
    asked = subprocess.run(["cc", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True)
    found = asked.stdout.strip()
    if not Path(found).is_file():
        pytest.skip("this compiler does not say where its sanitizer lies")
    return found
