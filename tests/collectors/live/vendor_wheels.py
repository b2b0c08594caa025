"""Headers and libraries of NVIDIA that tests compile against or load, fetched as wheels from the package index.

`python -m tests.collectors.live.vendor_wheels` fetches all of them: 127 MB once; 106 MB stay, unpacked. They are in
DEEPPROF_HEADERS, else in the cache directory of the user; nothing of them is part of this repository.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

PIP_S = 300  # of one wheel; the largest has 18 MB


@dataclass(frozen=True, slots=True)
class VendorWheel:
    """A wheel of one exact version, and what its download takes, in MB; `beside`: what is kept next to libcupti."""

    package: str
    version: str
    megabytes: float
    beside: str = ""

    @property
    def folder(self) -> Path:
        return cache_folder() / "-".join(filter(None, (self.package, self.version, self.beside)))

    def wants(self, name: str) -> bool:
        """Return whether a member of the wheel is kept: headers, the library of CUPTI, and what is requested."""
        path = PurePosixPath(name)
        return "include" in path.parts or path.name.startswith("libcupti.so") or path.name == self.beside


@dataclass(frozen=True, slots=True)
class CudaHeaders:
    """The wheels that together have what cupti.h includes."""

    cupti: VendorWheel
    runtime: VendorWheel
    crt: VendorWheel

    def include_folders(self) -> list[Path]:
        return [include_folder(wheel) for wheel in (self.cupti, self.runtime, self.crt)]


CRT_13_0 = VendorWheel("nvidia-cuda-crt", "13.0.88", 0.1)  # those of CUDA 11 and 12 have no such package
CUDA = {
    "11.8": CudaHeaders(
        VendorWheel("nvidia-cuda-cupti-cu11", "11.8.87", 13.1),
        VendorWheel("nvidia-cuda-runtime-cu11", "11.8.89", 0.9),
        CRT_13_0,
    ),
    "12.1": CudaHeaders(
        VendorWheel("nvidia-cuda-cupti-cu12", "12.1.105", 14.1),
        VendorWheel("nvidia-cuda-runtime-cu12", "12.1.105", 0.8),
        CRT_13_0,
    ),
    "12.9": CudaHeaders(
        VendorWheel("nvidia-cuda-cupti-cu12", "12.9.79", 10.8),
        VendorWheel("nvidia-cuda-runtime-cu12", "12.9.79", 3.5),
        CRT_13_0,
    ),
    "13.0": CudaHeaders(
        VendorWheel("nvidia-cuda-cupti", "13.0.85", 10.7),
        VendorWheel("nvidia-cuda-runtime", "13.0.96", 2.2),
        CRT_13_0,
    ),
    "13.5": CudaHeaders(
        VendorWheel("nvidia-cuda-cupti", "13.5.25", 12.6),
        VendorWheel("nvidia-cuda-runtime", "13.5.37", 2.5),
        VendorWheel("nvidia-cuda-crt", "13.5.37", 0.2),
    ),
}
CUPTI_HOST = VendorWheel("nvidia-cuda-cupti-cu12", "12.9.79", 10.8, "libnvperf_host.so")  # has the metrics of chips
CUPTI_13_2 = VendorWheel("nvidia-cuda-cupti", "13.2.75", 12.0)  # crashes without a driver
NVTX = {
    "12.9": VendorWheel("nvidia-nvtx-cu12", "12.9.79", 0.1),
    "13.5": VendorWheel("nvidia-nvtx", "13.5.25", 0.2),
}


SANITIZER = {  # its headers
    "13.0": VendorWheel("nvidia-cuda-sanitizer-api", "13.0.85", 14.0),
    "13.5": VendorWheel("nvidia-cuda-sanitizer-api", "13.5.25", 18.2),
}


class FetchError(Exception):
    """A wheel is not there and cannot be had; the message is one line."""


def cache_folder() -> Path:
    """Return the folder that keeps what was fetched, whether or not it exists."""
    if chosen := os.environ.get("DEEPPROF_HEADERS"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deepprof" / "vendor-wheels"


def all_wheels() -> list[VendorWheel]:
    cuda = [wheel for each in CUDA.values() for wheel in (each.cupti, each.runtime, each.crt)]
    return list(dict.fromkeys([*cuda, CUPTI_HOST, CUPTI_13_2, *NVTX.values(), *SANITIZER.values()]))


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder: test workers run side by side."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(folder.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def download(wheel: VendorWheel, folder: Path) -> Path:
    """Return the wheel's file; pip checks that it is what the index names."""
    options = ["--quiet", "--no-deps", "--only-binary", ":all:", "--retries", "1", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder)]
    try:
        done = subprocess.run(
            [*command, f"{wheel.package}=={wheel.version}"], capture_output=True, text=True, timeout=PIP_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise FetchError(f"{wheel.package} {wheel.version}: pip took more than {PIP_S} s") from None
    if done.returncode:
        said = (done.stderr.strip() or "pip failed").splitlines()[-1]
        raise FetchError(f"{wheel.package} {wheel.version} cannot be fetched: {said}")
    (file,) = folder.glob("*.whl")
    return file


def unpack(wheel: VendorWheel, file: Path, folder: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if wheel.wants(name)])


def fetch(wheel: VendorWheel) -> Path:
    """Return the folder of an unpacked wheel, fetched where it is not there yet."""
    with one_at_a_time(wheel.folder):
        if not wheel.folder.is_dir():
            work = Path(tempfile.mkdtemp(prefix="new-", dir=wheel.folder.parent))
            try:
                unpack(wheel, download(wheel, work), work / "unpacked")
                (work / "unpacked").rename(wheel.folder)
            finally:
                shutil.rmtree(work)
    return wheel.folder


@functools.cache
def try_to_fetch(wheel: VendorWheel) -> Path | str:
    """Return the folder, or why there is none: a process asks the index for every wheel once."""
    try:
        return fetch(wheel)
    except (FetchError, OSError) as error:
        return str(error)


def fetch_or_skip(wheel: VendorWheel) -> Path:
    """Return the folder, or skip the test with the reason."""
    found = try_to_fetch(wheel)
    if isinstance(found, str):
        pytest.skip(found)
    return found


def include_folder(wheel: VendorWheel) -> Path:
    """Return where a wheel's headers are, or skip the test."""
    found = sorted(fetch_or_skip(wheel).rglob("include"), key=lambda path: len(path.parts))
    return found[0]


def cupti_library(wheel: VendorWheel) -> Path:
    """Return the wheel's libcupti, or skip the test."""
    (library,) = fetch_or_skip(wheel).rglob("libcupti.so.*")
    return library


def main() -> int:
    for wheel in all_wheels():
        try:
            fetch(wheel)
        except (FetchError, OSError) as error:
            sys.stderr.write(f"vendor_wheels: {error}\n")
            return 1
    sys.stdout.write(f"headers and libraries of {len(all_wheels())} wheels are in {cache_folder()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
