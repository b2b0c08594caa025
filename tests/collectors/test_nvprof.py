"""nvprof's database: each table as rows of the trace, and what is missing or makes no sense."""

from __future__ import annotations

import json
import struct

import pytest

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.nsys import Nsys
from deepprof.collectors.importers.nvprof import Nvprof
from tests.collectors.nvprof_files import (
    DB_CALL,
    DB_COPY,
    DB_KERNEL,
    DB_MARKER,
    PLACED,
    accepts,
    build,
    named,
    read_database,
    rows,
    write,
)

BASE = 10**18


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.nvvp"


def test_kernels_of_every_table(path):
    tables = {f"{prefix}KERNEL": rows(DB_KERNEL, {}) for prefix in ("", "CONCURRENT_", "CDP_")}
    trace = read_database(path, **tables, RUNTIME=rows(DB_CALL, {}))
    expected = ("_Z4gemmIfEvPT_i", "kernel", BASE + 100, BASE + 200, 0, 1, 7, 11)
    columns = ("name", "activity", "start_ns", "end_ns", "device", "context", "stream", "correlation")
    assert named(trace, "device_events", *columns) == [expected] * 3
    assert (trace.format, trace.clock, trace.notes) == ("nvprof", "unix", ())
    assert trace.accounting.read == trace.accounting.kept == 4


def test_serialised_kernels_are_noted(path):
    assert "one at a time" in read_database(path, KERNEL=rows(DB_KERNEL, {})).notes[0]


def test_copies_and_memsets(path):
    peer = {key: value for key, value in DB_COPY.items() if key not in ("copyKind", "srcKind", "dstKind")}
    trace = read_database(
        path,
        MEMCPY=rows(DB_COPY, {}, {"copyKind": 2, "srcKind": 3, "dstKind": 2}, {"copyKind": 99, "srcKind": None}),
        MEMCPY2=rows(peer, {"srcDeviceId": 0, "dstDeviceId": 1}),
        MEMSET=rows(PLACED, {"bytes": 7}),
    )
    assert sorted(named(trace, "device_events", "activity", "name", "nbytes", "copy_kind"), key=str) == [
        ("memcpy", "Memcpy DtoH (Device -> Pinned)", 4096, "DtoH"),
        ("memcpy", "Memcpy HtoD (Pageable -> Device)", 4096, "HtoD"),
        ("memcpy", "Memcpy PtoP", 4096, "PtoP"),
        ("memcpy", "Memcpy", 4096, None),
        ("memset", "Memset", 7, None),
    ]


def test_unified_memory(path):
    counter = {"start": BASE, "end": BASE + 5, "counterKind": 1, "value": 4096, "srcId": 2**32 - 1, "dstId": 3}
    trace = read_database(
        path,
        UNIFIED_MEMORY_COUNTER=rows(
            counter, {}, {"counterKind": 2, "srcId": 1, "dstId": 2**32 - 1}, {"counterKind": 4}
        ),
    )
    columns = ("name", "device", "stream", "nbytes", "copy_kind")
    assert named(trace, "device_events", *columns) == [
        ("Unified Memory Memcpy HtoD", 3, -1, 4096, "HtoD"),
        ("Unified Memory Memcpy DtoH", 1, -1, 4096, "DtoH"),
    ]
    assert trace.accounting.dropped == {"unified-memory": 1}


def test_synchronizations_are_named_after_the_call_that_waited(path):
    sync = {key: value for key, value in PLACED.items() if key != "deviceId"}
    trace = read_database(
        path,
        SYNCHRONIZATION=rows(sync, {"type": 3}, {"type": 4, "correlationId": 12, "streamId": -1, "start": BASE + 101}),
        CONTEXT=[{"contextId": 1, "deviceId": 2}],
        RUNTIME=rows(DB_CALL, {"correlationId": 12, "cbid": 137}),
    )
    assert named(trace, "device_events", "activity", "name", "device", "stream") == [
        ("sync", "Stream Sync", 2, 7),
        ("sync", "Event Sync", 2, -1),
    ]


def test_calls_and_overhead(path):
    overhead = {
        "overheadKind": 1 << 16,
        "objectKind": 1,
        "objectId": struct.pack("<III", 7, 0, 0),
        "start": 1,
        "end": 2,
    }
    trace = read_database(
        path,
        RUNTIME=rows(DB_CALL, {}, {"cbid": 9999}, {"cbid": None}),
        DRIVER=rows(DB_CALL, {"cbid": 307}, {"cbid": 9999}),
        OVERHEAD=rows(overhead, {"start": BASE + 90, "end": BASE + 95}),
    )
    columns = ("name", "category", "process", "thread", "correlation")
    assert named(trace, "host_events", *columns) == [
        ("cudaLaunchKernel", "runtime", 7, 2**32 - 2, 11),
        ("runtime call 9999", "runtime", 7, 2**32 - 2, 11),
        ("unknown", "runtime", 7, 2**32 - 2, 11),
        ("cuLaunchKernel", "runtime", 7, 2**32 - 2, 11),
        ("driver call 9999", "runtime", 7, 2**32 - 2, 11),
        ("CUPTI buffer flush", "overhead", 7, None, None),
    ]
    assert trace.accounting.flagged["unnamed"] == 1


