"""`deepprof accesses` as one types it, with a toolkit that is made up: found, compiled, run, summed up, refused."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import deepprof
from deepprof.collectors.errors import UsageError
from deepprof.collectors.live.accesses.toolkit import compile_accesses, find_toolkit
from tests.collectors.live.building import compiler

ROOT = Path(__file__).resolve().parents[3]
MOCK, ACCESSES = ROOT / "tests/collectors/live/sanitizer_mock", ROOT / "collectors/live/accesses"
NVCC = """#!/bin/sh
for word; do :; done
echo "$@" > "$word"
"""
OURS = ("DEEPPROF_", "CUDA_", "RANK", "LD_LIBRARY_PATH")


@dataclass(frozen=True, slots=True)
class MadeUpMachine:
    """A toolkit whose headers are the mock's, a driver without content, and the job that is its own sanitizer."""

    home: Path
    driver: Path
    job: Path

    def run(self, *words: str, home: Path | None = None, driver: bool = True) -> subprocess.CompletedProcess[str]:
        environ = {name: text for name, text in os.environ.items() if not name.startswith(OURS)}
        environ |= {"CUDA_HOME": str(home or self.home), "PYTHONPATH": str(ROOT)}
        environ |= {"LD_LIBRARY_PATH": str(self.driver)} if driver else {}
        command = [sys.executable, "-m", "deepprof", "accesses", *words]
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=120)


def make_home(home: Path) -> Path:
    for folder in ("bin", "include", "compute-sanitizer/include"):
        (home / folder).mkdir(parents=True)
    (home / "include/cuda.h").touch()
    shutil.copy(MOCK / "sanitizer.h", home / "compute-sanitizer/include")
    (home / "compute-sanitizer/include/sanitizer_patching.h").write_text("SANITIZER_INSTRUCTION_TMA_STORE")
    (home / "bin/nvcc").write_text(NVCC)
    (home / "bin/nvcc").chmod(0o755)
    compile_empty(home / "compute-sanitizer/libsanitizer-public.so")
    return home


def compile_empty(library: Path) -> None:
    library.parent.mkdir(exist_ok=True, parents=True)
    command = [compiler(), "-shared", "-fPIC", "-x", "c", os.devnull, "-o", str(library)]
    subprocess.run(command, check=True)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> MadeUpMachine:
    folder = tmp_path_factory.mktemp("machine")
    home, job = make_home(folder / "cuda"), folder / "job"
    compile_empty(folder / "driver/libcuda.so.1")
    flags = ["-std=c11", "-pthread", f"-I{MOCK}", f"-I{ACCESSES}", "-rdynamic"]
    subprocess.run([compiler(), *flags, str(MOCK / "job.c"), "-o", str(job), "-ldl"], check=True)
    return MadeUpMachine(home, folder / "driver", job)


def test_a_job_is_counted_and_summed_up(machine: MadeUpMachine, tmp_path: Path) -> None:
    path = tmp_path / "job.accesses"
    path.write_text("of before")
    words = ["-", "module", "launch", "mine_1", "2", "launch", "other", "1", "launch", "mine_2", "5", "copy"]
    done = machine.run(
        "-o", str(path), "--kernels", "mine", "--slots", "4", "--block", "4096", str(machine.job), *words
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"deepprof: {path}: 2 launches counted; not counted: other-name 1, copy 1\n"
    trace = deepprof.read(path)
    assert trace.accesses["address"].null_count() == 1
    assert set(trace.accesses["nbytes"]) == {4096}


def test_the_exit_is_that_of_the_command(machine: MadeUpMachine, tmp_path: Path) -> None:
    path = str(tmp_path / "job.accesses")
    assert machine.run("-o", path, "sh", "-c", "exit 7").returncode == 7
    done = machine.run("-o", path, str(machine.job), "-", "module", "launch", "first", "1", "kill")
    assert done.returncode == -signal.SIGKILL
    assert "1 launch counted" in done.stderr
    assert "the end of the recording is missing" in done.stderr
    missing = machine.run("-o", path, "no-such-command")
    assert (missing.returncode, missing.stderr) == (127, "deepprof: no-such-command: command not found\n")


def test_a_command_without_a_gpu_is_named(machine: MadeUpMachine, tmp_path: Path) -> None:
    done = machine.run("-o", str(tmp_path / "x"), "true")
    assert (done.returncode, list(tmp_path.iterdir())) == (0, [])
    assert "nothing was counted: no process of the command used an NVIDIA GPU" in done.stderr


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--launches", "0", "true"], "--launches is 1 at least"),
        (["--skip", "-1", "true"], "--skip 0"),
        (["--block", "1000", "true"], "--block is a power of two from 512 to 2097152"),
        (["--slots", "0", "true"], "--slots is a power of two from 1 to 262144"),
        (["-o", os.devnull, "true"], "is there and no file"),
        ([], "no command to run; see deepprof accesses --help"),
    ],
)
def test_wrong_usage_is_one_line(machine: MadeUpMachine, tmp_path: Path, words: list[str], problem: str) -> None:
    done = machine.run("-o", str(tmp_path / "x"), *words)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert problem in done.stderr


def test_what_is_missing_is_named_before_anything_is_written(machine: MadeUpMachine, tmp_path: Path) -> None:
    path = tmp_path / "job.accesses"
    path.write_text("of before")
    done = machine.run("-o", str(path), "true", driver=False)
    if "libcuda.so.1" in done.stderr:  # not on a machine that has a driver
        assert done.returncode == 2
        assert path.read_text() == "of before"


def test_a_toolkit_is_found_in_parts(tmp_path: Path) -> None:
    """Packages have headers, library and compiler in one folder, and the sanitizer may come from another place."""
    package = tmp_path / "site/nvidia/cu13"
    for name in ("include/sanitizer.h", "include/sanitizer_patching.h", "lib/libsanitizer-public.so"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).touch()
    home = make_home(tmp_path / "cuda")
    shutil.rmtree(home / "compute-sanitizer")
    found = find_toolkit({"CUDA_HOME": str(home)}, [str(tmp_path / "site")])
    assert (found.nvcc, found.cuda) == (home / "bin/nvcc", home / "include")
    assert (found.headers, found.library) == (package / "include", package / "lib/libsanitizer-public.so")
    assert not found.sees_tensor_copies


def test_a_toolkit_without_parts_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter(()))
    with pytest.raises(UsageError, match=r"nvcc, cuda.h, sanitizer.h, libsanitizer-public.so not found; install .*pip"):
        find_toolkit({"PATH": str(tmp_path)}, [])


def test_a_compiler_that_fails_is_quoted_in_a_line(tmp_path: Path) -> None:
    home = make_home(tmp_path / "cuda")
    (home / "bin/nvcc").write_text("#!/bin/sh\necho 'x.cu(1): error: no \x1b[31m' >&2\nexit 1\n")
    with pytest.raises(UsageError, match=r"^nvcc fails: x.cu\(1\): error: no \\x1b") as caught:
        compile_accesses(find_toolkit({"CUDA_HOME": str(home)}, []), tmp_path)
    assert "\n" not in str(caught.value)
    (home / "bin/nvcc").unlink()
    (home / "bin/nvcc").write_text("no program")
    with pytest.raises(UsageError, match="nvcc cannot be run"):
        compile_accesses(find_toolkit({"CUDA_HOME": str(home)}, []), tmp_path)
