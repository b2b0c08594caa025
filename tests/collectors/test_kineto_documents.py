"""The Kineto importer on whole documents made by hand: header, accounting, odd events, and what is accepted."""

import gzip
import json

import polars as pl
import pytest

from deepprof.collectors.importers import kineto
from deepprof.collectors.importers.kineto import Kineto
from deepprof.collectors.importers.kineto.host import HostTables
from deepprof.collectors.trace import Trace
from tests.collectors.documents import event, kernel, rows


def test_the_header(read):
    devices = [
        {"id": 1, "name": "B", "totalGlobalMem": 2**36, "numSms": 132},
        {"id": 0, "name": "A"},
        {"id": -1},
        "odd",
    ]
    trace = read([kernel()], deviceProperties=devices, distributedInfo={"rank": 3, "world_size": "16"})
    assert (trace.rank, trace.world_size, trace.format) == (3, 16, "kineto")
    assert rows(trace.devices, "device", "name", "memory_nbytes", "multiprocessors") == [
        (0, "A", None, None),
        (1, "B", 2**36, 132),
    ]
    assert json.loads(trace.devices["properties"][1]) == devices[0]


@pytest.mark.parametrize("odd", [None, 5, "text", [], [[]], {"rank": [], "id": {}}, [{"id": 2**70, "numSms": -1}]])
def test_an_odd_header_does_not_fail_a_trace(read, odd):
    trace = read([kernel()], deviceProperties=odd, distributedInfo=odd)
    assert (trace.rank, trace.devices.height, trace.device_events.height) == (None, 0, 1)


def test_every_record_is_accounted_for(read):
    kinds = {
        "metadata": [{"ph": "M", "name": "process_name", "args": {"name": "python"}}],
        "flow": [{"ph": phase, "cat": "ac2g", "id": 1, "ts": 1} for phase in "stf"],
        "profiler": [
            event("Trace", "PyTorch Profiler (0)", 1, 1, "Spans", "PyTorch Profiler"),
            {"ph": "i", "name": "Iteration Start: PyTorch Profiler", "ts": 1},
            {"ph": "i", "name": "Record Window End", "ts": 1},
        ],
        "counter": [{"ph": "C", "name": "GPU 0", "ts": 1}],
        "other-device": [event("mtia_ccp_events", "wait", 1, 1)],
        "unknown": [
            event("brand_new", "x", 1, 1),
            {"ph": "i", "name": "mine", "ts": 1},
            {"ph": "B"},
            {},
            {"name": "n"},
        ],
        "undecodable": [
            5,
            None,
            [],
            "text",
            {"ph": "X", "cat": "kernel", "name": 5},
            {"ph": 1},
            {"ph": "X", "cat": None},
        ],
        "invalid-time": [kernel(dur=-1), event("Operator", "ProfilerStep#1", None, 1), event("cpu_op", "x", "?", 1)],
        "invalid-place": [event("kernel", "k", 1, 1, -1)],
        "invalid-bytes": [{"ph": "i", "name": "[memory]", "ts": 1, "args": {"Bytes": 2**62}}],
    }
    trace = read([kernel(), *(record for records in kinds.values() for record in records)])
    assert trace.accounting.dropped == {reason: len(records) for reason, records in kinds.items()}
    assert (trace.accounting.read, trace.accounting.kept) == (27, 1)


def test_a_bad_event_spoils_only_itself(tmp_path):
    good = json.dumps(kernel()).encode()
    bad = [b'{"ph":"X","cat":"kernel","name":"\xff"}', b'{"ph":"X","cat":"kernel","ts":1e999,"dur":1}']
    path = tmp_path / "trace.json"
    path.write_bytes(b'{"traceEvents":[' + b",".join([good, *bad, good]) + b"]}")
    trace = Kineto().read(path)
    assert trace.device_events.height == 2
    assert trace.accounting.dropped == {"undecodable": 2}


def test_half_a_surrogate_pair_is_replaced_and_a_whole_one_kept(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [kernel("half \ud83d", ts=1), kernel("whole \U0001f600", ts=2)]}))
    assert Kineto().read(path).names.to_list() == ["half \ufffd", "whole \U0001f600"]


def test_a_lost_record_is_found(read, monkeypatch):
    monkeypatch.setattr(kineto, "host_tables", lambda source: HostTables())
    with pytest.raises(ValueError, match="records lost: read 2 != kept 1"):
        read([kernel(), event("cpu_op", "x", 1, 1)])


def test_a_bare_list_and_a_byte_order_mark_and_gzip(tmp_path):
    path = tmp_path / "trace.json.gz"
    for start in (b"", b"\xef\xbb\xbf", b" \n"):
        path.write_bytes(gzip.compress(start + json.dumps([kernel()]).encode()))
        assert Kineto().read(path).device_events.height == 1
        path.write_bytes(start + json.dumps({"traceEvents": [kernel()]}).encode())
        assert Kineto().read(path).device_events.height == 1


def test_versions_stand_in_the_record_of_each_device(read):
    devices = [{"id": 1}, {"id": 0, "cuda_driver_version": 12090}]
    header = {"cuda_runtime_version": 12040, "cuda_driver_version": 13000, "distributedInfo": {"nccl_version": "2.27"}}
    trace = read([kernel()], deviceProperties=devices, **header)
    told = {"cuda_runtime_version": 12040, "nccl_version": "2.27"}
    assert [json.loads(text) for text in trace.devices["properties"]] == [
        {"id": 0, "cuda_driver_version": 12090} | told,
        {"id": 1, "cuda_driver_version": 13000} | told,
    ]
    for odd in ("x" * 10**6, ["12"], {}, None, 1.5):
        trace = read(
            [kernel()], deviceProperties=[{"id": 0}], hip_driver_version=odd, distributedInfo={"nccl_version": odd}
        )
        assert json.loads(trace.devices["properties"][0]) == {"id": 0}