def test_ranges_are_paired_by_id(path):
    trace = read_database(
        path,
        MARKER=rows(
            DB_MARKER,
            {"timestamp": BASE + 40, "flags": 4, "name": 0},  # stored before its start
            {"timestamp": BASE + 10},
            {"timestamp": BASE + 50, "domain": 4},  # the id once more
            {"timestamp": BASE + 60, "flags": 4, "name": 0},
            {"timestamp": BASE + 70, "flags": 1, "id": 2},
            {"timestamp": BASE + 80, "id": 3, "objectKind": 1},  # never closed
            {"timestamp": BASE + 90, "id": 4, "flags": 4},  # never opened
            {"timestamp": BASE + 91, "id": 5, "flags": 64},
        ),
    )
    columns = ("start_ns", "end_ns", "name", "domain", "process", "thread")
    assert named(trace, "annotations", *columns) == [
        (BASE + 10, BASE + 40, "forward", None, 7, 2**32 - 2),
        (BASE + 50, BASE + 60, "forward", "layers", 7, 2**32 - 2),
        (BASE + 70, BASE + 70, "forward", None, 7, 2**32 - 2),
        (BASE + 80, None, "forward", None, 7, None),
    ]
    assert trace.accounting.dropped == {"range-end": 2, "unmatched": 1, "metadata": 1}


@pytest.mark.parametrize("stated", [None, b"", b"\1\2", b"x" * 99, "text", 7])
def test_odd_objects_have_no_thread_or_some(path, stated):
    trace = read_database(path, MARKER=rows(DB_MARKER, {"objectId": stated}))
    assert trace.annotations.height == 1
    assert (trace.annotations["thread"].null_count() == 1) == (not isinstance(stated, bytes) or len(stated) < 8)


def test_devices(path):
    device = {"id": 1, "name": 3, "globalMemorySize": 12, "numMultiprocessors": 15, "computeCapabilityMajor": 3}
    trace = read_database(path, DEVICE=rows(device, {}, {"id": 0, "name": 99}, {"id": -1}, {"name": 99}))
    found = trace.devices.drop("properties").rows()
    assert found == [(0, None, 12, 15), (1, "Tesla K40c", 12, 15)]
    assert json.loads(trace.devices["properties"][1]) == {"computeCapabilityMajor": 3}


def test_records_that_lost_their_times_are_left_out(path):
    trace = read_database(path, CONCURRENT_KERNEL=rows(DB_KERNEL, {}, {"start": 0, "end": 0}))
    assert trace.accounting.dropped == {"without-times": 1}
    assert "--device-buffer-size" in trace.notes[0]


def test_times_that_are_no_unix_times(path):
    assert read_database(path, CONCURRENT_KERNEL=rows(DB_KERNEL, {"start": 5, "end": 6})).clock == "session"


@pytest.mark.parametrize("column", [*DB_KERNEL, "name"])
def test_a_kernel_table_may_lack_any_column(path, column):
    table = [{key: value for key, value in DB_KERNEL.items() if key != column}]
    trace = read_database(path, CONCURRENT_KERNEL=table)
    assert trace.accounting.read == 1
    assert trace.device_events.height == (column not in ("start", "end"))
    assert trace.accounting.flagged.get("unnamed", 0) == (column == "name")


def test_rows_without_sense_are_counted(path):
    odd = rows(
        DB_KERNEL, {"end": BASE}, {"start": None}, {"deviceId": 2**40}, {"start": "x"}, {"name": 77}, {"end": 2**62}
    )
    trace = read_database(path, CONCURRENT_KERNEL=odd)
    assert trace.accounting.dropped == {"invalid-time": 4, "invalid-place": 1}
    assert named(trace, "device_events", "name") == [("unknown",)]


def test_an_empty_profile(path):
    trace = read_database(path, CONCURRENT_KERNEL=[])
    assert trace.accounting.read == 0
    assert "no GPU activities" in trace.notes[0]


def test_a_view_is_not_read(path):
    import sqlite3

    build(path, CONCURRENT_KERNEL=rows(DB_KERNEL, {}))
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE VIEW CUPTI_ACTIVITY_KIND_MEMCPY AS SELECT * FROM CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL"
        )
    connection.close()
    trace = Nvprof().read(path)
    assert trace.device_events.height == 1
    assert "is a view" in trace.notes[0]


def test_databases_are_told_apart(tmp_path):
    import sqlite3

    mine = build(tmp_path / "a", CONCURRENT_KERNEL=rows(DB_KERNEL, {}))
    theirs = tmp_path / "b"
    with sqlite3.connect(theirs) as connection:
        connection.execute("CREATE TABLE StringIds (id, value)")
        connection.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end)")
    connection.close()
    assert accepts(Nvprof(), mine)
    assert not accepts(Nsys(), mine)
    assert accepts(Nsys(), theirs)
    assert not accepts(Nvprof(), theirs)
    with pytest.raises(TraceError, match="SQLite database of something else"):
        Nvprof().read(theirs)


@pytest.mark.parametrize("content", [b"", b"text", b"SQLite format 3\0" + b"x" * 5000])
def test_what_is_no_database(path, content):
    write(path, content)
    assert not accepts(Nvprof(), path)
    with pytest.raises(TraceError):
        Nvprof().read(path)
