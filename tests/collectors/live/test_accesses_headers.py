"""The library that counts accesses compiles against NVIDIA's headers, and hands patches what they are for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deepprof.collectors.live.accesses.toolkit import TENSOR_COPIES

from .building import HERE, compiler, run
from .vendor_wheels import CUDA, SANITIZER, include_folder

ACCESSES = HERE.parents[2] / "collectors" / "live" / "accesses"
TYPES = {  # of callbacks, by the function that patches.cu gives for them
    "deepprof_access": "MemoryAccess",
    "deepprof_async_copy": "MemcpyAsync",
    "deepprof_bulk_read": "BulkCopyGlobalToShared",
    "deepprof_bulk_write": "BulkCopySharedToGlobal",
    "deepprof_bulk_reduction": "BulkReductionSharedToGlobal",
}


def read_types(signature: str) -> list[str]:
    """Return the types of a parameter list, where all addresses are one."""
    words = [re.sub(r"\s*\w+$", "", each.strip()) for each in signature.split(",")]
    return ["address" if "*" in each or each == "uint64_t" else each for each in words]


@pytest.mark.parametrize("release", SANITIZER)
def test_the_library_compiles(release: str, tmp_path: Path) -> None:
    folder = include_folder(SANITIZER[release])
    tensors = TENSOR_COPIES in (folder / "sanitizer_patching.h").read_text()
    assert tensors == (release != "13.0")
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", *(["-DDEEPPROF_TENSOR_COPIES"] * tensors)]
    folders = [folder, include_folder(CUDA[release].runtime), include_folder(CUDA[release].crt)]
    includes = [word for each in folders for word in ("-isystem", str(each))]
    for source in sorted(ACCESSES.glob("*.c")):
        run([compiler(), *flags, *includes, str(source)])


@pytest.mark.parametrize("release", SANITIZER)
@pytest.mark.parametrize("patch", TYPES)
def test_a_patch_takes_the_first_arguments_of_its_callback(release: str, patch: str) -> None:
    """Later versions append some: a patch that takes fewer finds its own where they were."""
    header = (include_folder(SANITIZER[release]) / "sanitizer_patching.h").read_text()
    given = re.search(rf"SanitizerCallback{TYPES[patch]}\)\((.*?)\);", header)
    taken = re.search(rf"PATCH {patch}\((.*?)\)", (ACCESSES / "patches.cu").read_text())
    assert given is not None
    assert taken is not None
    types = read_types(taken[1])
    assert read_types(given[1])[: len(types)] == types
