"""XPlane profiles made by hand: what each line, event and value becomes."""

from __future__ import annotations

import gzip
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import deepprof
from deepprof.collectors import importers
from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.directories import list_traces
from deepprof.collectors.importers.xla import xplane_schema
from deepprof.collectors.importers.xla.xplane import XPlane
from deepprof.metrics.evidence import trust_in
from tests.collectors.damage import read_within, survives
from tests.collectors.xplane_profile import GPU, HOST, Event, data, event, named, number, plane, read, space, stat
from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]


def test_streams_hold_kernels_copies_and_memsets(tmp_path):
    copy = "kind_src:pinned kind_dst:device size:4096 dest:0 async:1"
    events = [
        event("gemm", 10, 5, correlation_id=7, context_id="$$1", kernel_details="regs:32"),
        event("MemcpyH2D", 20, 2, correlation_id=8, memcpy_details=copy),
        event("Memset", 30, 1, memset_details="kind:device num_bytes:64 async:1"),
        event("graph 3", 40, 9, cuda_graph_exec_id=3),
        event("node", 60, 1, cuda_graph_node_id=12),
        event("memcpy32_post", 70, 1),
    ]
    trace = read(tmp_path, plane(GPU, {"Stream #13(Compute,MemcpyH2D,Memset)": events}))
    columns = ("name", "activity", "start_ns", "end_ns", "stream", "correlation", "context", "nbytes", "copy_kind")
    assert named(trace, "device_events", *columns) == [
        ("gemm", "kernel", 10, 15, 13, 7, 1, None, None),
        ("MemcpyH2D", "memcpy", 20, 22, 13, 8, None, 4096, "HtoD"),
        ("Memset", "memset", 30, 31, 13, None, None, 64, None),
        ("graph 3", "graph", 40, 49, 13, None, None, None, None),
        ("node", "kernel", 60, 61, 13, None, None, None, None),
        ("memcpy32_post", "kernel", 70, 71, 13, None, None, None, None),
    ]
    assert trace.device_events["graph_node"].to_list()[-2:] == [12, None]


def test_amd_names_lose_their_suffix_and_copies_take_the_direction_of_their_call(tmp_path):
    names = ["Cijk.kd", "__amd_rocclr_copyBuffer.kd", "__amd_rocclr_fillBufferAligned.kd", "__amd_rocclr_copyBuffer.kd"]
    events = [event(name, at, correlation_id=at) for at, name in enumerate(names, start=1)]
    details = "kind:Unknown size:0 dest:512 async:1"
    call = event("hipMemcpyHtoDAsync", 0, correlation_id=2, memcpy_details=details)
    trace = read(tmp_path, plane(GPU, {"Stream #2": events}), plane(HOST, {"Host Threads/9": [call]}))
    assert named(trace, "device_events", "name", "activity", "copy_kind", "nbytes") == [
        ("Cijk", "kernel", None, None),
        ("__amd_rocclr_copyBuffer", "memcpy", "HtoD", None),
        ("__amd_rocclr_fillBufferAligned", "memset", None, None),
        ("__amd_rocclr_copyBuffer", "memcpy", None, None),
    ]
    assert trace.notes == ("no copy has a size: this profiler records none",)


@pytest.mark.parametrize(
    ("name", "details", "kind"),
    [
        ("MemcpyD2H", "", "DtoH"),
        ("MemcpyD2D", "", "DtoD"),
        ("MemcpyP2P", "", "PtoP"),
        ("MemcpyOther", "kind_src:device kind_dst:pageable size:1", "DtoH"),
        ("MemcpyOther", "kind_src:host kind_dst:host size:1", "HtoH"),
        ("Memcpy HtoD", "", "HtoD"),
        ("MemcpyOther", "kind:Unknown", None),
    ],
)
def test_directions_of_copies(tmp_path, name, details, kind):
    trace = read(tmp_path, plane(GPU, {"Stream #1": [event(name, memcpy_details=details)]}))
    assert named(trace, "device_events", "activity", "copy_kind") == [("memcpy", kind)]


