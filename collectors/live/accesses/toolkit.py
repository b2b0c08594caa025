"""Finds NVIDIA's compiler and Compute Sanitizer on this machine, and compiles the patches and the library with them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deepprof.collectors.errors import UsageError, escaped

HERE = Path(__file__).resolve().parent
VARIABLES = ("CUDA_HOME", "CUDA_PATH")
HEADER, LIBRARY = "sanitizer.h", "libsanitizer-public.so"
TENSOR_COPIES = "SANITIZER_INSTRUCTION_TMA_STORE"  # in headers later than CUDA 13.0
COMPILE_S = 300
INSTALL = (
    "install the CUDA toolkit with compute-sanitizer, or `pip install nvidia-cuda-nvcc nvidia-cuda-crt nvidia-nvvm "
    "nvidia-cuda-runtime nvidia-cuda-sanitizer-api` of the driver's CUDA version; CUDA_HOME may name where it is"
)


@dataclass(frozen=True, slots=True)
class SanitizerToolkit:
    """The compiler, the folder of cuda.h, and the sanitizer's header and library, all of one version at best."""

    nvcc: Path
    cuda: Path
    headers: Path
    library: Path

    @property
    def sees_tensor_copies(self) -> bool:
        """Whether this version can patch what copies tensors."""
        return TENSOR_COPIES in (self.headers / "sanitizer_patching.h").read_text(errors="replace")


@dataclass(frozen=True, slots=True)
class CompiledAccesses:
    """The library for CUDA_INJECTION64_PATH, and the patches that it loads."""

    library: Path
    patches: Path


def find_toolkit(variables: Mapping[str, str], search: Sequence[str] | None = None) -> SanitizerToolkit:
    """Return what is needed, of the first place that has it; `search` are folders of Python packages.

    Raises `UsageError` that names what is missing and how to install it.
    """
    homes = list(dict.fromkeys(_list_homes(variables, sys.path if search is None else search)))
    compilers = _find(homes, ("bin/nvcc",))
    nvcc, cuda = next(compilers, None), next(_find(homes, ("include/cuda.h", "targets/*/include/cuda.h")), None)
    headers = next(_find(homes, [f"{folder}include/{HEADER}" for folder in ("compute-sanitizer/", "")]), None)
    library = next(_find(homes, [f"{folder}{LIBRARY}" for folder in ("compute-sanitizer/", "lib/", "lib64/")]), None)
    missing = {"nvcc": nvcc, "cuda.h": cuda, HEADER: headers, LIBRARY: library}
    if nvcc is None or cuda is None or headers is None or library is None:
        names = ", ".join(name for name, found in missing.items() if found is None)
        raise UsageError(f"accesses cannot be counted here: {names} not found; {INSTALL}")
    return SanitizerToolkit(nvcc, cuda.parent, headers.parent, library)


def _list_homes(variables: Mapping[str, str], search: Iterable[str]) -> Iterator[Path]:
    """Yield folders that may be a CUDA toolkit: named ones, that of nvcc, the system's, the newest of packages."""
    yield from (Path(variables[name]) for name in VARIABLES if variables.get(name, "").startswith("/"))
    for program in ("nvcc", "compute-sanitizer"):
        if found := shutil.which(program, path=variables.get("PATH")):
            yield from (Path(found).parent.parent, Path(found).resolve().parent.parent)
    yield from sorted(Path("/usr/local").glob("cuda*"), key=lambda path: (path.name != "cuda", path.name))
    for folder in filter(None, search):
        yield from sorted((Path(folder) / "nvidia").glob("cu[0-9]*"), reverse=True)


def _find(homes: Iterable[Path], patterns: Sequence[str]) -> Iterator[Path]:
    for home in homes:
        for pattern in patterns:
            yield from (path for path in sorted(home.glob(pattern)) if path.is_file())


def compile_accesses(toolkit: SanitizerToolkit, folder: Path) -> CompiledAccesses:
    """Compile the patches, for all architectures that nvcc has, and the library into `folder`.

    Raises `UsageError` where there is no C compiler, and where one of them fails.
    """
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        raise UsageError("accesses cannot be counted here: no C compiler (cc) is found; install gcc")
    patches, library = folder / "patches.fatbin", folder / "libdeepprof_accesses.so"
    includes = [f"-I{each}" for each in (toolkit.headers, toolkit.cuda)]
    nvcc = [str(toolkit.nvcc), "--fatbin", "--compile-as-tools-patch", "-arch=all-major", *includes]
    _run([*nvcc, str(HERE / "patches.cu"), "-o", str(patches)])
    flags = ["-std=c11", "-O2", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden", *includes]
    flags += ["-DDEEPPROF_TENSOR_COPIES"] if toolkit.sees_tensor_copies else []
    link = [str(toolkit.library), f"-Wl,-rpath,{toolkit.library.parent}", "-Wl,-z,nodelete"]
    _run([compiler, *flags, *map(str, sorted(HERE.glob("*.c"))), *link, "-o", str(library)])
    return CompiledAccesses(library, patches)


def _run(command: Sequence[str]) -> None:
    """Run a compiler. Raises `UsageError` with its last line where it fails."""
    name = Path(command[0]).name
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=COMPILE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{name} cannot be run: {escaped(str(error))}; {INSTALL}") from error
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "it says nothing").splitlines()
        first = next((line for line in said if "error" in line), said[-1])
        raise UsageError(f"{name} fails: {escaped(first.strip())}; {INSTALL}")
