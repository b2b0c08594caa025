"""Nsight Systems databases: every schema variant, row by row."""

from __future__ import annotations

import sqlite3

import pytest

from deepprof.collectors.importers.nsys.notes import NO_EVENTS
from tests.collectors.nsys_database import (
    CALL,
    COPY,
    GLOBAL_PID,
    KERNEL,
    PID,
    RANGE,
    STRINGS,
    TID,
    accepts,
    build,
    named,
    read,
    rows,
    without,
)


def test_reads_a_kernel_a_copy_and_their_calls_exactly(tmp_path):
    path = build(
        tmp_path / "a.sqlite",
        CUPTI_ACTIVITY_KIND_KERNEL=rows(KERNEL, {"graphNodeId": 9}),
        CUPTI_ACTIVITY_KIND_MEMCPY=rows(COPY, {"start": 20, "end": 30, "correlationId": 10}),
        CUPTI_ACTIVITY_KIND_RUNTIME=rows(CALL, {}, {"start": 1, "end": 2, "correlationId": 10, "nameId": 4}),
    )
    trace = read(path)
    assert trace.device_events.drop("name_id").rows() == [
        (20, 30, 0, 1, 7, "memcpy", 10, None, 4096, "HtoD", None),
        (100, 200, 0, 1, 7, "kernel", 11, None, None, None, 9),
    ]
    assert named(trace, "device_events", "name") == [("Memcpy HtoD (Pinned -> Device)",), ("void gemm<float>(int)",)]
    assert named(trace, "host_events", "start_ns", "process", "thread", "category", "name", "correlation") == [
        (1, PID, TID, "runtime", "cuMemAlloc_v2", 10),
        (50, PID, TID, "runtime", "cudaLaunchKernel", 11),
    ]
    assert (trace.format, trace.clock, trace.path) == ("nsys", "session", str(path))
    assert (trace.accounting.read, dict(trace.accounting.dropped), dict(trace.accounting.flagged)) == (4, {}, {})


@pytest.mark.parametrize("metadata", ["META_DATA_EXPORT", "EXPORT_META_DATA", None])
@pytest.mark.parametrize("extra", [{}, {"greenContextId": None, "graphId": 3, "clusterX": 1}])
def test_reads_the_same_from_every_release(tmp_path, metadata, extra):
    tables = {metadata: [{"name": "EXPORT_SCHEMA_VERSION", "value": "3.0.0"}]} if metadata else {}
    kernels = [{**extra, **row} for row in rows(KERNEL, {})]
    path = build(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=kernels, **tables)
    assert accepts(path)
    expected = [(100, 200, 7, "void gemm<float>(int)", 11, None)]
    columns = ("start_ns", "end_ns", "stream", "name", "correlation", "graph_node")
    assert named(read(path), "device_events", *columns) == expected


@pytest.mark.parametrize("column", [c for c in KERNEL if c not in ("start", "end")])
def test_a_missing_column_costs_no_row(tmp_path, column):
    path = build(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=without(rows(KERNEL, {}), column))
    trace = read(path)
    assert trace.device_events["start_ns"].to_list() == [100]
    assert trace.device_events["device"].to_list() == [0]


@pytest.mark.parametrize("column", ["start", "end"])
def test_rows_without_times_are_invalid(tmp_path, column):
    path = build(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=without(rows(KERNEL, {}, {}), column))
    accounting = read(path).accounting
    assert (accounting.read, accounting.kept, dict(accounting.dropped)) == (2, 0, {"invalid-time": 2})


def test_a_kernel_without_a_demangled_name_has_its_short_one_or_its_number(tmp_path):
    kernels = rows(
        KERNEL,
        {"start": 1, "demangledName": 77},
        {"start": 2, "demangledName": None},
        {"start": 3, "demangledName": 77, "shortName": 78},
        {"start": 4, "demangledName": None, "shortName": None},
    )
    trace = read(build(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=kernels))
    names = [name for (name,) in named(trace, "device_events", "name")]
    assert names == ["gemm", "gemm", "unknown kernel 77", "unknown kernel"]
    assert trace.accounting.flagged["unnamed"] == 2


def test_invalid_rows_are_counted_and_huge_numbers_survive(tmp_path):
    kernels = rows(
        KERNEL,
        {"end": 99},
        {"start": None},
        {"deviceId": 70_000},
        {"deviceId": -1},
        {"end": 2**63 - 1},
        {"start": "soon"},
        {"start": 1.5},
        {"contextId": 2**40, "correlationId": -5, "streamId": 2**62, "graphNodeId": 2**63 - 1},
    )
    trace = read(build(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=kernels))
    columns = ("context", "stream", "correlation", "graph_node")
    assert trace.device_events.select(columns).rows() == [(None, 2**62, None, 2**63 - 1)]
    assert dict(trace.accounting.dropped) == {"invalid-time": 5, "invalid-place": 2}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        *((code, "HtoD") for code in (1, 3, 11)),
        *((code, "DtoH") for code in (2, 4, 12)),
        *((code, "DtoD") for code in (5, 6, 7, 8, 13)),
        *((9, "HtoH"), (10, "PtoP"), (0, None), (99, None), (None, None)),
    ],
)
def test_copy_kinds(tmp_path, code, kind):
    copies = rows(COPY, {"copyKind": code, "srcKind": None})
    trace = read(build(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_MEMCPY=copies))
    assert named(trace, "device_events", "copy_kind", "name") == [(kind, f"Memcpy {kind}" if kind else "Memcpy")]


