"""What cupti_facts.h states of CUPTI is what NVIDIA's headers state, from CUDA 11.8 to 13.5.

Which structure a kind of record has is read from the comments of CUpti_ActivityKind: a new version that has another one
for it is compared with that one, and fails here where its fields have moved.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from .building import HERE, INJECT, run
from .vendor_wheels import CUDA, cupti_library

PROGRAMS = HERE / "programs"
FACTS = INJECT / "cupti_facts.h"
SESSION = INJECT / "cupti_session.c"
OF_NOBODY = re.compile(r"flags_\d+|reserved|padding|begin")  # places that we only step over

COMMON = {"kind": "kind", "start": "start", "end": "end", "correlation": "correlationId"}
PLACE = {"device": "deviceId", "context": "contextId", "stream": "streamId"}
NODE = {"graph_node": "graphNodeId", "graph": "graphId"}
COPY = {"copy_kind": "copyKind", "source": "srcKind", "target": "dstKind", "flags": "flags", "nbytes": "bytes"}

RECORDS: dict[str, tuple[str, dict[str, str]]] = {  # ours: the kind that it is a record of, our fields and NVIDIA's
    "cupti_kernel": (
        "CONCURRENT_KERNEL",
        COMMON
        | PLACE
        | NODE
        | {"completed": "completed", "grid_id": "gridId", "name": "name", "queued": "queued", "submitted": "submitted"}
        | {f"grid[{place}]": f"grid{axis}" for place, axis in enumerate("XYZ")}
        | {f"block[{place}]": f"block{axis}" for place, axis in enumerate("XYZ")}
        | {"static_nbytes": "staticSharedMemory", "dynamic_nbytes": "dynamicSharedMemory"},
    ),
    "cupti_copy": ("MEMCPY", COMMON | PLACE | NODE | COPY),
    "cupti_copy_ptop": (
        "MEMCPY2",
        COMMON
        | PLACE
        | NODE
        | COPY
        | {"source_device": "srcDeviceId", "source_context": "srcContextId"}
        | {"target_device": "dstDeviceId", "target_context": "dstContextId"},
    ),
    "cupti_memset": ("MEMSET", COMMON | PLACE | NODE | {"value": "value", "nbytes": "bytes"}),
    "cupti_synchronization": (
        "SYNCHRONIZATION",
        COMMON | {"type": "type", "context": "contextId", "stream": "streamId", "event": "cudaEventId"},
    ),
    "cupti_graph": ("GRAPH_TRACE", COMMON | PLACE | {"graph": "graphId"}),
}
LATER = {  # structures, and fields of them, that older versions do not have
    "cupti_graph_end": {"device": "endDeviceId", "context": "endContextId"},
    "cupti_subscriber": {
        "nbytes": "structSize",
        "name": "subscriberName",
        "old_name": "oldSubscriberName",
        "old_nbytes": "oldSubscriberSize",
        "many": "allowMultipleSubscribers",
    },
}

NUMBERS = {  # ours: NVIDIA's
    "KIND_MEMCPY": "CUPTI_ACTIVITY_KIND_MEMCPY",
    "KIND_MEMSET": "CUPTI_ACTIVITY_KIND_MEMSET",
    "KIND_KERNEL": "CUPTI_ACTIVITY_KIND_KERNEL",
    "KIND_CONCURRENT_KERNEL": "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL",
    "KIND_MEMCPY_PTOP": "CUPTI_ACTIVITY_KIND_MEMCPY2",
    "KIND_SYNCHRONIZATION": "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "KIND_GRAPH_TRACE": "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUPTI_OK": "CUPTI_SUCCESS",
    "CUPTI_END": "CUPTI_ERROR_MAX_LIMIT_REACHED",
    "CUPTI_NOT_COMPATIBLE": "CUPTI_ERROR_NOT_COMPATIBLE",
    "CUPTI_HARDWARE_BUSY": "CUPTI_ERROR_HARDWARE_BUSY",
    "CUPTI_NO_PRIVILEGES": "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
    "CUPTI_OLD_PROFILER": "CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED",
    "CUPTI_ONE_SUBSCRIBER": "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
    "CUPTI_NO_PRIVILEGES_HERE": "CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES",
    "CUPTI_FLUSH_COMPLETED": "0",  # the header has no name for it
    "CUPTI_FLUSH_FORCED": "CUPTI_ACTIVITY_FLAG_FLUSH_FORCED",
    "ON_HOST": "INT_MAX",  # so the comments of CUpti_ActivityGraphTrace2
}
ATTRIBUTES = {  # in cupti_session.c; not every version has all of them
    "PER_THREAD_BUFFERS": "CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER",
    "DEVICE_BUFFER_POOL_LIMIT": "CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT",
}
V2 = ["Subscribe_v2", "ActivityRegisterCallbacks_v2", "ActivityEnable_v2", "ActivityDisable_v2"]
V2 += ["ActivityGetNextRecord_v2", "ActivityGetNumDroppedRecords_v2", "GetTimestamp_v2"]
V2 += ["ActivityGetEnabledKinds"]
NOT_YET = {"11.8": set(V2), "12.1": set(V2), "12.9": set(V2), "13.0": set(V2) - {"Subscribe_v2"}, "13.5": set[str]()}


@functools.cache
def read_headers(folder: Path) -> str:
    return "".join(path.read_text(errors="replace") for path in sorted(folder.glob("cupti*.h")))


@functools.cache
def without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)


def fields_of_facts() -> dict[str, set[str]]:
    """Return the fields of each of our structures, less those that we only step over."""
    found: dict[str, set[str]] = {}
    for name, body in re.findall(r"struct (cupti_\w+) \{(.*?)\n\};", without_comments(FACTS.read_text()), re.DOTALL):
        words = re.findall(r"(\w+)(?:\[(\d+)\])?\s*[,;]", body)
        names = {f"{word}[{place}]" for word, size in words for place in range(int(size or 0))}
        names |= {word for word, size in words if not size}
        found[name] = {field for field in names if not OF_NOBODY.match(field) or field == "flags"}
    return found


def numbers_of_facts() -> set[str]:
    return set(re.findall(r"\b([A-Z_]+) = \d+", without_comments(FACTS.read_text())))


def attributes_of_session() -> dict[str, int]:
    (body,) = re.findall(r"enum \{([^}]*)\}; /\* attributes \*/", SESSION.read_text())
    return {name: int(number) for name, number in re.findall(r"(\w+) = (\d+)", body)}


def functions_of_facts() -> set[str]:
    (body,) = re.findall(r"struct cupti \{(.*?)\n\};", without_comments(FACTS.read_text()), re.DOTALL)
    return set(re.findall(r"^\s*int \(\*(\w+)\)\(", body, re.MULTILINE))


@dataclass(frozen=True, slots=True)
class CuptiHeaders:
    """The headers of one version: their text, and what a compiler needs to include them."""

    version: str

    @property
    def includes(self) -> list[Path]:
        return CUDA[self.version].include_folders()

    @property
    def text(self) -> str:
        return read_headers(self.includes[0])

    def structure(self, kind: str) -> str:
        """Return the name of the structure that a kind's comment names last."""
        listed = re.search(r"typedef enum \{((?:(?!typedef enum).)*?)\} CUpti_ActivityKind;", self.text, re.DOTALL)
        assert listed, "CUpti_ActivityKind is not where it was"
        comment = re.search(rf"/\*\*((?:(?!\*/).)*?)\*/\s*CUPTI_ACTIVITY_KIND_{kind}\s*=", listed[1], re.DOTALL)
        assert comment, f"no comment before {kind}"
        named = re.findall(r"CUpti_Activity\w+", comment[1])
        assert named, f"the comment of {kind} names no structure"
        return str(named[-1])

    def has_function(self, name: str) -> bool:
        return re.search(rf"CUPTIAPI\s+cupti{name}\s*\(", self.text) is not None

    def has(self, word: str) -> bool:
        return re.search(rf"\b{word}\b", without_comments(self.text)) is not None


