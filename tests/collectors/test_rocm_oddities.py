"""AMD's formats as other versions and hostile hands write them."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from deepprof.collectors import importers
from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.json_bounds import FLOOR_NBYTES, check_values
from deepprof.collectors.trace import Trace
from tests.collectors.damage import checked, read_within

TEXTS = [{"kind": "NONE", "operations": []}, {"kind": "HIP", "operations": [None, "hipLaunchKernel"]}]
DISPATCH = {
    **{"start_timestamp": 10, "end_timestamp": 20, "correlation_id": {"internal": 3, "external": 0}},
    **{"dispatch_info": {"agent_id": {"handle": 1}, "queue_id": {"handle": 2}, "kernel_id": 5}},
}
CALL = {"start_timestamp": 1, "end_timestamp": 2, "kind": 1, "operation": 1, "correlation_id": {"internal": 3}}
AGENT = {"id": {"handle": 1}, "type": 2, "node_id": 1, "logical_node_type_id": 0, "product_name": "MI300X"}
GPU = {"ph": "M", "name": "process_name", "pid": "2", "args": {"name": "GPU2"}}

OPENINGS = [
    json.dumps([GPU]).encode()[:-1] + b",",
    b'{"rocprofiler-sdk-tool":[{"buffer_records":{"kernel_dispatch":[',
    b'{"rocprofiler-sdk-tool":[{"buffer_records":{"pc_sample_host_trap":[',
]
CLOSINGS = {b"[": b"]", b"{": b"]}}]}"}


def document(**more: Any) -> str:
    process = {
        **{"metadata": {"pid": 7}, "agents": [AGENT], "strings": {"buffer_records": TEXTS, "marker_api": []}},
        **{"kernel_symbols": [{"kernel_id": 5, "formatted_kernel_name": "gemm"}]},
        **{"buffer_records": {"kernel_dispatch": [DISPATCH], "hip_api": [CALL]}, **more},
    }
    return json.dumps({"rocprofiler-sdk-tool": [process]})


def read(path: Path, text: str) -> Trace:
    path.write_text(text, encoding="utf-8")
    return importers.read(path)


def refusal(path: Path, text: str) -> str:
    with pytest.raises(TraceError) as error:
        read(path, text)
    return str(checked(error.value))


@pytest.mark.parametrize("odd", [None, 5, [], {"id": "x", "kernel_id": "5", "cu_count": "304", "key": []}])
@pytest.mark.parametrize("place", ["agents", "kernel_symbols", "buffer_records", "marker_api"])
def test_one_odd_entry_of_a_list_costs_itself_alone(tmp_path, place, odd):
    lists = json.loads(document())["rocprofiler-sdk-tool"][0]
    strings = lists["strings"]
    holder = strings if place in strings else lists
    holder[place] = [*holder[place], odd]
    trace = read(tmp_path / "a_results.json", document(**lists))
    assert trace.names.to_list() == ["gemm", "hipLaunchKernel"]
    assert trace.devices["name"].to_list() == ["MI300X"]


def test_a_record_without_a_correlation_is_kept(tmp_path):
    lists = {"kernel_dispatch": [{**DISPATCH, "correlation_id": None}], "hip_api": [{**CALL, "correlation_id": None}]}
    trace = read(tmp_path / "a_results.json", document(buffer_records=lists))
    assert (trace.device_events.height, trace.host_events.height) == (1, 1)
    assert trace.device_events["correlation"].to_list() == [None]


@pytest.mark.parametrize("pid", [2**63, 2**200, -(2**200)])
def test_a_process_of_any_number_is_a_trace(tmp_path, pid):
    assert read(tmp_path / "a_results.json", document(metadata={"pid": pid})).host_events.height == 1


def test_more_processes_than_a_file_has_are_refused(tmp_path):
    text = '{"rocprofiler-sdk-tool":[' + ",".join(["{}"] * 20_000) + "]}"
    assert "holds more than 1000 processes" in refusal(tmp_path / "a_results.json", text)


@pytest.mark.parametrize("item", [b"{}", b"0", b"[]"])
@pytest.mark.parametrize("opening", OPENINGS)
def test_a_file_of_empty_records_is_refused(tmp_path, opening, item):
    path = tmp_path / "a.json"
    path.write_bytes(opening + b",".join([item] * (FLOOR_NBYTES // len(item))) + CLOSINGS[opening[:1]])
    with pytest.raises(TraceError, match="little but empty values"):
        importers.read(path)


def test_a_small_file_of_empty_records_takes_no_memory_to_refuse(tmp_path):
    path = tmp_path / "a.json.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(OPENINGS[1] + b",".join([b"{}"] * (16 * 1024**2)) + CLOSINGS[b"{"])
    assert "little but empty values" in str(read_within(path, 400 * 1024**2)["error"])


def test_what_traces_hold_is_dense_enough(tmp_path):
    events = [{"ph": "s", "id": "1", "pid": "2", "tid": "0", "ts": "1"}] * 100_000
    names = [{"ph": "X", "name": "Sequence<4, 64, 1, 32>, " * 20, "pid": "2", "args": {"desc": ""}}] * 10_000
    check_values(tmp_path, json.dumps(events, separators=(",", ":")).encode())
    check_values(tmp_path, json.dumps(names, separators=(",", ":")).encode())
    check_values(tmp_path, b"{}," * (FLOOR_NBYTES // 3))


def test_times_before_zero_and_times_as_floats_are_exact(tmp_path):
    span = {"ph": "X", "name": "k", "pid": "2", "tid": "0", "dur": "1", "args": {"desc": "KernelExecution"}}
    times = ["-1.5", "-0.25", "0.25", 1234567890123.456]
    trace = read(tmp_path / "a.json", json.dumps([GPU, *({**span, "ts": at} for at in times)]))
    assert trace.device_events["start_ns"].to_list() == [-1_500, -250, 250, 1_234_567_890_123_456]


def test_a_database_of_many_empty_processes_is_refused_at_once(tmp_path):
    path = tmp_path / "a.db"
    tables = "".join(f"CREATE TABLE rocpd_kernel_dispatch_{number}(id, start);" for number in range(500))
    connection = sqlite3.connect(path)
    connection.executescript(f"PRAGMA page_size = 512; BEGIN; {tables} COMMIT;")
    connection.close()
    with pytest.raises(TraceError, match="it states 500 processes in"):
        importers.read(path)


def test_a_file_of_the_run_that_is_something_else_is_told(tmp_path):
    (tmp_path / "a_hip_api_trace.csv").write_text("one,two\n1,2\n")
    (tmp_path / "a_marker_api_trace.csv").touch()
    text = "Kernel_Name,Agent_Id,Start_Timestamp,End_Timestamp\nk,4,1,2\n"
    notes = read(tmp_path / "a_kernel_trace.csv", text).notes
    assert notes == ("a_hip_api_trace.csv has none of rocprof's columns and was left out",)