def test_notes_say_what_is_missing(read):
    assert read([event("cpu_op", "x", 1, 1)]).notes == ("holds no kernel: recorded on the CPU only",)
    calls = [event("cuda_runtime", name, at, 1) for at, name in enumerate(("cudaLaunchKernel", "cudaMemcpyAsync"))]
    (lost,) = read(calls).notes
    assert lost.startswith("holds no kernel: 2 calls put work on a device whose records are missing; record with Prof")
    (unused,) = read([event("cuda_runtime", "cudaGetDeviceCount", 1, 1)]).notes
    assert unused == "holds no kernel: the program put no work on a device"
    others = [("urEnqueueKernelLaunch", "1 call put work"), ("zeInit", "1 runtime call, and nothing of what they may")]
    for name, said in others:
        (note,) = read([event("xpu_runtime", name, 1, 1)]).notes
        assert note.startswith(f"holds no kernel: {said}")
    other = read([event("mtia_ccp_events", "x", 1, 1)], deviceProperties=[{"id": 17, "name": "ARTEMIS"}])
    expected = "holds no kernel: the events are of another accelerator (ARTEMIS: 1 mtia_ccp_events), which"
    assert other.notes[0].startswith(expected)
    for name in ("nccl:all_to_all", "aten::record_stream", "Optimizer.step#FusedAdam.step"):
        (job,) = read([event("cpu_op", "aten::mm", 1, 1), event("user_annotation", name, 3, 1)]).notes
        assert job.startswith(f"holds no kernel: the operators are of a GPU job ({name})")
        assert job.endswith("record with ProfilerActivity.CUDA")
    (listed,) = read([event("cpu_op", "x", 1, 1)], deviceProperties=[{"id": 0, "name": "A100"}]).notes
    assert listed.startswith("holds no kernel: a GPU is listed (A100), but the work of the device was not recorded")
    assert read([kernel()], schemaVersion=2).notes == ("has schemaVersion 2, known is 1",)
    impossible = read([kernel(dur=-1), kernel(ts=None), event("cpu_op", "x", 1, 1)])
    assert impossible.notes == ("holds no kernel: all 2 device events have impossible times or places",)


@pytest.mark.parametrize("odd", [-1, 2**31, 2**64, 10**30, 0.5])
def test_a_rank_that_is_none_is_none(read, odd):
    trace = read([kernel()], distributedInfo={"rank": odd, "world_size": odd})
    assert (trace.rank, trace.world_size) == (None, None)


def test_impossible_sizes_are_flagged_and_their_sum_does_not_wrap(read):
    sizes = [-1, 2**44 + 1, 2**62, 2**63, 2**64 - 1, 4096, 2**44]
    copies = [event("gpu_memcpy", "Memcpy HtoD", ts, 1, bytes=size) for ts, size in enumerate(sizes)]
    trace = read(copies)
    assert trace.device_events["nbytes"].to_list() == [None] * 5 + [4096, 2**44]
    assert trace.accounting.flagged["invalid-bytes"] == 5


@pytest.mark.parametrize("space", [b" " * 100, b"\n" * 60_000])
def test_a_bare_list_after_much_space(tmp_path, space):
    path = tmp_path / "trace.json"
    path.write_bytes(space + json.dumps([kernel()]).encode())
    assert Kineto().accepts(path.read_bytes()[: 64 * 1024], path)
    assert Kineto().read(path).device_events.height == 1


def test_no_event_at_all(read):
    trace = read([])
    assert isinstance(trace, Trace)
    assert (trace.accounting.read, trace.notes) == (0, ("holds no kernel: recorded on the CPU only",))
    assert all(table.is_empty() for table in (trace.device_events, trace.host_events, trace.annotations))


@pytest.mark.parametrize(
    ("head", "accepted"),
    [
        (b'{"schemaVersion": 1, "traceEvents": [', True),
        (b'{\n  "distributedInfo": {"rank": 1},', True),
        (b'\xef\xbb\xbf{"traceEvents":[{"ph":"X","cat":"cpu_op"', True),
        (b'[{"ph": "X", "cat": "Kernel"', True),
        (b'{"schemaVersion": 2, "mediaType": "docker"}', False),
        (b'{"traceEvents": [{"ph": "X", "name": "no category"', False),
        (b'[{}\n,{"name": "process_name", "ph": "M", "pid":"2"', False),
        (b'"schemaVersion traceEvents"', False),
        (b"", False),
    ],
)
def test_what_is_accepted(tmp_path, head, accepted):
    assert Kineto().accepts(head, tmp_path) is accepted


def test_tables_are_sorted(read):
    order = [5, 1, 3]
    events = [event(cat, "x", ts, 1) for ts in order for cat in ("kernel", "cpu_op", "user_annotation")]
    trace = read(events)
    for table in (trace.device_events, trace.host_events, trace.annotations):
        assert table["start_ns"].to_list() == [1000, 3000, 5000]
    assert trace.device_events.schema["activity"] == pl.Enum(["kernel", "memcpy", "memset", "graph", "sync"])


def test_names_are_numbered_the_same_in_every_process(read):
    cats = ["kernel", "cpu_op", "cuda_runtime", "python_function", "user_annotation", "gpu_memcpy", "overhead"]
    assert read([event(cat, cat, 1, 1) for cat in cats]).names.to_list() == cats  # a set's order is another each time
