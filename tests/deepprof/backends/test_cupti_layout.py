"""What we hand to CUPTI's range profiler is laid out as NVIDIA's headers state, from CUDA 12.9 to 13.5."""

from __future__ import annotations

import re
import subprocess
from functools import cache

import pytest

from deepprof.backends import cupti_calls
from deepprof.backends.cupti_calls import LAYOUTS, MEANINGS, REASONS, STRUCTURES, measure_members
from tests.collectors.live.building import run
from tests.collectors.live.test_cupti_headers import CuptiHeaders, cxx
from tests.collectors.live.vendor_wheels import CUDA, cupti_library

VERSIONS = ("12.9", "13.0", "13.5")  # those before 12.6 update 2 have no such functions
NUMBERS = {
    "CUPTI_PROFILER_TYPE_RANGE_PROFILER": cupti_calls.RANGE_PROFILER,
    "CUPTI_PROFILER_RANGE_PROFILING": cupti_calls.RANGE_PROFILER,
    "CUPTI_UserRange": cupti_calls.USER_RANGE,
    "CUPTI_UserReplay": cupti_calls.USER_REPLAY,
    "CUPTI_PROFILER_CONFIGURATION_UNSUPPORTED": cupti_calls.UNSUPPORTED,
    "CUPTI_PROFILER_CONFIGURATION_DISABLED": cupti_calls.DISABLED,
    "CUPTI_ERROR_INVALID_PARAMETER": 1,
    "CUPTI_ERROR_NOT_COMPATIBLE": 14,
    "CUPTI_ERROR_NOT_INITIALIZED": 15,
    "CUPTI_ERROR_INVALID_METRIC_NAME": 17,
    "CUPTI_ERROR_HARDWARE_BUSY": 26,
    "CUPTI_ERROR_NOT_SUPPORTED": 27,
    "CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED": 33,
    "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES": 35,
    "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED": 39,
    "CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES": 40,
    "CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED": 41,
    "CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED": 42,
    "CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED": 43,
    "CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED": 44,
    "CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED": 45,
}
INCLUDES = ["cuda.h", "cstddef", "cstdio", "cupti_profiler_host.h", "cupti_profiler_target.h"]
INCLUDES += ["cupti_range_profiler.h", "cupti_target.h"]


@cache
def find_structures(version: str) -> dict[str, str]:
    """Return what each function takes, by the header."""
    text = CuptiHeaders(version).text
    found = {}
    for function in LAYOUTS:
        match = re.search(rf"CUptiResult CUPTIAPI cupti{function}\(\s*(CUpti_\w+_Params)\s*\*\s*\w+\s*\);", text)
        assert match, f"{function} takes something else"
        found[function] = match[1]
    return found


@pytest.fixture(scope="module", params=VERSIONS)
def headers(request: pytest.FixtureRequest) -> CuptiHeaders:
    return CuptiHeaders(request.param)


@pytest.fixture(scope="module")
def printed(headers: CuptiHeaders, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, ...]]:
    """Return the place and size of every member, the size that each structure states, and numbers."""
    lines = [f'std::printf("{name} %d\\n", int({name}));' for name in NUMBERS]
    for function, structure in find_structures(headers.version).items():
        lines.append(f'std::printf("{function} %zu\\n", size_t({structure}_STRUCT_SIZE));')
        for member, *_ in STRUCTURES[function]._fields_:
            place = f"offsetof({structure}, {member}), sizeof {structure}::{member}"
            lines.append(f'std::printf("{function}.{member} %zu %zu\\n", {place});')
    folder = tmp_path_factory.mktemp("layout")
    source, program = folder / "layout.cpp", folder / "layout"
    includes = "".join(f"#include <{name}>\n" for name in INCLUDES)
    source.write_text(includes + "int main()\n{\n" + "\n".join(lines) + "\n}\n")
    folders = [f"-isystem{path}" for path in headers.includes]
    run([cxx(), "-std=c++17", "-O0", *folders, str(source), "-o", str(program)])
    said = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    return {name: tuple(map(int, values)) for name, *values in map(str.split, said.splitlines())}


def test_every_member_has_its_place_and_size(printed: dict[str, tuple[int, ...]]) -> None:
    ours: dict[str, tuple[int, ...]] = {}
    for function, structure in STRUCTURES.items():
        members = {name: getattr(structure, name) for name, *_ in structure._fields_}
        ours |= {f"{function}.{name}": (member.offset, member.size) for name, member in members.items()}
    assert ours == {name: values for name, values in printed.items() if "." in name}


def test_structures_are_those_of_the_oldest_version(headers: CuptiHeaders, printed: dict[str, tuple[int, ...]]) -> None:
    ours = {function: (measure_members(function),) for function in LAYOUTS}
    theirs = {function: printed[function] for function in LAYOUTS}
    if headers.version == VERSIONS[0]:
        assert ours == theirs
    assert all(ours[function] <= theirs[function] for function in LAYOUTS)


def test_numbers_mean_what_the_headers_say(printed: dict[str, tuple[int, ...]]) -> None:
    assert {name: printed[name] for name in NUMBERS} == {name: (number,) for name, number in NUMBERS.items()}


def test_every_result_with_a_reason_is_compared() -> None:
    told = {*REASONS, *(result for _, result in MEANINGS)}
    assert told == {number for name, number in NUMBERS.items() if name.startswith("CUPTI_ERROR_")}


@pytest.mark.parametrize(("version", "is_there"), [("12.1", False), *((version, True) for version in VERSIONS)])
def test_the_library_of_a_version_has_all_functions_or_lacks_some(version: str, is_there: bool) -> None:
    exported = cupti_library(CUDA[version].cupti).read_bytes()
    assert all(f"\0cupti{function}\0".encode() in exported for function in LAYOUTS) is is_there
