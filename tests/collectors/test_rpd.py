"""rocmProfileData: real files counted with plain SQL, and files made to be odd."""

from __future__ import annotations

import gzip
import sqlite3
from pathlib import Path

import polars as pl
import pytest

from deepprof.collectors import importers
from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.amd.rpd import Rpd
from deepprof.collectors.importers.directories import list_traces
from deepprof.collectors.trace import Trace
from tests.collectors.damage import read_or_refuse, survives
from tests.collectors.rpd_database import build, call, op

STRINGS = ("", "KernelExecution", "CopyHostToDevice", "FillBuffer", "Task", "Marker", "gemm", "hipLaunchKernel")
KERNEL, COPY, FILL, TASK, BARRIER, GEMM, LAUNCH = range(2, 9)


def read(path: Path) -> Trace:
    return Rpd().read(path)


def named(trace: Trace) -> pl.DataFrame:
    return trace.device_events.with_columns(
        name=pl.Series([trace.name(i) for i in trace.device_events["name_id"]], dtype=pl.String)
    )


@pytest.mark.traces
@pytest.mark.parametrize("file", ["rpd-matmul/matmul_result.rpd", "rpd-matmul-large/matmul_result_large.rpd"])
def test_a_real_file_holds_what_plain_sql_counts(traces, file):
    path = traces / file
    assert Rpd().accepts(path.read_bytes()[:65536], path)
    trace = read(path)
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)

    def count(query: str) -> int:
        return int(connection.execute(query).fetchone()[0])

    joined = "SELECT count(*) FROM rocpd_op o JOIN rocpd_string s ON s.id = o.opType_id WHERE s.string "
    rows = dict(trace.device_events.group_by("activity").len().rows())
    assert rows["kernel"] == count(f"{joined} = 'KernelExecution'") == 29
    assert rows["memcpy"] == count(f"{joined} LIKE 'Copy%'") == 55
    assert rows["memset"] == count(f"{joined} = 'FillBuffer'") == 1
    assert trace.device_events["stream"].unique().to_list() == [0]
    assert trace.device_events["device"].unique().to_list() == [2]
    monitors, calls = count("SELECT count(*) FROM rocpd_monitor"), count("SELECT count(*) FROM rocpd_api")
    assert trace.accounting.dropped == {"counter": monitors}
    assert trace.host_events.height == calls
    assert trace.accounting.read == calls + monitors + 85
    assert trace.accounting.flagged == {}  # every operation has its call
    copied = count("SELECT sum(size) FROM rocpd_copyapi WHERE typeof(size) = 'integer'")
    assert trace.device_events["nbytes"].sum() == copied
    busy = count("SELECT sum(end - start) FROM rocpd_op")
    assert (trace.device_events["end_ns"] - trace.device_events["start_ns"]).sum() == busy
    assert (trace.clock, trace.epoch_ns, trace.format, trace.notes) == ("session", None, "rpd", ())
    assert dict(trace.host_events.group_by("category").len().rows()) == {"runtime": 120, "overhead": 5}
    connection.close()


def test_names_come_from_the_description_or_else_from_the_type(tmp_path):
    ops = [op(10, KERNEL, GEMM), op(20, KERNEL), op(30, TASK), op(40, COPY), op(50, FILL), op(60, BARRIER), op(70, 99)]
    rows = named(read(build(tmp_path / "a.rpd", STRINGS, rocpd_op=ops)))
    assert rows.select("name", "activity", "copy_kind").rows() == [
        ("gemm", "kernel", None),
        ("KernelExecution", "kernel", None),
        ("Task", "kernel", None),
        ("Memcpy HtoD", "memcpy", "HtoD"),
        ("Memset", "memset", None),
        ("Marker", "sync", None),
        ("unknown", "kernel", None),
    ]


def test_one_call_may_launch_many_operations(tmp_path):
    links = [{"api_id": 5, "op_id": key} for key in range(1, 31)] + [
        {"api_id": 5, "op_id": 3},
        {"api_id": 6, "op_id": 31},
    ]
    ops = [op(100 + at, TASK) for at in range(30)] + [op(500, COPY), op(600, KERNEL)]
    copies = [{"api_ptr_id": 6, "stream": "0x0", "size": 4096}, {"api_ptr_id": 5, "stream": "0x0", "size": 9}]
    path = build(
        tmp_path / "a.rpd",
        STRINGS,
        rocpd_op=ops,
        rocpd_api=[call(5, LAUNCH), call(6, LAUNCH)],
        rocpd_api_ops=links,
        rocpd_copyapi=copies,
    )
    trace = read(path)
    assert trace.device_events["correlation"].to_list() == [5] * 30 + [6, None]
    assert trace.device_events["nbytes"].to_list() == [None] * 30 + [4096, None]  # 9 is not the size of each of thirty
    assert trace.accounting.flagged["unlinked"] == 1
    assert trace.host_events["correlation"].to_list() == [5, 6]