@dataclass(frozen=True, slots=True)
class CuptiComparison:
    """What the compiled program printed, by what is compared: [ours, NVIDIA's]."""

    fields: dict[str, list[str]]  # offset+size
    numbers: dict[str, list[str]]
    functions: dict[str, list[str]]  # whether the arguments fit
    sizes: dict[str, list[str]]


def lines_of_records(headers: CuptiHeaders) -> list[str]:
    lines = []
    for ours, (kind, fields) in RECORDS.items():
        theirs = headers.structure(kind)
        lines += [f"FIELD({ours}, {field}, {theirs}, {their_field});" for field, their_field in fields.items()]
        lines.append(f"SIZE({ours}, {theirs});")
    names = {"cupti_graph_end": headers.structure("GRAPH_TRACE"), "cupti_subscriber": "CUpti_SubscriberParams"}
    for ours, theirs in names.items():
        told = [pair for pair in LATER[ours].items() if headers.has(theirs) and headers.has(pair[1])]
        lines += [f"FIELD({ours}, {field}, {theirs}, {their_field});" for field, their_field in told]
    return lines


def lines_of_numbers(headers: CuptiHeaders) -> list[str]:
    lines = [f"NUMBER({ours}, {theirs});" for ours, theirs in NUMBERS.items()]
    known = {ATTRIBUTES[name]: number for name, number in attributes_of_session().items()}
    return lines + [f"EXPECTED({theirs}, {number});" for theirs, number in known.items() if headers.has(theirs)]


