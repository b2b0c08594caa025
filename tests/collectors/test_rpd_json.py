"""The JSON of rpd2tracing: the same job as an .rpd file, and documents made to be odd."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from deepprof.collectors import importers
from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.amd.rpd_json import RpdJson
from deepprof.collectors.trace import Trace
from tests.collectors.damage import survives

GPU = {"name": "process_name", "ph": "M", "pid": "2", "args": {"name": "GPU2"}}


def span(name: str, ts: str, dur: str = "10", pid: str = "2", desc: str = "KernelExecution") -> dict[str, Any]:
    tid = "0" if pid == "2" else pid
    return {"pid": pid, "tid": tid, "name": name, "ts": ts, "dur": dur, "ph": "X", "args": {"desc": desc}}


def arrow(key: str, begin: str, end: str, tid: str = "0") -> list[dict[str, Any]]:
    start = {"pid": "7", "tid": "7", "cat": "api_op", "name": "api_op", "ts": begin, "id": key, "ph": "s"}
    return [
        start,
        {"pid": "2", "tid": tid, "cat": "api_op", "name": "api_op", "ts": end, "id": key, "ph": "f", "bp": "e"},
    ]


def read(path: Path, *events: object, wrapped: bool = False) -> Trace:
    listed = [{}, GPU, *events]
    path.write_text(json.dumps({"traceEvents": listed} if wrapped else listed))
    assert RpdJson().accepts(path.read_bytes(), path)
    return RpdJson().read(path)


@pytest.mark.traces
def test_the_real_file_is_the_same_job_as_its_database(traces):
    path = traces / "rpd-matmul-json" / "matmul_result.json"
    trace, database = importers.read(path), importers.read(traces / "rpd-matmul" / "matmul_result.rpd")
    assert (trace.format, database.format) == ("rpd-json", "rpd")
    ours, theirs = (
        t.device_events.with_columns(start_us=t.device_events["start_ns"] // 1000).select(
            "start_us", "activity", "copy_kind", "device", "stream"
        )
        for t in (trace, database)
    )
    assert ours.rows() == theirs.rows()
    assert [trace.name(i) for i in trace.device_events["name_id"]] == [
        database.name(i) for i in database.device_events["name_id"]
    ]
    # The arrows lead from the same calls to the same operations.
    calls = [dict(t.host_events.select("correlation", "start_ns").rows()) for t in (trace, database)]
    begins = [
        [begin[key] // 1000 for key in t.device_events["correlation"]]
        for begin, t in zip(calls, (trace, database), strict=True)
    ]
    assert begins[0] == begins[1]
    events = Counter(event.get("ph") for event in json.loads(path.read_text()))
    assert trace.accounting.read == sum(events.values()) == 706
    assert trace.accounting.dropped == {"counter": events["C"], "flow": 170, "metadata": events["M"] + events[None]}
    assert trace.accounting.kept == events["X"]


@pytest.mark.parametrize("wrapped", [False, True])
def test_times_are_microseconds_in_texts_or_numbers(tmp_path, wrapped):
    events = [
        span("k", "8306017670485"),
        span("k", "8306017670495.25", "1.5"),
        {**span("k", ""), "ts": 8306017670500, "dur": 2},
    ]
    trace = read(tmp_path / "a.json", *events, wrapped=wrapped)
    assert trace.device_events.select("start_ns", "end_ns").rows() == [
        (8306017670485000, 8306017670495000),
        (8306017670495250, 8306017670496750),
        (8306017670500000, 8306017670502000),
    ]
    assert trace.device_events["device"].to_list() == [2, 2, 2]


def test_arrows_join_calls_to_operations(tmp_path):
    calls = [span("hipLaunchKernel", "100", "5", "7", ""), span("hipMemcpy", "110", "5", "7", "")]
    work = [span("k", "200"), span("copy", "200", desc="CopyDeviceToHost"), span("k", "300")]
    events = [*calls, *work, *arrow("1", "102", "200"), *arrow("2", "112", "200"), *arrow("3", "999", "300")]
    trace = read(tmp_path / "a.json", *events)
    assert trace.device_events["correlation"].to_list() == [1, 2, None]
    assert trace.device_events["activity"].to_list() == ["kernel", "memcpy", "kernel"]
    assert trace.accounting.flagged["unlinked"] == 1


def test_events_of_the_wrong_kind_are_counted(tmp_path):
    odd = [1, "x", {"ph": 5}, {"ph": "X", "args": [1]}, {"ph": "?"}, {"ph": "C", "ts": 1}]
    trace = read(tmp_path / "a.json", *odd, span("k", "12"), span("k", "nonsense"), span("k", "1", pid="9"))
    assert trace.accounting.dropped == {"metadata": 2, "invalid": 4, "unsupported": 1, "counter": 1, "invalid-time": 1}
    assert (trace.device_events.height, trace.host_events.height) == (1, 1)


def test_nothing_but_metadata_is_a_trace_without_events(tmp_path):
    trace = read(tmp_path / "a.json")
    assert (trace.accounting.kept, trace.accounting.dropped) == (0, {"metadata": 2})
    assert "no kernels and no copies" in trace.notes[0]


@pytest.mark.parametrize("content", [b"", b"[", b"[{}]", b'{"traceEvents": []}', b"\xff\xfe", b"[" * 100_000])
def test_other_documents_are_one_line(tmp_path, content):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    assert not RpdJson().accepts(content, path)
    with pytest.raises(TraceError, match="is no JSON of rpd2tracing"):
        RpdJson().read(path)


def test_damaged_files_are_a_trace_or_one_line(tmp_path):
    path = tmp_path / "a.json"
    read(path, *(span("k", str(at)) for at in range(20)), *arrow("1", "102", "200"))
    assert survives(RpdJson(), path, path.read_bytes()) > 20
