"""Nsight Systems databases: every schema variant, damage, and the real captures."""

from __future__ import annotations

import csv
import os
import sqlite3
import struct
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.nsys import Nsys
from deepprof.collectors.importers.sqlite_columns import open_database
from deepprof.collectors.trace import Trace

PID, TID = 1234, 1235
GLOBAL_PID = (1 << 48) | (PID << 24)
GLOBAL_TID = GLOBAL_PID | TID
STRINGS = {1: "void gemm<float>(int)", 2: "gemm", 3: "cudaLaunchKernel_v7000", 4: "cuMemAlloc_v2", 5: "forward"}
KERNEL = {
    "start": 100,
    "end": 200,
    "deviceId": 0,
    "contextId": 1,
    "streamId": 7,
    "correlationId": 11,
    "globalPid": GLOBAL_PID,
    "demangledName": 1,
    "shortName": 2,
    "graphNodeId": None,
}
COPY = {
    **{k: v for k, v in KERNEL.items() if k not in ("demangledName", "shortName")},
    "bytes": 4096,
    "copyKind": 1,
    "srcKind": 1,
    "dstKind": 2,
}
CALL = {"start": 50, "end": 60, "eventClass": 0, "globalTid": GLOBAL_TID, "correlationId": 11, "nameId": 3}
RANGE = {
    "start": 10,
    "end": 20,
    "eventType": 59,
    "text": "step",
    "textId": None,
    "globalTid": GLOBAL_TID,
    "domainId": 0,
}

Rows = list[dict[str, object]]


@pytest.fixture(scope="module")
def traces() -> Path:
    root = Path(os.environ.get("DEEPPROF_TRACES", Path(__file__).parents[2] / "../shared/traces"))
    if not root.is_dir():
        pytest.skip("no real traces (DEEPPROF_TRACES)")
    return root


def rows(base: dict[str, object], *changes: dict[str, object]) -> Rows:
    return [{**base, **change} for change in changes]


def without(table: Rows, *columns: str) -> Rows:
    return [{k: v for k, v in row.items() if k not in columns} for row in table]


def build(path: Path, *, strings: dict[int, object] | None = None, **tables: Rows) -> Path:
    """Write a database with `tables`; columns are those of the first row, without types like a foreign writer's."""
    connection = sqlite3.connect(path)
    strings = STRINGS if strings is None else strings
    everything = {"StringIds": [{"id": key, "value": text} for key, text in strings.items()], **tables}
    for table, content in everything.items():
        columns = list(content[0]) if content else ["id"]
        connection.execute(f'CREATE TABLE "{table}" ({", ".join(columns)})')
        marks = ", ".join("?" * len(columns))
        connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', [tuple(row.values()) for row in content])
    connection.commit()
    connection.close()
    return path


def read(path: Path) -> Trace:
    return Nsys().read(path)


def named(trace: Trace, table: str, *columns: str) -> list[tuple[object, ...]]:
    frame = getattr(trace, table)
    return frame.with_columns(name=trace.names.gather(frame["name_id"])).select(*columns).rows()


def accepts(path: Path) -> bool:
    return Nsys().accepts(path.read_bytes()[: 64 * 1024], path)


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
    assert (accounting.read, accounting.kept, dict(accounting.dropped)) == (2, 0, {"invalid": 2})


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
    assert dict(trace.accounting.dropped) == {"invalid": 7}


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
    assert dict(trace.accounting.dropped) == {"metadata": 3, "invalid": 1}
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
        (3, "broken", None),
        (4, "chatter", 0),
    ]
    table = [{"severity": severity, "text": text, "globalPid": pid} for severity, text, pid in events]
    quiet = read(build(tmp_path / "a.sqlite", DIAGNOSTIC_EVENT=table, CUPTI_ACTIVITY_KIND_KERNEL=rows(KERNEL, {})))
    assert quiet.notes == ("nsys error: broken", "nsys warning: lost 5 events")
    empty = read(build(tmp_path / "b.sqlite", DIAGNOSTIC_EVENT=table))
    assert "the capture has no CUDA events" in empty.notes
    assert "nsys warning: No CUDA events collected. Does the process use CUDA?" in empty.notes


