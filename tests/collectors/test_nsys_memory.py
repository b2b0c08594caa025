"""What a process takes from CUDA and gives back, in Nsight Systems' databases."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from deepprof.collectors.importers.nsys.nsys_tables import HOST_KINDS, SIGNS
from deepprof.collectors.trace import MEMORY_EVENTS
from tests import manifest
from tests.collectors.nsys_database import GLOBAL_PID, KERNEL, PID, build, read, rows

# Columns and numbers as NVIDIA documents them; those of ENUM_CUDA_DEV_MEM_EVENT_OPER and ENUM_CUDA_MEM_KIND were
# checked on the real databases, which have these enumerations and no row of memory.
TAKEN = {
    "start": 500,
    "globalPid": GLOBAL_PID,
    "deviceId": 1,
    "contextId": 1,
    "address": 0x7F00_0000_0000,
    "pc": 0,
    "bytes": 2**21,
    "memKind": 2,
    "memoryOperationType": 0,
    "name": None,
    "correlationId": 5,
    "streamId": None,
}


def test_memory_is_taken_and_given_back(tmp_path: Path) -> None:
    usage = rows(TAKEN, {"memoryOperationType": 1, "start": 900}, {}, {"memKind": 1, "deviceId": None, "start": 700})
    trace = read(build(tmp_path / "a.sqlite", CUDA_GPU_MEMORY_USAGE_EVENTS=usage, CUPTI_ACTIVITY_KIND_KERNEL=[KERNEL]))
    place = (0x7F00_0000_0000,)
    assert trace.memory_events.rows() == [
        (500, PID, None, 1, *place, 2**21, None, None),
        (700, PID, None, -1, *place, 2**21, None, None),
        (900, PID, None, 1, *place, -(2**21), None, None),
    ]
    assert (trace.accounting.read, trace.accounting.kept) == (4, 4)


def test_impossible_rows_are_counted(tmp_path: Path) -> None:
    odd = [{"start": 2**62}, {"start": None}, {"memoryOperationType": 7}]
    odd += [{"bytes": -1}, {"bytes": 2**60}, {"deviceId": -3}]
    usage = rows(TAKEN, *odd, {"address": -1})
    trace = read(build(tmp_path / "a.sqlite", CUDA_GPU_MEMORY_USAGE_EVENTS=usage, CUPTI_ACTIVITY_KIND_KERNEL=[KERNEL]))
    assert trace.memory_events["address"].to_list() == [2**64 - 1]
    assert trace.accounting.dropped == {"invalid-time": 2, "invalid": 1, "invalid-bytes": 2, "invalid-place": 1}


def test_faults_of_managed_memory_are_counted(tmp_path: Path) -> None:
    fault = {"start": 5, "globalPid": GLOBAL_PID, "address": 4096, "numberOfPageFaults": 3}
    tables = {"CUDA_UM_GPU_PAGE_FAULT_EVENTS": [fault, fault], "CUDA_UM_CPU_PAGE_FAULT_EVENTS": [fault]}
    trace = read(build(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=[KERNEL], **tables))
    assert trace.accounting.dropped == {"page-fault": 3}
    assert trace.accounting.read == 4


def test_a_capture_without_memory_has_none(tmp_path: Path) -> None:
    trace = read(build(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=[KERNEL]))
    assert (trace.memory_events.schema, trace.memory_events.height) == (MEMORY_EVENTS, 0)


NSYS = [row for row in manifest.rows() if row.values[0]["file"].endswith("cs336-zx-2_7B/result_2_7B.sqlite")]


@pytest.mark.traces
@pytest.mark.parametrize("row", NSYS)
def test_real_databases_number_kinds_and_operations_like_that(traces: Path, row: dict[str, str]) -> None:
    database = sqlite3.connect(f"file:{manifest.path_of(row)}?immutable=1", uri=True)
    operations = dict(database.execute("SELECT id, label FROM ENUM_CUDA_DEV_MEM_EVENT_OPER"))
    kinds = dict(database.execute("SELECT id, label FROM ENUM_CUDA_MEM_KIND"))
    assert {operations[number]: sign for number, sign in SIGNS.items()} == {"Allocation": 1, "Deallocation": -1}
    assert [kinds[number] for number in HOST_KINDS] == ["Pageable", "Pinned"]