def lines_of_functions(headers: CuptiHeaders) -> list[str]:
    there = sorted(name for name in functions_of_facts() if headers.has_function(name))
    return [f"FUNCTION(facts::cupti::{name}, cupti{name});" for name in there]


def write_program(headers: CuptiHeaders) -> str:
    lines = [*lines_of_records(headers), *lines_of_numbers(headers), *lines_of_functions(headers)]
    return '#include "cupti_compare.hpp"\nint main()\n{\n' + "\n".join(lines) + "\n}\n"


def cxx() -> str:
    """Return the C++ compiler, or skip the test where there is none."""
    found = shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++")
    if found is None:
        pytest.skip("no C++ compiler")
    return found


def compile_and_run(headers: CuptiHeaders, folder: Path) -> str:
    source, program = folder / "compare.cpp", folder / "compare"
    source.write_text(write_program(headers))
    includes = [f"-I{INJECT}", f"-I{PROGRAMS}", *(f"-isystem{path}" for path in headers.includes)]
    run([cxx(), "-std=c++17", "-O0", "-Wno-invalid-offsetof", *includes, str(source), "-o", str(program)])
    return subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module", params=CUDA)
def headers(request: pytest.FixtureRequest) -> CuptiHeaders:
    return CuptiHeaders(request.param)


@pytest.fixture(scope="module")
def compared(headers: CuptiHeaders, tmp_path_factory: pytest.TempPathFactory) -> CuptiComparison:
    printed = compile_and_run(headers, tmp_path_factory.mktemp("compare"))
    found: dict[str, dict[str, list[str]]] = {part: {} for part in ("field", "number", "function", "size")}
    for part, name, *values in map(str.split, printed.splitlines()):
        found[part][name] = values
    return CuptiComparison(found["field"], found["number"], found["function"], found["size"])


def test_everything_in_our_header_is_compared() -> None:
    fields = {ours: set(fields) for ours, (_, fields) in RECORDS.items()}
    assert fields_of_facts() == fields | {ours: set(fields) for ours, fields in LATER.items()}
    assert numbers_of_facts() == set(NUMBERS)
    assert set(attributes_of_session()) == set(ATTRIBUTES)


def test_every_field_has_its_place_and_size(compared: CuptiComparison) -> None:
    ours = {name: own for name, (own, _) in compared.fields.items()}
    assert ours == {name: theirs for name, (_, theirs) in compared.fields.items()}
    assert len(ours) >= sum(len(fields) for _, fields in RECORDS.values())


def test_what_we_know_of_a_record_is_within_it(compared: CuptiComparison) -> None:
    assert set(compared.sizes) == set(RECORDS)
    assert all(int(ours) <= int(theirs) for ours, theirs in compared.sizes.values()), compared.sizes


def test_numbers_mean_the_same(compared: CuptiComparison) -> None:
    ours = {name: own for name, (own, _) in compared.numbers.items()}
    assert ours == {name: theirs for name, (_, theirs) in compared.numbers.items()}
    assert set(NUMBERS) < set(ours)


def test_functions_take_what_we_hand_them(compared: CuptiComparison) -> None:
    assert {name for name, (fits,) in compared.functions.items() if fits != "1"} == set()


def test_functions_are_there_from_the_version_on_that_we_ask_for(headers: CuptiHeaders) -> None:
    known = functions_of_facts()
    missing = {name for name in known if not headers.has_function(name)}
    assert missing == NOT_YET[headers.version] & known


def test_the_library_exports_every_function_of_its_header(headers: CuptiHeaders) -> None:
    exported = cupti_library(CUDA[headers.version].cupti).read_bytes()
    known = functions_of_facts()
    assert {name for name in known if f"\0cupti{name}\0".encode() in exported} == known - NOT_YET[headers.version]


def test_a_function_that_does_not_fit_is_found(tmp_path: Path) -> None:
    """The comparison itself, with a function of (size_t *, uint8_t *) that returns an int."""
    wrong = [
        "int(size_t *)",
        "int(size_t *, uint8_t *, int)",
        "int(size_t, uint8_t *)",  # a number where a pointer belongs
        "int(uint32_t *, uint8_t *)",  # a pointer to something smaller
        "int(size_t *, void (*)(uint8_t))",  # to a function
        "uint64_t(size_t *, uint8_t *)",  # another result
    ]
    values = [f"fit<{ours}, int(size_t *, uint8_t *)>::value" for ours in [*wrong, "int(uint64_t *, uint8_t *)"]]
    source, program = tmp_path / "fit.cpp", tmp_path / "fit"
    lines = "".join(f'std::printf("%d", {value});' for value in values)
    source.write_text(f'#include <cstdio>\n#include "signatures.hpp"\nint main() {{ {lines} }}\n')
    run([cxx(), "-std=c++17", f"-I{PROGRAMS}", str(source), "-o", str(program)])
    assert subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout == "0000001"