def test_an_empty_capture_is_a_trace(tmp_path):
    trace = read(build(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=[]))
    assert trace.accounting.read == 0
    assert trace.notes == ("the capture has no CUDA events",)


def test_an_nvprof_database_is_not_accepted(tmp_path):
    path = tmp_path / "a.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE StringTable (_id_ INTEGER PRIMARY KEY, value TEXT)")
    connection.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (_id_ INTEGER PRIMARY KEY, start INT, end INT)")
    connection.commit()
    connection.close()
    assert not accepts(path)
    with pytest.raises(TraceError, match="SQLite database of something else"):
        read(path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty"),
        (b"\x1f\x8b\x08", "is compressed"),
        (b"hello", "not an SQLite database"),
        (b"SQLite format 3\0" + b"x" * 5000, "damaged or no SQLite database"),
    ],
)
def test_other_files_are_one_line(tmp_path, content, problem):
    path = tmp_path / "a.sqlite"
    path.write_bytes(content)
    assert not accepts(path)
    with pytest.raises(TraceError, match=problem) as caught:
        read(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_directory_are_one_line(tmp_path):
    for path in (tmp_path / "none.sqlite", tmp_path):
        with pytest.raises(TraceError, match="cannot be read"):
            read(path)


def test_names_with_odd_characters_open_and_leave_nothing_behind(tmp_path):
    directory = tmp_path / "a b?c#d%41&mode=rwc"
    directory.mkdir()
    path = build(directory / "ü;.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=rows(KERNEL, {}))
    before = path.read_bytes()
    assert read(path).device_events.height == 1
    assert [entry.name for entry in directory.iterdir()] == [path.name]
    assert path.read_bytes() == before


def test_a_database_in_wal_mode_gets_no_side_files(tmp_path):
    path = build(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=rows(KERNEL, {}))
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    assert read(path).device_events.height == 1
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_constant_and_varying_columns_are_read_alike(tmp_path):
    content = [{"a": 1, "b": None, "c": at, "d": None if at % 2 else at, "e": "text"} for at in range(1000)]
    with open_database(build(tmp_path / "a.sqlite", t=content)) as database:
        found = database.integers("t", {**dict.fromkeys("abcde"), "missing": 4})
        constant = database.integers("t", {"a": None, "missing": 4})
        absent = database.integers("none", {"a": 1})
    expected = pl.DataFrame(content).with_columns(pl.lit(None, pl.Int64).alias(c) for c in "be")
    assert found.equals(expected.with_columns(missing=pl.lit(4, pl.Int64)))
    assert constant.unique().rows() == [(1, 4)]
    assert constant.height == 1000
    assert absent.schema == {"a": pl.Int64()}
    assert absent.height == 0


def test_an_index_does_not_reorder_texts_and_numbers(tmp_path):
    path = build(tmp_path / "a.sqlite", t=[{"a": at, "b": f"{99 - at:02}"} for at in range(100)])
    connection = sqlite3.connect(path)
    connection.execute("CREATE INDEX i ON t (b)")
    connection.commit()
    connection.close()
    with open_database(path) as database:
        numbers, texts = database.integers("t", {"a": None})["a"], database.texts("t", "b")
    assert [(n, int(t)) for n, t in zip(numbers, texts, strict=True)] == [(at, 99 - at) for at in range(100)]


@pytest.mark.traces
def test_real_captures_hold_what_the_manifest_says(traces):
    found = {}
    with (traces / "manifest.csv").open() as file:
        listed = [row for row in csv.DictReader(file) if "nsys-sqlite" in row.values()]
    assert len(listed) == 7
    for row in listed:
        values = list(row.values())
        at = values.index("nsys-sqlite")
        path = traces / values[0]
        assert accepts(path)
        trace = read(path)
        kernels = trace.device_events.filter(pl.col("activity") == "kernel")
        assert kernels.height == int(values[at + 1]), path
        assert kernels["stream"].n_unique() == int(values[at + 2]), path
        assert trace.accounting.read == count_rows(path), path
        assert trace.accounting.read == trace.accounting.kept + sum(trace.accounting.dropped.values())
        found[path.parent.name] = trace
    assert "nsys warning: No CUDA events collected. Does the process use CUDA?" in found["cs336-ihor"].notes
    assert found["ecf-baseline-0"].annotations.height == 649
    compiled = found["cs336-zx-2_7B-compile"].device_events.group_by("activity").len()
    assert dict(compiled.rows()) == {"kernel": 30, "graph": 10, "sync": 2}
    names = set(found["cs336-zx-2_7B-nvtx"].names)
    assert {"Stream Sync", "Memcpy HtoD (Pageable -> Device)", "warmup", "cudaLaunchKernel"} <= names


def count_rows(path: Path) -> int:
    tables = ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE", "SYNCHRONIZATION", "RUNTIME")
    names = [f"CUPTI_ACTIVITY_KIND_{t}" for t in tables] + ["NVTX_EVENTS", "OSRT_API", "PROFILER_OVERHEAD"]
    with open_database(path) as database:
        return sum(database.count(name) for name in names)


@pytest.mark.traces
def test_the_papers_profiler_is_not_taken_for_nsys(traces):
    assert not accepts(traces / "nvprof-lm" / "net.sql")


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> bytes:
    path = build(
        tmp_path_factory.mktemp("sound") / "a.sqlite",
        CUPTI_ACTIVITY_KIND_KERNEL=rows(KERNEL, *({"start": at, "streamId": at % 3} for at in range(99))),
        CUPTI_ACTIVITY_KIND_MEMCPY=rows(COPY, {}, {"bytes": 2**50}),
        CUPTI_ACTIVITY_KIND_RUNTIME=rows(CALL, *({"correlationId": at} for at in range(50))),
        NVTX_EVENTS=rows(RANGE, *({"text": f"range {at}", "domainId": at % 2} for at in range(30))),
        TARGET_INFO_GPU=[{"id": 0, "cuDevice": 0, "name": "GPU", "totalMemory": 5, "smCount": 6}],
        DIAGNOSTIC_EVENT=[{"severity": 2, "text": "careful", "globalPid": 0}],
    )
    return path.read_bytes()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_gives_a_trace_or_one_line(tmp_path, sound, data):
    content = bytearray(sound)
    for _ in range(data.draw(st.integers(0, 8))):
        # Most bytes that matter to SQLite stand at the start of a page.
        page = data.draw(st.integers(0, len(content) // 4096 - 1)) * 4096
        content[page + data.draw(st.integers(0, 150) | st.integers(0, 4095))] = data.draw(st.integers(0, 255))
    size = data.draw(st.just(len(content)) | st.integers(0, len(content)))
    path = tmp_path / "damaged.sqlite"
    path.write_bytes(content[:size])
    accepts(path)
    assert "\n" not in outcome(path)


def outcome(path: Path) -> str:
    try:
        return read(path).format
    except TraceError as error:
        return str(error)


def interior_page(child: int, size: int, cells: int) -> bytes:
    """An interior page of a table whose children are all the same page."""
    start = size - 5 * cells
    header = struct.pack(">BHHHBI", 5, 0, cells, start, 0, child)
    pointers = struct.pack(f">{cells}H", *range(start, size, 5))
    content = b"".join(struct.pack(">IB", child, at) for at in range(cells))
    return (header + pointers).ljust(start, b"\0") + content


def test_a_page_tree_that_repeats_itself_ends(tmp_path):
    path = build(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=rows(KERNEL, *({"start": at} for at in range(2000))))
    connection = sqlite3.connect(path)
    query = "SELECT rootpage FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_KERNEL'"
    root = connection.execute(query).fetchone()[0]
    connection.close()
    content, size = bytearray(path.read_bytes()), 4096
    chain = [root, *range(root + 1, root + 8)]  # 90 ** 7 leaves
    for page, child in pairwise(chain):
        content[(page - 1) * size : page * size] = interior_page(child, size, 90)
    path.write_bytes(content)
    with pytest.raises(TraceError, match="its pages lead nowhere"):
        read(path)