def test_streams_are_numbered_where_every_kernel_has_one(tmp_path):
    ops = [op(10 * at, KERNEL, GEMM, queueId=at % 2) for at in range(1, 5)]
    links = [{"api_id": at, "op_id": at} for at in range(1, 5)]
    calls = [{"api_ptr_id": at, "stream": handle} for at, handle in enumerate(("0x7f00", "0x0", "0x9000", "0x7f00"), 1)]
    tables = {"rocpd_op": ops, "rocpd_api_ops": links, "rocpd_api": [call(at, LAUNCH) for at in range(1, 5)]}
    whole = read(build(tmp_path / "a.rpd", STRINGS, rocpd_kernelapi=calls, **tables))
    assert whole.device_events["stream"].to_list() == [1, 0, 2, 1]
    part = read(build(tmp_path / "b.rpd", STRINGS, rocpd_kernelapi=calls[:3], **tables))
    assert part.device_events["stream"].to_list() == [1, 0, 1, 0]  # the queues


def test_markers_are_annotations(tmp_path):
    strings = ("", "UserMarker", "iteration 3", "roctxRangePush", "roctx", "weird", "hipMalloc")
    calls = [call(1, 2, 3), call(2, 4, 3), call(3, 6, 3, domain_id=5), call(4, 7, 3), call(5, 2, 1)]
    trace = read(build(tmp_path / "a.rpd", strings, rocpd_api=calls))
    assert [trace.name(i) for i in trace.annotations["name_id"]] == ["iteration 3"] * 3 + ["UserMarker"]
    assert [trace.name(i) for i in trace.host_events["name_id"]] == ["hipMalloc"]
    assert trace.annotations["end_ns"].to_list() == [6, 7, 8, 10]
    assert trace.notes[0].startswith("the trace has no kernels and no copies")


def test_schema_3_keeps_arguments_in_a_table_of_their_own(tmp_path):
    arguments = [{"id": 1, "string": "step"}]
    trace = read(build(tmp_path / "a.rpd", ("", "UserMarker"), rocpd_api=[call(1, 2, 1)], rocpd_ustring=arguments))
    assert [trace.name(i) for i in trace.annotations["name_id"]] == ["step"]


def test_a_copy_between_two_gpus_is_told(tmp_path):
    strings = ("", "CopyDeviceToDevice")
    links = [{"api_id": at, "op_id": at} for at in (1, 2)]
    copies = [{"api_ptr_id": at, "stream": "0x0", "size": 1, "dstDevice": at, "srcDevice": 1} for at in (1, 2)]
    path = build(tmp_path / "a.rpd", strings, rocpd_op=[op(1, 2), op(2, 2)], rocpd_api_ops=links, rocpd_copyapi=copies)
    assert read(path).device_events["copy_kind"].to_list() == ["DtoD", "PtoP"]


def test_an_empty_file_is_a_trace_without_events(tmp_path):
    trace = read(build(tmp_path / "a.rpd"))
    assert trace.accounting.read == 0
    assert "no kernels and no copies" in trace.notes[0]


@pytest.mark.parametrize(
    "missing",
    [
        *("rocpd_string", "rocpd_api", "rocpd_api_ops", "rocpd_kernelapi", "rocpd_copyapi", "rocpd_monitor"),
        *("rocpd_op.gpuId", "rocpd_op.start", "rocpd_op.description_id", "rocpd_op.opType_id", "rocpd_op.queueId"),
        *("rocpd_api.pid", "rocpd_api.apiName_id", "rocpd_api_ops.op_id", "rocpd_copyapi.size", "rocpd_copyapi.stream"),
    ],
)
def test_any_table_and_any_column_may_be_missing(tmp_path, missing):
    tables = {
        "rocpd_op": [op(1, KERNEL, GEMM), op(2, COPY)],
        "rocpd_api": [call(1, LAUNCH), call(2, LAUNCH)],
        "rocpd_api_ops": [{"api_id": 1, "op_id": 1}, {"api_id": 2, "op_id": 2}],
        "rocpd_copyapi": [{"api_ptr_id": 2, "stream": "0x0", "size": 1}],
        "rocpd_monitor": [{"deviceId": 1}],
    }
    table, _, column = missing.partition(".")
    tables = {
        name: [{c: v for c, v in row.items() if name != table or c != column} for row in rows]
        for name, rows in tables.items()
    }
    trace = read(build(tmp_path / "a.rpd", STRINGS, leave_out=[missing], **tables))
    records = {"rocpd_op": 2, "rocpd_api": 2, "rocpd_monitor": 1}
    lost = 0 if column else records.get(table, 0)
    assert trace.accounting.read == 5 - lost


