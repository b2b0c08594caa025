"""rocprofv3's JSON: the real excerpt against a plain decoder, and documents made to be odd."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.amd.rocprof import Rocprof
from deepprof.collectors.trace import Trace
from tests.collectors.damage import read_within, survives

NAMES = [
    {"kind": "NONE", "operations": []},
    {"kind": "HIP_RUNTIME_API", "operations": ["hipMalloc", "hipLaunchKernel"]},
    {"kind": "MARKER_CORE_API", "operations": ["roctxMarkA"]},
    {
        "kind": "MEMORY_COPY",
        "operations": ["MEMORY_COPY_NONE", "MEMORY_COPY_HOST_TO_DEVICE", "MEMORY_COPY_DEVICE_TO_DEVICE"],
    },
    {"kind": "MEMORY_ALLOCATION", "operations": ["MEMORY_ALLOCATION_ALLOCATE", "MEMORY_ALLOCATION_FREE"]},
]


def record(kind: int, operation: int, start: int, end: int, correlation: int = 0, **more: Any) -> dict[str, Any]:
    head = {"size": 64, "kind": kind, "operation": operation, "thread_id": 8}
    return {
        **head,
        "correlation_id": {"internal": correlation, "external": 0},
        "start_timestamp": start,
        "end_timestamp": end,
        **more,
    }


def dispatch(
    start: int, kernel: int = 1, correlation: int = 0, agent: int = 74, queue: int = 1, **more: Any
) -> dict[str, Any]:
    info = {"agent_id": {"handle": agent}, "queue_id": {"handle": queue}, "kernel_id": kernel}
    return record(11, 2, start, start + 10, correlation, dispatch_info=info, **{"stream_id": {"handle": 3}, **more})


def process(pid: int = 7, host: str = "h", **lists: Any) -> dict[str, Any]:
    agents = [
        {"id": {"handle": 70}, "type": 1, "node_id": 0, "logical_node_type_id": 0, "name": "CPU"},
        {"id": {"handle": 75}, "type": 2, "node_id": 5, "logical_node_type_id": 1, "product_name": "B"},
        {
            "id": {"handle": 74},
            "type": 2,
            "node_id": 4,
            "logical_node_type_id": 0,
            "product_name": "A",
            "cu_count": 304,
        },
    ]
    symbols = [
        {"kernel_id": 1, "formatted_kernel_name": "gemm(int)", "kernel_name": "_Z4gemmi.kd"},
        {"kernel_id": 2, "kernel_name": "bare.kd"},
    ]
    strings = {"buffer_records": NAMES, "marker_api": [{"key": 40, "value": "iteration"}]}
    metadata = {"pid": pid, "node": {"machine_id": "m", "hostname": host}}
    counted = lists.pop("counter_collection", [])
    return {
        **{"metadata": metadata, "agents": agents, "kernel_symbols": symbols, "strings": strings},
        **{"buffer_records": lists, "callback_records": {"counter_collection": counted}},
    }


def read(path: Path, *processes: Any) -> Trace:
    path.write_text(json.dumps({"rocprofiler-sdk-tool": list(processes)}))
    assert Rocprof().accepts(path.read_bytes()[:65536], path)
    return Rocprof().read(path)


def names(trace: Trace, table: str = "device_events") -> list[str]:
    return [trace.name(i) for i in getattr(trace, table)["name_id"]]


@pytest.mark.traces
def test_the_real_excerpt_holds_what_a_plain_decoder_counts(traces):
    path = traces / "rocprofv3-json-excerpt" / "excerpt_results.json.gz"
    trace = Rocprof().read(path)
    with gzip.open(path) as file:
        document = json.load(file)["rocprofiler-sdk-tool"][0]
    records = document["buffer_records"]["kernel_dispatch"]
    symbols = {symbol["kernel_id"]: symbol["formatted_kernel_name"] for symbol in document["kernel_symbols"]}
    rows = sorted(
        (
            r["start_timestamp"],
            r["end_timestamp"],
            r["correlation_id"]["internal"],
            symbols[r["dispatch_info"]["kernel_id"]],
            r["stream_id"]["handle"],
        )
        for r in records
    )
    columns = trace.device_events.select("start_ns", "end_ns", "correlation")
    found = zip(columns.rows(), names(trace), trace.device_events["stream"], strict=True)
    assert [(*times, name, stream) for times, name, stream in found] == rows
    assert (trace.accounting.read, trace.accounting.kept, trace.format) == (600, 600, "rocprof")
    assert trace.device_events["stream"].n_unique() == len(Counter(row[4] for row in rows)) == 6
    assert trace.device_events["device"].unique().to_list() == [0]


def test_all_kinds_of_records_have_their_place(tmp_path):
    calls = [record(1, 1, 1, 5, 11), record(1, 9, 6, 7, 12)]
    copies = [
        record(
            3, 1, 2, 3, 13, dst_agent_id={"handle": 75}, src_agent_id={"handle": 70}, bytes=64, stream_id={"handle": 3}
        ),
        record(
            3, 2, 4, 5, 14, dst_agent_id={"handle": 75}, src_agent_id={"handle": 74}, bytes=8, stream_id={"handle": 3}
        ),
    ]
    memory = [
        record(4, 0, 1, 2, agent_id={"handle": 74}, address={"handle": 4096}, allocation_size=100),
        record(4, 1, 8, 9, agent_id={"handle": 0}, address="0x1000", allocation_size=0),
    ]
    one = process(
        kernel_dispatch=[dispatch(30, correlation=11), dispatch(10, 2), dispatch(50, 99)],
        hip_api=calls,
        marker_api=[record(2, 0, 1, 90, 40), record(2, 0, 20, 20, 41)],
        memory_copy=copies,
        memory_allocation=memory,
        rccl_api=[record(9, 9, 3, 4)],
        pc_sample_host_trap=[{"record": {}}, {"record": {}}],
        something_new=[{}],
        counter_collection=[{}],
    )
    trace = read(tmp_path / "a.json", one)
    assert names(trace) == ["Memcpy HtoD", "Memcpy PtoP", "bare", "gemm(int)", "unknown kernel 99"]
    assert trace.device_events["device"].to_list() == [1, 1, 0, 0, 0]
    assert trace.device_events["nbytes"].to_list() == [64, 8, None, None, None]
    assert trace.devices.select("device", "name", "multiprocessors").rows() == [(0, "A", 304), (1, "B", None)]
    assert names(trace, "host_events") == ["hipLaunchKernel", "unknown", "unknown"]
    assert trace.host_events.select("category", "process", "thread").rows()[0] == ("runtime", 7, 8)
    assert names(trace, "annotations") == ["iteration", "roctxMarkA"]
    assert trace.memory_events.select("time_ns", "nbytes", "address").rows() == [(2, 100, 4096), (9, -100, 4096)]
    assert trace.accounting.dropped == {"sample": 2, "unsupported": 1, "counter": 1}
    assert trace.accounting.read == 3 + 2 + 2 + 2 + 2 + 1 + 2 + 1 + 1
    assert trace.accounting.flagged["unnamed"] == 3


def test_processes_of_one_node_share_its_devices_and_keep_their_correlations_apart(tmp_path):
    parts = [
        process(pid, kernel_dispatch=[dispatch(at, correlation=5, agent=agent)], hip_api=[record(1, 1, at, at + 1, 5)])
        for pid, at, agent in ((7, 10, 74), (8, 20, 75))
    ]
    other = process(9, "elsewhere", kernel_dispatch=[dispatch(30, correlation=5)])
    trace = read(tmp_path / "a.json", *parts)
    assert trace.device_events["device"].to_list() == [0, 1]
    assert trace.device_events["correlation"].to_list() == trace.host_events["correlation"].to_list() == [5, 5 + 2**40]
    assert trace.host_events["process"].to_list() == [7, 8]
    assert read(tmp_path / "b.json", *parts, other).device_events["device"].n_unique() == 3


def test_kernels_are_taken_from_counters_where_they_are_nowhere_else(tmp_path):
    counted = [{"dispatch_data": dispatch(at), "stream_id": {"handle": 4}, "records": []} for at in (10, 20)]
    trace = read(tmp_path / "a.json", process(counter_collection=counted, kernel_dispatch=[]))
    assert names(trace) == ["gemm(int)", "gemm(int)"]
    assert trace.device_events["stream"].to_list() == [4, 4]
    copy = record(3, 1, 2, 3, dst_agent_id={"handle": 74}, src_agent_id={"handle": 70})
    trace = read(tmp_path / "b.json", process(counter_collection=counted, memory_copy=[copy]))
    assert (trace.device_events.height, trace.accounting.dropped) == (3, {})


def test_a_record_that_is_none_costs_itself_alone(tmp_path):
    odd = [1, None, {"start_timestamp": "x"}, {}, dispatch(5) | {"stream_id": 9}]
    trace = read(tmp_path / "a.json", process(kernel_dispatch=[dispatch(1), *odd], hip_api="no list", agents=3))
    assert trace.accounting.dropped == {"invalid": 3, "invalid-time": 1}
    assert (trace.accounting.read, trace.device_events.height) == (6, 2)


def test_bad_text_spoils_a_name_and_nothing_more(tmp_path):
    path = tmp_path / "a.json"
    read(path, process(kernel_dispatch=[dispatch(1)]))
    path.write_bytes(path.read_bytes().replace(b"gemm(int)", b"ge\xff\xfem()"))
    assert names(Rocprof().read(path)) == ["ge\ufffd\ufffdm()"]


@pytest.mark.parametrize("value", [2**80, -(2**80), 2**64 - 1, 2**63, -1])
def test_numbers_of_any_size_are_a_trace(tmp_path, value):
    wrapped = {"handle": value}
    odd = [dispatch(1, value, value, value, value), dispatch(5) | {"start_timestamp": value, "thread_id": value}]
    copy = record(3, value, 1, 2, value, dst_agent_id=wrapped, src_agent_id=wrapped, bytes=value, stream_id=wrapped)
    memory = [record(4, 0, at, at, address=value, allocation_size=value) for at in (1, value)]
    one = process(
        value, kernel_dispatch=odd, hip_api=[record(1, 1, 1, 2, value)], memory_copy=[copy], memory_allocation=memory
    )
    for listed in one["agents"]:
        listed |= {"cu_count": value, "logical_node_type_id": value, "mem_banks": [{"size_in_bytes": value}] * 2}
    trace = read(tmp_path / "a.json", one)
    assert trace.accounting.read == 6
    assert trace.host_events.height == 1


@pytest.mark.parametrize("processes", [[], [{}], [process()]])
def test_nothing_recorded_is_a_trace_without_events(tmp_path, processes):
    trace = read(tmp_path / "a.json", *processes)
    assert trace.accounting.read == 0
    assert "no kernels and no copies" in trace.notes[0]


@pytest.mark.parametrize(
    "text",
    [
        '{"rocprofiler-sdk-tool": 3}',
        '{"rocprofiler-sdk-tool": [',
        '{"rocprofiler-sdk-tool": [{"agents": ' + "[" * 99999,
    ],
)
def test_documents_that_are_not_whole_are_one_line(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(TraceError, match="truncated or damaged JSON"):
        Rocprof().read(path)


def test_a_perfetto_trace_is_refused_by_name(tmp_path):
    path = tmp_path / "a.pftrace"
    path.write_bytes(b"\x0a\x05hello")
    assert Rocprof().accepts(path.read_bytes(), path)
    with pytest.raises(TraceError, match="is a Perfetto trace"):
        Rocprof().read(path)


def test_a_file_made_to_grow_is_refused_in_bounded_memory(tmp_path):
    path = tmp_path / "a.json.gz"
    with gzip.open(path, "wb") as file:
        file.write(b'{"rocprofiler-sdk-tool": [')
        for _ in range(40):
            file.write(b" " * 2**24)
    assert "decompresses to more than" in str(read_within(path, 500 * 2**20)["error"])


def test_damaged_files_are_a_trace_or_one_line(tmp_path):
    path = tmp_path / "a.json"
    read(path, process(kernel_dispatch=[dispatch(at) for at in range(20)], hip_api=[record(1, 1, 1, 5, 11)]))
    assert survives(Rocprof(), path, path.read_bytes()) > 20