def test_synchronizations_are_named_after_the_call(tmp_path):
    strings = {**STRINGS, 20: "cudaStreamSynchronize_v3020", 21: "cudaDeviceSynchronize_v3020"}
    base = {k: v for k, v in COPY.items() if k not in ("bytes", "copyKind", "srcKind", "dstKind")}
    syncs = rows(
        base,
        {"start": 1, "syncType": 2, "correlationId": 1},  # what nsys 2024 writes for a stream synchronization
        {"start": 2, "syncType": 0, "correlationId": 2, "streamId": 2**32 - 1},
        {"start": 3, "syncType": 2, "correlationId": 99},
        {"start": 4, "syncType": 0, "correlationId": 98},
    )
    calls = rows(CALL, {"correlationId": 1, "nameId": 20}, {"correlationId": 2, "nameId": 21})
    path = build(
        tmp_path / "a.sqlite",
        strings=strings,
        CUPTI_ACTIVITY_KIND_SYNCHRONIZATION=syncs,
        CUPTI_ACTIVITY_KIND_RUNTIME=calls,
    )
    expected = [("Stream Sync", 7), ("Context Sync", -1), ("Stream Wait Event", 7), ("Sync", 7)]
    assert named(read(path), "device_events", "name", "stream") == expected


def test_graph_launches_are_one_event_each_and_said_so(tmp_path):
    base = {k: v for k, v in COPY.items() if k not in ("bytes", "copyKind", "srcKind", "dstKind", "graphNodeId")}
    graphs = rows({**base, "graphId": 4, "graphExecId": 5}, {}, {"start": 300, "end": 400, "graphId": None})
    trace = read(build(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_GRAPH_TRACE=graphs))
    assert named(trace, "device_events", "activity", "name") == [("graph", "CUDA graph 4"), ("graph", "CUDA graph 5")]
    assert any("2 CUDA graph launches" in note and "one event each" in note for note in trace.notes)


def test_annotations_of_every_kind(tmp_path):
    other = ((PID + 1) << 24) | 7
    nvtx = rows(
        RANGE,
        {"start": 1, "end": None, "eventType": 75, "text": "NCCL", "domainId": 3},
        {"start": 1, "end": None, "eventType": 75, "text": None, "textId": 5, "domainId": 3, "globalTid": other},
        {"start": 2, "end": None, "eventType": 33, "text": "a category"},
        {"start": 10},
        {"start": 11, "text": None, "textId": 5},
        {"start": 12, "end": None, "eventType": 60, "text": "open"},
        {"start": 13, "end": None, "eventType": 34, "text": "mark", "domainId": 3},
        {"start": 14, "text": None, "domainId": 3, "globalTid": other},
        {"start": 15, "text": None, "textId": 404, "domainId": 8},
        {"start": 16, "end": 15},
    )
    trace = read(build(tmp_path / "a.sqlite", NVTX_EVENTS=nvtx))
    assert named(trace, "annotations", "start_ns", "end_ns", "process", "thread", "name", "domain") == [
        (10, 20, PID, TID, "step", None),
        (11, 20, PID, TID, "forward", None),
        (12, None, PID, TID, "open", None),
        (13, 13, PID, TID, "mark", "NCCL"),
        (14, 20, PID + 1, 7, "unknown range", "forward"),
        (15, 20, PID, TID, "unknown range 404", "domain 8"),
    ]
    assert trace.annotations["side"].unique().to_list() == ["host"]
    assert not trace.annotations["framework"].any()
    assert dict(trace.accounting.dropped) == {"metadata": 3, "invalid-time": 1}
    assert dict(trace.accounting.flagged) == {"unnamed": 2}


def test_texts_that_are_no_utf8_are_read(tmp_path):
    path = build(tmp_path / "a.sqlite", NVTX_EVENTS=rows(RANGE, {}, {"start": 11}), strings={5: "x"})
    connection = sqlite3.connect(path)
    connection.execute("UPDATE NVTX_EVENTS SET text = CAST(x'66ff6f' AS TEXT) WHERE start = 11")
    connection.commit()
    connection.close()
    assert named(read(path), "annotations", "name") == [("step",), ("f\ufffdo",)]


def test_a_view_is_not_read(tmp_path):
    path = build(tmp_path / "a.sqlite", TARGET_INFO_GPU=[{"id": 0, "name": "GPU"}])
    connection = sqlite3.connect(path)
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS start, x AS end FROM n"
    connection.execute(f"CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS {endless}")
    connection.commit()
    connection.close()
    trace = read(path)
    assert trace.device_events.is_empty()
    assert "CUPTI_ACTIVITY_KIND_KERNEL is a view, not a table of nsys, and was not read" in trace.notes