def test_lines_drawn_from_the_streams_are_no_kernels(tmp_path):
    lines = {
        "Stream #1(Compute)": [event("k", 5)],
        "Steps": [event("3", 0, 9, step_name="train 3"), event("4", 9, 9)],
        "XLA Modules": [event("jit_train(17)", 1, 8)],
    }
    derived = ("TensorFlow Ops", "Framework Ops", "TensorFlow Name Scope", "XLA Ops", "Source code", "CUPTI overhead")
    trace = read(tmp_path, plane(GPU, lines | {label: [event("x")] for label in derived}))
    assert trace.accounting.dropped == {"derived": len(derived)}
    assert named(trace, "device_events", "name") == [("k",)]
    assert named(trace, "annotations", "name", "side", "device", "framework") == [
        ("train 3", "device", 0, True),
        ("jit_train(17)", "device", 0, True),
        ("step#4", "device", 0, True),
    ]


def test_what_the_host_did(tmp_path):
    host = {
        "python": [
            event("train", 0, 90, step_num=4, _r=1),
            event("$train.py:12 loop", 1),
            event("PjitFunction(f)", 2),
            event("MatMul:MatMul", 3),
            event("Iterator::Prefetch", 4),
        ],
        "Host Threads/7": [event("cuLaunchKernel", 5, correlation_id=7), event("cuStreamSynchronize", 6)],
        "Host Threads/7/NVTX": [event("NVTX:forward", 7), event("NVTX:TSL:Thunk", 8)],
    }
    trace = read(
        tmp_path,
        plane(HOST, host, {"process_id": 41}),
        plane("/host:CUPTI", {"x": [event("anything", 9)]}),
        plane("/host:metadata"),
        plane("/host:__ScopeRangeCallStack__", {"": [event("no event")]}),
        plane("#Chip 0", {"": [event("counter")]}),
    )
    assert named(trace, "host_events", "name", "category", "thread", "process", "correlation") == [
        ("$train.py:12 loop", "python", 1, 41, None),
        ("PjitFunction(f)", "op", 1, 41, None),
        ("MatMul:MatMul", "op", 1, 41, None),
        ("Iterator::Prefetch", "dataloader", 1, 41, None),
        ("cuLaunchKernel", "runtime", 2, 41, 7),
        ("cuStreamSynchronize", "runtime", 2, 41, None),
        ("anything", "runtime", 1, None, None),
    ]
    assert named(trace, "annotations", "name", "side", "framework") == [
        ("step[train]#4", "host", False),
        ("forward", "host", False),
        ("TSL:Thunk", "host", True),
    ]
    assert trace.accounting.dropped == {"other-plane": 2}


