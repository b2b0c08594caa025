"""Builds the injected library and its test programs, plain or with a sanitizer, once for all tests of a run."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
EARLY, REPLAY = HERE / "programs" / "early.c", HERE / "programs" / "replay.c"
# And operators around what the device does.
MOCK = [HERE / "mock_cupti.c", HERE / "mock_device.c", HERE / "programs" / "made_operators.c"]
INJECT = HERE.parents[2] / "collectors" / "live" / "inject"
FLAGS = ["-std=c11", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", "-pthread", "-fvisibility=hidden"]
SANITIZERS = {
    "plain": ["-O3"],
    "address": ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"],
    "thread": ["-O1", "-fsanitize=thread"],
}


@dataclass(frozen=True, slots=True)
class Built:
    """Where the library, the mock of CUPTI and the jobs are: single records, training, ranges, recordings."""

    library: Path
    mock: Path
    job: Path
    training: Path
    early: Path
    replay: Path


def compiler() -> str:
    """Return the C compiler, or skip the test where there is none."""
    found = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if found is None:
        pytest.skip("no C compiler")
    return found


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@functools.cache
def build(flavour: str) -> Built:
    """Return the programs of `flavour`; another process that needs the same waits for these."""
    sources = sorted(INJECT.glob("*.c"))
    texts = [*sources, *sorted(INJECT.glob("*.h")), *sorted(HERE.glob("*.[ch]")), EARLY, REPLAY, MOCK[-1]]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in texts) + repr((FLAGS, SANITIZERS)).encode())
    home = Path(tempfile.gettempdir()) / f"deepprof-inject-{os.getuid()}-{digest.hexdigest()[:16]}-{flavour}"
    built = Built(*(home / name for name in ("inject.so", "mock.so", "job", "training", "early", "replay")))
    with home.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.is_dir():
            work = Path(tempfile.mkdtemp(prefix="deepprof-inject-"))
            compile_all(compiler(), SANITIZERS[flavour], work, sources)
            work.rename(home)
    return built


def compile_all(cc: str, flags: list[str], work: Path, sources: list[Path]) -> None:
    shared = [cc, *FLAGS, *flags, "-shared"]
    run([*shared, "-Wl,-z,nodelete", *map(str, sources), "-o", str(work / "inject.so"), "-ldl"])
    visible = [flag for flag in shared if flag != "-fvisibility=hidden"]
    mock = [*visible, "-Wl,-soname,libcuda.so.1", *map(str, MOCK)]  # it is the driver too
    run([*mock, "-o", str(work / "mock.so"), "-ldl"])
    for name in ("job", "training"):
        run([cc, *FLAGS, *flags, str(HERE / f"{name}.c"), str(HERE / "device.c"), "-o", str(work / name), "-ldl"])
    run([cc, *FLAGS, *flags, str(EARLY), "-o", str(work / "early"), "-ldl"])
    run([cc, *FLAGS, *flags, "-rdynamic", str(REPLAY), "-o", str(work / "replay"), "-ldl"])