def test_flags_count_overlapping_unlinked_and_zero_duration_kernels(tmp_path):
    kernels = rows(
        KERNEL,
        {"start": 1, "end": 10},
        {"start": 9, "end": 20},
        {"start": 15, "end": 30, "streamId": 8},
        {"start": 20, "end": 20, "correlationId": 12},
        {"start": 21, "end": 22, "correlationId": None},
    )
    tables = {"CUPTI_ACTIVITY_KIND_KERNEL": kernels, "CUPTI_ACTIVITY_KIND_RUNTIME": rows(CALL, {})}
    flagged = read(build(tmp_path / "a.sqlite", **tables)).accounting.flagged
    assert dict(flagged) == {"unlinked": 2, "zero-duration": 1, "overlapping": 1}


def test_several_processes_keep_their_correlations_apart(tmp_path):
    other = {"globalPid": (PID + 1) << 24, "deviceId": 1, "start": 300, "end": 400}
    path = build(
        tmp_path / "a.sqlite",
        CUPTI_ACTIVITY_KIND_KERNEL=rows(KERNEL, {}, other),
        CUPTI_ACTIVITY_KIND_RUNTIME=rows(CALL, {}, {"globalTid": ((PID + 1) << 24) | 5, "start": 250, "end": 260}),
    )
    trace = read(path)
    assert trace.device_events["correlation"].to_list() == [11, 2**40 + 11]
    assert trace.host_events.select("process", "correlation").rows() == [(PID, 11), (PID + 1, 2**40 + 11)]
    assert any(note.startswith("2 processes used CUDA in this capture (1234, 1235)") for note in trace.notes)


def test_devices_are_those_cuda_counts(tmp_path):
    gpus = [
        {"id": 0, "cuDevice": None, "name": "iGPU", "totalMemory": 1, "smCount": 1},
        {"id": 1, "cuDevice": 0, "name": "A100", "totalMemory": 80, "smCount": 108},
        {"id": 2, "cuDevice": 1, "name": "A100", "totalMemory": 80, "smCount": -1},
    ]
    gpus = gpus[1:] + gpus[:1]
    trace = read(build(tmp_path / "a.sqlite", TARGET_INFO_GPU=gpus))
    assert trace.devices.rows() == [(0, "A100", 80, 108, "{}"), (1, "A100", 80, None, "{}")]


def test_diagnostics_are_quoted_once_without_those_of_helpers(tmp_path):
    events = [
        (2, "No CUDA events collected.\n Does the process use CUDA?", (PID + 9) << 24),
        (2, "lost 5 events", GLOBAL_PID),
        (2, "lost 6 events", 0),
        (1, "all is well", 0),
        (3, "broken.Please look at lib.So", None),
        (4, "chatter", 0),
    ]
    table = [{"severity": severity, "text": text, "globalPid": pid} for severity, text, pid in events]
    quiet = read(build(tmp_path / "a.sqlite", DIAGNOSTIC_EVENT=table, CUPTI_ACTIVITY_KIND_KERNEL=rows(KERNEL, {})))
    assert quiet.notes == ("nsys error: broken. Please look at lib.So", "nsys warning: lost 5 events")
    empty = read(build(tmp_path / "b.sqlite", DIAGNOSTIC_EVENT=table))
    assert NO_EVENTS in empty.notes
    assert "nsys warning: No CUDA events collected. Does the process use CUDA?" in empty.notes


def test_a_capture_whose_rows_are_all_impossible_says_so(tmp_path):
    tables = {
        "CUPTI_ACTIVITY_KIND_KERNEL": rows(KERNEL, {"end": 1}),
        "CUPTI_ACTIVITY_KIND_MEMCPY": rows(COPY, {"end": 1}),
    }
    trace = read(build(tmp_path / "a.sqlite", **tables))
    assert trace.notes == ("all 2 device events have impossible times or places",)


def test_impossible_sizes_are_flagged(tmp_path):
    sizes = [4096, 2**44, -1, 2**44 + 1, 2**62, 2**63 - 1, None]
    copies = rows(COPY, *({"bytes": size} for size in sizes))
    trace = read(build(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_MEMCPY=copies))
    assert trace.device_events["nbytes"].to_list() == [4096, 2**44, *[None] * 5]
    assert trace.accounting.flagged["invalid-bytes"] == 4


@pytest.mark.parametrize(("stored", "epoch"), [(17 * 10**17, 17 * 10**17), (2**63 - 1, None), (-5, None)])
def test_a_start_of_session_that_cannot_be_is_none(tmp_path, stored, epoch):
    tables = {"TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": stored}]}
    assert read(build(tmp_path / "a.sqlite", **tables)).epoch_ns == epoch


def test_an_empty_capture_is_a_trace(tmp_path):
    trace = read(build(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=[]))
    assert trace.accounting.read == 0
    assert trace.notes == (NO_EVENTS,)