def test_a_step_marker_is_the_user_s_own(tmp_path):
    """The evidence of a marked step must reach the miner as such, and a module run must not."""
    assert trust_in("step[train]", framework=False) == "step"
    assert trust_in("jit_train(#)", framework=True) == "framework"
    steps = [event("train", 100 * at, 90, step_num=at) for at in range(8)]
    kernels = [event(f"k{at % 5}", 100 * (at // 5) + 10 + 8 * (at % 5), 6, correlation_id=at + 1) for at in range(40)]
    calls = [event("cuLaunchKernel", 100 * (at // 5) + 2 * (at % 5) + 1, 1, correlation_id=at + 1) for at in range(40)]
    trace = read(tmp_path, plane(GPU, {"Stream #1": kernels}), plane(HOST, {"a": steps, "Host Threads/1": calls}))
    (loop,) = deepprof.analyze(trace).loops
    assert (loop.period, loop.boundary_source) == (5, "annotation")


def test_memory_events(tmp_path):
    about = {"bytes_allocated": 300, "bytes_reserved": 5, "addr": 2**40}
    events = [
        event("MemoryAllocation", 1, 0, allocator_name="GPU_1_bfc", allocation_bytes=256, **about),
        event("MemoryDeallocation", 2, 0, allocator_name="xla_gpu_host_bfc", allocation_bytes=256, **about),
        event("MemoryDeallocation", 3, 0, allocator_name="other", allocation_bytes=2**60, **about),
    ]
    trace = read(tmp_path, plane(HOST, {"t": events}))
    assert trace.memory_events.select("time_ns", "device", "address", "nbytes", "allocated_nbytes").rows() == [
        (1, 1, 2**40, 256, 300),
        (2, -1, 2**40, -256, 300),
    ]
    assert trace.accounting.dropped == {"invalid-bytes": 1}


def test_notes_of_the_allocator_on_a_stream_are_no_work(tmp_path):
    events = [event("k"), event("MemoryResidency", MemoryResidency_details="kind:device num_bytes:9 addr:0x0")]
    trace = read(tmp_path, plane(GPU, {"Stream #1": events}))
    assert (trace.device_events.height, trace.accounting.dropped) == (1, {"allocator": 1})


def test_a_tpu_is_no_gpu(tmp_path):
    lines = {"XLA Ops": [event("fusion.1", 3)], "Steps": [event("1", 0, 9)], "Async XLA Ops": [event("copy")]}
    core = plane("/device:TPU:0 SparseCore 1", {"Sparse Core Ops": [event("x")]})
    custom = plane("/device:CUSTOM:MOSAIC:3", {"Stream #1": [event("x")]})
    trace = read(tmp_path, plane("/device:TPU:2", lines, display=True), core, custom)
    assert named(trace, "device_events", "name", "device", "stream", "activity") == [("fusion.1", 2, 0, "kernel")]
    assert trace.accounting.dropped == {"derived": 1, "other-device": 2}
    assert trace.notes == ("is of a TPU, which is no GPU: its XLA operations are taken for kernels",)


def test_devices_keep_their_numbers(tmp_path):
    planes = [plane(f"/device:GPU:{at}", {"Stream #7": [event("k", at)]}, {"core_count": 132}) for at in (3, 0)]
    about = {"gpu_device_name": "H100", "memory_size": 2**36, "core_count": 132}
    trace = read(tmp_path, *planes, plane("/device:GPU:9", stats=about), plane("/device:CUSTOM:0", {"Stream #1": []}))
    assert named(trace, "device_events", "device", "stream") == [(0, 7), (3, 7)]
    assert trace.devices.select("device", "name", "memory_nbytes", "multiprocessors").rows() == [
        (0, "", None, 132),
        (3, "", None, 132),
        (9, "H100", 2**36, 132),
    ]


def test_the_clock(tmp_path):
    began = 1_700_000_000_000_000_000
    task = plane("Task Environment", stats={"profile_start_time": began, "profile_stop_time": began + 5})
    relative = read(tmp_path, plane(GPU, {"Stream #1": [event("k", 5)]}, base_ns=100), task)
    assert (relative.clock, relative.epoch_ns, relative.device_events["start_ns"][0]) == ("session", began, 105)
    unknown = read(tmp_path, plane(GPU, {"Stream #1": [event("k", 5)]}))
    assert (unknown.clock, unknown.epoch_ns) == ("session", None)
    absolute = read(tmp_path, plane(GPU, {"Stream #1": [event("k", 5)]}, base_ns=began), task)
    assert (absolute.clock, absolute.epoch_ns, absolute.device_events["start_ns"][0]) == ("unix", None, began + 5)


@given(st.integers(-(10**15), 10**15), st.integers(0, 10**15))
def test_picoseconds_are_rounded_down_at_both_ends(tmp_path_factory, start, duration):
    content = plane(GPU, {"Stream #1": [Event("k", start, duration)]}, base_ns=2**60)
    trace = read(tmp_path_factory.mktemp("one"), content)
    assert trace.device_events.select("start_ns", "end_ns").rows() == [
        (2**60 + start // 1000, 2**60 + (start + duration) // 1000)
    ]


def test_senseless_times_are_counted(tmp_path):
    senseless = [Event("k", 2**63 - 1, 5), Event("k", 5, 2**63 - 1), Event("k", 5, -1), Event("many", count=3)]
    trace = read(tmp_path, plane(GPU, {"Stream #1": [event("k"), *senseless]}))
    assert (trace.accounting.read, trace.accounting.kept, trace.accounting.dropped) == (5, 1, {"invalid-time": 4})


def test_what_the_profile_says_is_quoted(tmp_path):
    one = plane(GPU, {"Stream #1": [event("k")]}, {"dropped_traces": "9 events dropped"})
    trace = read(tmp_path, one, hostnames=["node-1"], errors=["No GPU"], warnings=["slow"])
    assert trace.notes == (
        "recorded on node-1",
        "the profiler says: No GPU",
        "the profiler says: slow",
        "the profiler says: 9 events dropped",
    )


def test_texts_may_be_in_place_or_by_reference_and_are_any_bytes(tmp_path):
    copy = event("c", memcpy_details="size:77 kind_src:device kind_dst:device")
    for refer in (True, False):
        trace = read(tmp_path, plane(GPU, {"Stream #1": [copy]}, refer=refer))
        assert named(trace, "device_events", "nbytes", "copy_kind") == [(77, "DtoD")]
    content = plane(GPU, {"Stream #1": [event("QQQ")]}).replace(b"QQQ", b"\xffQ\xfe")
    assert named(read(tmp_path, content), "device_events", "name") == [("\ufffdQ\ufffd",)]


def test_an_event_without_a_name_is_kept(tmp_path):
    line = data(3, data(2, "Stream #1") + data(4, number(1, 99) + number(2, 1)))
    trace = read(tmp_path, data(2, GPU) + line)
    assert named(trace, "device_events", "name", "start_ns", "end_ns") == [("unknown", 0, 0)]


def test_long_lines_are_decoded_run_by_run(tmp_path):
    count = 60_000
    events = [event(f"k{at % 7}", at, 1, correlation_id=at + 1) for at in range(count)]
    trace = read(tmp_path, plane(GPU, {"Stream #1": events}))
    assert (tmp_path / "host.xplane.pb").stat().st_size > 1024**2
    assert trace.accounting.read == count
    assert trace.device_events["start_ns"].to_list() == list(range(count))
    assert trace.device_events["correlation"].to_list() == list(range(1, count + 1))


def test_profiles_with_little_in_them(tmp_path):
    for content, said in (
        (plane(HOST), "recorded on the CPU only"),
        (
            plane(HOST, {"Host Threads/1": [event("cuLaunchKernel", correlation_id=7), event("cuInit")]}),
            "1 call put work on a device whose records are missing; record again with the right to read the GPU's "
            "activities (CUPTI), and with no other profiler at the same time",
        ),
        (plane(GPU), "its devices did nothing"),
        (plane(GPU, {"XLA Modules": [event("m")]}), "no device line is a stream"),
        (plane("/device:NPU:0", {"x": [event("m")]}), "its devices are none that DeepProf reads (/device:NPU:0)"),
    ):
        trace = read(tmp_path, content)
        assert trace.device_events.is_empty()
        assert trace.notes == (f"holds no kernel: {said}",)
        assert str(deepprof.analyze(trace).no_loop_reason).startswith("the trace holds no GPU kernel; ")
    for content in (b"", space(hostnames=["h"])):
        path = tmp_path / "empty.xplane.pb"
        path.write_bytes(content)
        with pytest.raises(TraceError, match="has no plane"):
            XPlane().read(path)


def test_content_decides(tmp_path):
    content = space(plane(GPU, {"Stream #1": [event("k")]}))
    for name, packed in (("a.xplane.pb", False), ("b.pb", False), ("c.xplane.pb.gz", True), ("d", True)):
        (tmp_path / name).write_bytes(gzip.compress(content) if packed else content)
        assert importers.read(tmp_path / name).format == "xplane"
    for head in (b"", b"{}", b"\x0a\x05hello", b"\nplain text", gzip.compress(content)):
        assert not XPlane().accepts(head, Path("x.pb"))
    assert XPlane().accepts(b"\x0a\x03\x08\x01\x10", Path("x.xplane.pb"))


def test_the_viewer_s_copy_is_not_a_second_trace(tmp_path):
    folder = tmp_path / "plugins" / "profile" / "2026_01_01"
    folder.mkdir(parents=True)
    copy = b'{"traceEvents":[{"ph":"M","pid":1,"name":"process_name","args":{"name":"/host:CPU"}},{}]}'
    for host in ("a.b", "c"):
        (folder / f"{host}.xplane.pb").write_bytes(space(plane(GPU)))
        (folder / f"{host}.trace.json.gz").write_bytes(gzip.compress(copy))
    (folder / "d.trace.json").write_bytes(copy)
    found = list_traces(tmp_path).traces
    assert [path.name for path in found] == ["a.b.xplane.pb", "c.xplane.pb", "d.trace.json"]


def test_a_missing_protobuf_is_said_with_the_line_to_type(tmp_path, monkeypatch):
    def refuse(name):
        raise ModuleNotFoundError(name)

    path = tmp_path / "a.xplane.pb"
    path.write_bytes(space(plane(GPU)))
    xplane_schema.build_schema.cache_clear()
    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(TraceError, match=re.escape("`pip install 'deepprof[xplane]'`")):
        XPlane().read(path)


def test_the_compiled_schema_is_that_of_the_source(tmp_path):
    out = tmp_path / "xplane.binpb"
    command = [sys.executable, "-W", "ignore", "-m", "grpc_tools.protoc", "-Iproto", f"--descriptor_set_out={out}"]
    subprocess.run([*command, "proto/xplane.proto"], cwd=ROOT, check=True, timeout=PATIENCE_S)
    types = importlib.import_module("google.protobuf.descriptor_pb2").FileDescriptorSet
    compiled = types.FromString(xplane_schema.SCHEMA.read_bytes())
    assert compiled == types.FromString(out.read_bytes()), "run `make proto`"


def whole():
    """Return a profile with something of everything."""
    copy = "kind_src:pinned kind_dst:device size:4096 dest:0 async:1"
    device = [event(f"k{at % 3}", at * 9, 5, correlation_id=at, context_id="$$1") for at in range(30)]
    device.append(event("MemcpyH2D", 400, 2, correlation_id=99, memcpy_details=copy))
    host = [event("cuLaunchKernel", at * 9, 1, correlation_id=at) for at in range(30)]
    memory = event("MemoryAllocation", 2, 0, allocator_name="GPU_0_bfc", allocation_bytes=64, addr=2**45)
    return space(
        plane(GPU, {"Stream #1(Compute)": device, "Steps": [event("1", 0, 99)]}, {"core_count": 3, "load": 0.5}),
        plane(HOST, {"Host Threads/1": host, "python": [event("$a.py:1 f"), event("train", 1, step_num=3), memory]}),
        plane("Task Environment", stats={"profile_start_time": 1_700_000_000_000_000_000}),
        hostnames=["h"],
    )


def test_damaged_files_are_read_or_refused_in_one_line(tmp_path):
    content = whole()
    assert survives(XPlane(), tmp_path / "a.xplane.pb", content) > 30


def test_a_file_that_breaks_off_says_so(tmp_path):
    path, content = tmp_path / "a.xplane.pb", whole()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(TraceError, match=rf"truncated: it breaks off at byte {len(content) // 2}"):
        XPlane().read(path)
    path.write_bytes(content.decode(errors="replace").encode())
    with pytest.raises(TraceError, match=r"damaged: it (was saved as text|is no XPlane)"):
        XPlane().read(path)
    path.write_bytes(data(1, bytes(range(128, 256)).decode(errors="replace").encode() * 30))
    with pytest.raises(TraceError, match="every byte that is no text is lost"):
        XPlane().read(path)


@pytest.mark.parametrize(
    "content",
    [
        data(1, data(2, HOST) + data(3, data(4, b"") * 4_000_000)),
        data(1, data(2, HOST) + data(3, b"") * 4_000_000),
        data(1, b"") * 4_000_000,
        data(1, data(2, HOST) + data(3, b"") * 300_000),
        data(1, data(2, HOST) + data(3, data(4, data(4, b"\x08\x01") * 6_000_000))),
        data(1, data(2, HOST) + data(4, b"") * 5_000_000),
    ],
    ids=["events", "lines", "planes", "some lines", "one event", "names"],
)
def test_a_file_made_to_fill_the_memory_is_refused(tmp_path, content):
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(content)
    found = read_within(path, 400 * 1024**2)
    assert str(found.get("error")).count("no XPlane profile") == 1


def test_a_million_events_fit_in_a_gigabyte_of_addresses(tmp_path):
    one = number(1, 1) + number(2, 10**12) + number(3, 10**6)
    line = data(2, "python") + data(4, one) * 1_000_000
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(data(1, data(2, HOST) + data(3, line)))
    assert read_within(path, 1024**3) == {"kept": 1_000_000}


def test_values_of_another_type_are_null(tmp_path):
    odd = event("k", correlation_id=0.5, context_id="none", memcpy_details=5, cuda_graph_node_id=2**64 - 1)
    trace = read(tmp_path, plane(GPU, {"Stream #1": [odd]}))
    assert trace.device_events.select("correlation", "context", "graph_node").rows() == [(None, None, None)]


def test_stats_are_encoded_as_profilers_do():
    """The helper itself: a wrong one would make the tests above agree on nonsense."""
    assert stat({"a": 1}, "a", 2, refer=True) == b"\x08\x01\x20\x02"
    assert data(1, "ab") == b"\x0a\x02ab"
    assert number(2, 300) == b"\x10\xac\x02"
