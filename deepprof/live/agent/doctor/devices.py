"""The GPUs of this machine: whether the driver is there, and which library could report what runs on them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence

from deepprof.live.agent.doctor.file_tree import FileTree
from deepprof.live.agent.doctor.findings import DoctorFinding, note, ok, wrong

VERSION = "/proc/driver/nvidia/version"
NUMBER = re.compile(r"Kernel Module.*?\s(\d+)\.(\d+)(?:\.\d+)?\s")
# The first driver branch for a CUDA release in NVIDIA's table of minor version compatibility. With a forward
# compatibility package older branches work too, so that an older one proves nothing.
BRANCHES = {11: 450, 12: 525, 13: 580}
LIBRARY = r"libcupti\.so(\.[\d.]+)?"
PLACES = ("extras/CUPTI/lib64", "lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib")
WHEELS = ("nvidia/cuda_cupti/lib", "nvidia/cu*/lib")
ADMINS_ONLY = re.compile(r"^RmProfilingAdminOnly:\s*1", re.MULTILINE)


def examine_devices(
    tree: FileTree, variables: Mapping[str, str], search: Sequence[str], *, is_root: bool
) -> list[DoctorFinding]:
    """Return the findings on GPUs; `search` are folders of Python packages, where wheels put CUPTI."""
    nvidia = list(_examine_nvidia(tree, variables, search, is_root=is_root))
    amd = list(_examine_amd(tree))
    if not nvidia and not amd:
        return [note("GPU", "none here", "on the CPU PyTorch's operators stand for kernels")]
    return nvidia + amd


def _examine_nvidia(
    tree: FileTree, variables: Mapping[str, str], search: Sequence[str], *, is_root: bool
) -> Iterator[DoctorFinding]:
    """Yield the findings on NVIDIA's driver and CUPTI; none if there is neither driver nor device."""
    version, devices = tree.read(VERSION), tree.glob("/dev/nvidia[0-9]*")
    if version is None and not devices:
        return
    branch = read_branch(version or "")
    yield ok("NVIDIA driver", f"{branch[0]}.{branch[1]}") if branch else _name_driver(version)
    if not devices:
        hidden = "this container was not given a GPU" if version else "no device file"
        yield wrong("NVIDIA device", hidden, "start the container with its GPUs (--gpus all), or load the driver")
    elif closed := [path for path in devices if not tree.may_use(path)]:
        yield wrong("NVIDIA device", f"{closed[0]} may not be used by this user", "ask for access to the GPU")
    if not tree.in_loader_cache(r"libcuda\.so\.1") and not _in_library_path(tree, variables, "libcuda.so.1"):
        yield wrong("libcuda.so.1", "the loader does not know it", "install the driver's libraries, or mount them")
    yield judge_cupti(_find_cupti(tree, variables, search), branch[0] if branch else None)
    if ADMINS_ONLY.search(tree.read("/proc/driver/nvidia/params") or "") and not is_root:
        why = "the driver keeps counters for administrators; kernels and copies need none"
        yield note("profiling permission", why, "where CUPTI refuses: NVreg_RestrictProfilingToAdminUsers=0")


def _name_driver(version: str | None) -> DoctorFinding:
    """Return the finding on a driver without a version number."""
    if version is None:
        return note("NVIDIA driver", f"{VERSION} is not there", "a container may hide it; what counts is libcuda.so.1")
    return note("NVIDIA driver", "its version is not to be read")


def read_branch(version: str) -> tuple[int, int] | None:
    """Return the driver's branch and number, from its version text."""
    found = NUMBER.search(version)
    return (int(found[1][:6]), int(found[2][:6])) if found else None


def _in_library_path(tree: FileTree, variables: Mapping[str, str], name: str) -> bool:
    folders = [part for part in variables.get("LD_LIBRARY_PATH", "").split(os.pathsep) if part.startswith("/")]
    return any(tree.exists(f"{folder}/{name}") for folder in folders)


def _find_cupti(tree: FileTree, variables: Mapping[str, str], search: Sequence[str]) -> dict[str, int | None]:
    """Return the CUPTI libraries of wheels, of the toolkit and of the loader, each with its CUDA release."""
    found = tree.in_loader_cache(LIBRARY)
    homes = [variables[name] for name in ("CUDA_HOME", "CUDA_PATH") if variables.get(name, "").startswith("/")]
    patterns = [f"{folder}/{place}" for folder in search for place in WHEELS]
    patterns += [f"{home}/{place}" for home in [*homes, "/usr/local/cuda*"] for place in PLACES]
    for pattern in patterns:
        found += [path for path in tree.glob(f"{pattern}/libcupti.so*") if re.fullmatch(LIBRARY, path.split("/")[-1])]
    return {path: read_release(path) for path in dict.fromkeys(found)}


def read_release(path: str) -> int | None:
    """Return the CUDA release that a path names: in the library's name (below 100; a year is none), or a folder's."""
    number = re.search(r"libcupti\.so\.(\d{1,2})(?!\d)", path) or re.search(r"/cuda-?(\d{2})(?=[./])", path)
    number = number or re.search(r"/cu(\d{2})/", path)
    return int(number[1]) if number else None


def judge_cupti(found: Mapping[str, int | None], branch: int | None) -> DoctorFinding:
    """Return the finding whether there is a CUPTI that works with the driver."""
    if not found:
        why = "not found beside torch, in CUDA_HOME, nor by the loader"
        return wrong("CUPTI", why, "PyTorch for CUDA brings it along; else install the CUDA toolkit, or set CUDA_HOME")
    releases = {release for release in found.values() if release}
    first = next(iter(found))
    if branch is None or None in found.values() or any(branch >= BRANCHES.get(each, 0) for each in releases):
        return ok("CUPTI", f"{first}" + (f" and {len(found) - 1} more" if len(found) > 1 else ""))
    oldest = min(releases)
    why = f"{first} is of CUDA {oldest}, which asks for driver {BRANCHES[oldest]} or later; this one is {branch}"
    return note("CUPTI", why, "where it refuses: update the driver, or install the CUPTI of an older CUDA")


def _examine_amd(tree: FileTree) -> Iterator[DoctorFinding]:
    if not tree.exists("/dev/kfd"):
        return
    if not tree.may_use("/dev/kfd"):
        yield wrong("AMD device", "/dev/kfd may not be used by this user", "join the groups render and video")
    tools = tree.in_loader_cache(r"librocprofiler-sdk\.so(\.\d+)*") + tree.glob("/opt/rocm*/lib/librocprofiler-sdk.so*")
    said = f"rocprofiler-sdk is {tools[0]}" if tools else "rocprofiler-sdk is not there"
    yield note("AMD GPU", said, "its records come from an RPD file: deepprof agent --tail FILE.rpd --job NAME")