@pytest.mark.parametrize("value", [None, "text", b"\xff\xfe", 1.5, 2**63 - 1, -(2**63) + 1, -1])
@pytest.mark.parametrize("column", ["gpuId", "queueId", "start", "end", "description_id", "opType_id"])
def test_values_that_make_no_sense_cost_one_row_at_most(tmp_path, column, value):
    ops = [op(1, KERNEL, GEMM), {**op(2, KERNEL, GEMM), column: value}]
    trace = read(build(tmp_path / "a.rpd", STRINGS, rocpd_op=ops))
    assert trace.accounting.read == 2
    assert trace.accounting.kept >= 1


def test_ids_that_come_twice_double_nothing(tmp_path):
    path = build(tmp_path / "a.rpd", STRINGS, rocpd_op=[op(1, KERNEL, GEMM)])
    connection = sqlite3.connect(path)
    connection.execute("DROP TABLE rocpd_string")
    connection.execute("CREATE TABLE rocpd_string (id integer, string text)")
    connection.executemany("INSERT INTO rocpd_string VALUES (?, ?)", [(GEMM, "first"), (GEMM, "second"), (None, "x")])
    connection.commit()
    connection.close()
    assert named(read(path))["name"].to_list() == ["first"]


def test_files_of_something_else_are_one_line(tmp_path):
    path = tmp_path / "a.rpd"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE rocpd_kernel_dispatch_aa (id integer)")
    connection.commit()
    connection.close()
    assert not Rpd().accepts(path.read_bytes(), path)
    with pytest.raises(TraceError, match="is no rocmProfileData database"):
        read(path)


def test_what_was_made_of_a_file_is_no_second_trace(tmp_path):
    build(tmp_path / "a.rpd", STRINGS, rocpd_op=[op(1, KERNEL, GEMM)])
    content = '[{"name":"process_name","ph":"M","pid":"2","args":{"name":"GPU2"}}]'
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(content)
    assert [path.name for path in list_traces(tmp_path).traces] == ["a.rpd", "b.json"]
    (tmp_path / "a.json").write_text("{}")
    assert list(Rpd().covers(tmp_path / "a.rpd")) == []


def test_damaged_files_are_a_trace_or_one_line(tmp_path):
    ops = [op(at, KERNEL, GEMM) for at in range(60)] + [op(99, COPY)]
    path = build(tmp_path / "sound.rpd", STRINGS, rocpd_op=ops, rocpd_api=[call(1, LAUNCH)])
    assert survives(Rpd(), tmp_path / "damaged.rpd", path.read_bytes()) > 0
    assert isinstance(read_or_refuse(Rpd(), path), Trace)


def pack(path: Path) -> Path:
    """Return a compressed copy of a database."""
    packed = path.with_name(f"{path.name}.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    return packed


def test_a_compressed_database_is_the_same_trace(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    plain = build(tmp_path / "a.rpd", STRINGS, rocpd_op=[op(10, KERNEL, GEMM), op(20, COPY)])
    packed = pack(plain)
    assert read(packed).device_events.equals(read(plain).device_events)
    assert list_traces(tmp_path).traces == [plain, packed]
    assert list((tmp_path / "scratch").iterdir()) == [], "nothing stays behind"


def test_a_compressed_database_that_breaks_off_is_one_line_about_the_file_itself(tmp_path):
    packed = pack(build(tmp_path / "a.rpd", STRINGS, rocpd_op=[op(10, KERNEL, GEMM)]))
    packed.write_bytes(packed.read_bytes()[:-40])
    with pytest.raises(TraceError) as refused:
        importers.read(packed)
    assert str(refused.value).startswith(str(packed))
    assert "\n" not in str(refused.value)


def test_a_compressed_database_that_is_too_large_unpacked_is_refused(tmp_path, monkeypatch):
    packed = pack(build(tmp_path / "a.rpd", STRINGS, rocpd_op=[op(10, KERNEL, GEMM)]))
    monkeypatch.setattr("deepprof.collectors.importers.sqlite.packed.LIMIT_NBYTES", 1_000)
    with pytest.raises(TraceError, match=r"a\.rpd\.gz"):
        importers.read(packed)
